#!/bin/sh
# The reduced simulation study: build for speed, run, report. Needs no root.
set -eu
cd "$(dirname "$0")/.."
. scripts/privilege.sh
require_cargo
as_builder cargo build --release -p farhaul
as_builder "$target/release/farhaul" sim run plans/waikato-reduced.toml --jobs "${JOBS:-$(nproc)}"
as_builder "$target/release/farhaul" sim report plans/waikato-reduced.toml
