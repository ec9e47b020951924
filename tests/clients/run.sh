#!/bin/sh
# Installs the clients, builds the server unless MYRIAD_BIN names one, and runs all suites.
# The last line is "N passed, N failed"; the exit code says whether all passed.
set -eu
cd "$(dirname "$0")"
here=$(pwd)

if [ -z "${MYRIAD_BIN:-}" ]; then
    (cd ../.. && cargo build --release --locked --bin myriad)
    MYRIAD_BIN=${CARGO_TARGET_DIR:-$here/../../target}/release/myriad
fi
export MYRIAD_BIN

output=$(mktemp)
trap 'rm -f "$output"' EXIT
passed=0
failed=0

# suite NAME COMMAND...: runs it, shows what it says, and keeps it for counting.
suite() {
    name=$1
    shift
    echo "== $name"
    status=0
    "$@" >"$output" 2>&1 || status=$?
    cat "$output"
}

# number PATTERN: the sum of the numbers in all that the pattern finds.
number() {
    grep -oE "$1" "$output" | grep -oE '[0-9]+' | awk '{ sum += $1 } END { print sum + 0 }'
}

# count PASSED FAILED: a suite that fails without having counted a failure counts as one.
count() {
    passed=$((passed + $1))
    failed=$((failed + $2))
    if [ "$status" -ne 0 ] && [ "$2" -eq 0 ]; then
        failed=$((failed + 1))
    fi
}

cd "$here/node"
npm ci --no-audit --no-fund
suite "npm ws and centrifuge" npm test
count "$(number '^[#ℹ] pass [0-9]+$')" "$(number '^[#ℹ] (fail|cancelled) [0-9]+$')"

cd "$here/python"
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
suite "PyPI websockets and centrifuge-python" .venv/bin/python -m pytest -q
count "$(number '[0-9]+ passed')" "$(number '[0-9]+ (failed|errors?)')"

cd "$here/go"
suite "gocent" go test -count=1 -v ./...
count "$(grep -c '^--- PASS: ' "$output" || true)" "$(grep -c '^--- FAIL: ' "$output" || true)"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
