#!/usr/bin/env bash
# Mutation testing of the library with gremlins: it changes one operator at a time and runs the tests of that
# package. What survives is told line by line; test/MUTANTS.md says why it may.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off GOFLAGS=-short
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOFLAGS= GOBIN="$bin" go install github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
run() {
	"$bin/gremlins" unleash "$1" --workers "${WORKERS:-2}" --timeout-coefficient 30 --output-statuses ltkv
}
for package in ./internal/clock ./pool ./timewheel; do
	echo "== $package"
	run "$package"
done
echo "== ./timewheel/ttlcache"
cd timewheel/ttlcache
run .
