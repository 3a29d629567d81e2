#!/usr/bin/env bash
# Looks for tests that fail without a defect: it runs the given packages' tests again and again for SECONDS, while LOAD
# processes keep the processors busy. It prints what failed, and goes through all rounds.
#
#	test/hunt.sh SECONDS LOAD PACKAGE ...
set -euo pipefail
for_seconds=$1 load=$2
shift 2
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT
for _ in $(seq "$load"); do
	(while :; do :; done) &
	pids+=($!)
done
status=0 round=0 out=$(mktemp)
while ((SECONDS < for_seconds)); do
	round=$((round + 1))
	if go test -vet=off -short -count=1 -p 4 -timeout 40m "$@" >"$out" 2>&1; then
		echo "round $round: no failure, after $SECONDS s"
	else
		status=1
		echo "round $round: failures, after $SECONDS s"
		grep -v '^ok\|no test files' "$out" || true
	fi
done
rm -f "$out"
exit $status
