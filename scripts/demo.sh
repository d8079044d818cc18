#!/bin/sh
# The demo: set up, build for speed, run.
set -eu
cd "$(dirname "$0")/.."
verb=demo
. scripts/privilege.sh
require_root "make demo"
require_cargo
scripts/setup.sh
as_builder cargo build --release -p farhaul
as_root "$target/release/farhaul" lab demo --repeat "${REPEAT:-1}"
