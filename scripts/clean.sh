#!/bin/sh
# Removes what the other verbs made in this folder, and labs that crashed.
set -eu
cd "$(dirname "$0")/.."
verb=clean
. scripts/privilege.sh
if [ -x "$target/release/farhaul" ] && [ -d /run/farhaul/lab ]; then as_root "$target/release/farhaul" lab sweep; fi
if command -v cargo >/dev/null 2>&1; then as_builder cargo clean; fi
rm -rf out .venv
