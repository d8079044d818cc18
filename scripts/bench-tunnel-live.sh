#!/bin/sh
# The tunnel on real packets beside the kernel's cubic and BBR: set up, build
# for speed, run. Needs root; takes half an hour. ONLY=text picks rows.
set -eu
cd "$(dirname "$0")/.."
verb=bench-tunnel-live
. scripts/privilege.sh
require_root "make bench-tunnel-live"
require_cargo
scripts/setup.sh
as_builder cargo build --release -p farhaul
as_root "$target/release/farhaul" lab tunnel ${ONLY:+--only "$ONLY"} "$@"
