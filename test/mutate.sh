#!/usr/bin/env bash
# Mutation testing of the library, one operator at a time: gremlins changes it and runs the tests of that package. It
# prints a line for each survivor; test/MUTANTS.md says why it may survive. checks/mutants makes other mistakes.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export GOWORK=off
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN="$bin" go install github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
# A mutant may take a multiple of the time that the tests take, so their results must not come from go's cache.
export GOFLAGS="-short -count=1"
run() {
	"$bin/gremlins" unleash "$1" --workers "${WORKERS:-2}" --timeout-coefficient 5 --output-statuses ltkv
}
for package in ./internal/clock ./internal/crew ./pool ./timewheel; do
	echo "== $package"
	run "$package"
done
# gremlins copies the module elsewhere, where a relative replacement leads nowhere and no mutant would compile.
echo "== ./ttlcache"
cp -r ttlcache "$bin/ttlcache"
cd "$bin/ttlcache"
GOFLAGS= go mod edit -replace "github.com/seed581295f1/timewheel=$root"
run .
