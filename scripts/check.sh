#!/bin/sh
# What must hold before a change is merged, apart from the tests.
set -eu
cd "$(dirname "$0")/.."
. scripts/privilege.sh
require_cargo
step() { echo "== $*"; as_builder "$@"; }
step cargo fmt --all --check
step cargo clippy --workspace --all-targets -- -D warnings
step cargo test --quiet -p farhaul --test layering --test style
step env RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet
echo "all checks passed"
