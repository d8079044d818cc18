#!/bin/sh
# Every test. Those that need root run as root and fail without.
set -eu
cd "$(dirname "$0")/.."
verb=test
. scripts/privilege.sh
require_root "make test"
require_cargo
scripts/setup.sh
if ! is_root; then
    # Cargo builds as the user and starts the test programs through sudo.
    host=$(cargo -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${host}_RUNNER=sudo -E"
    exec cargo test --workspace --no-fail-fast
fi
if [ -n "$builder" ]; then
    # Behind sudo: the user builds, root runs, both with the user's toolchain.
    as_builder cargo test --workspace --no-run
    export RUSTUP_HOME="${RUSTUP_HOME:-$builder_home/.rustup}" CARGO_HOME="${CARGO_HOME:-$builder_home/.cargo}"
fi
exec cargo test --workspace --no-fail-fast
