#!/bin/sh
# Calibration of the link emulator: set up, build for speed, run.
set -eu
cd "$(dirname "$0")/.."
verb=calibrate
. scripts/privilege.sh
require_root "make calibrate"
require_cargo
scripts/setup.sh
as_builder cargo build --release -p farhaul
as_root "$target/release/farhaul" lab calibrate
