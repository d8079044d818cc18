#!/bin/sh
# What must hold before a change is merged, apart from the tests.
set -eu
cd "$(dirname "$0")/.."
. scripts/privilege.sh
require_cargo
step() { echo "== $*"; as_builder "$@"; }
step cargo fmt --all --check
step cargo clippy --workspace --all-targets -- -D warnings
# What fuzzers call is compiled for them only. The targets build without libFuzzer, so this needs no nightly compiler.
step cargo fmt --manifest-path fuzz/Cargo.toml --check
step cargo clippy --manifest-path fuzz/Cargo.toml --target-dir target --locked --all-targets -- -D warnings
step cargo test --quiet -p farhaul --test layering --test style
step python3 -B -m doctest scripts/smb-verdicts.py
# Who reads these pages works inside: they show what is private, and may link to it.
step env RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --workspace --no-deps --document-private-items --quiet
echo "all checks passed"
