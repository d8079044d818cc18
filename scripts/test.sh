#!/bin/sh
# Every test. Those that need root run as root and fail without. The last line
# counts them all; the exit status is that of `cargo test`.
set -eu
cd "$(dirname "$0")/.."
verb=test
. scripts/privilege.sh
require_root "make test"
require_cargo
scripts/setup.sh

# Runs a test command and sums up what its test programs report. Tests of a
# program that died before it reported count as failed.
summed() {
    report=$(mktemp -d)
    trap 'rm -rf "$report"' EXIT
    { "$@" && echo 0 >"$report/status" || echo $? >"$report/status"; } | tee "$report/lines"
    awk '/^running [0-9]+ tests?$/ { failed += open; open = $2 }
         /^test result: / { passed += $4; failed += $6; open = 0 }
         END { printf "%d passed, %d failed\n", passed, failed + open }' "$report/lines"
    exit "$(cat "$report/status")"
}

if ! is_root; then
    # Cargo builds as the user and starts the test programs through sudo.
    host=$(cargo -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${host}_RUNNER=sudo -E"
    summed cargo test --workspace --no-fail-fast
fi
if [ -n "$builder" ]; then
    # Behind sudo: the user builds, root runs, both with the user's toolchain.
    as_builder cargo test --workspace --no-run
    export RUSTUP_HOME="${RUSTUP_HOME:-$builder_home/.rustup}" CARGO_HOME="${CARGO_HOME:-$builder_home/.cargo}"
fi
summed cargo test --workspace --no-fail-fast
