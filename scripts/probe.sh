#!/bin/sh
# Accuracy of the circuit tester on the emulator, and the memo's table of
# windows (ONLY=memo): set up, build for speed, run.
# Needs root; takes hours at 20 runs one after the other, JOBS=n runs n at once. A run that was stopped goes on.
set -eu
cd "$(dirname "$0")/.."
verb=probe
. scripts/privilege.sh
require_root "make probe"
require_cargo
scripts/setup.sh
as_builder cargo build --release -p farhaul
as_root "$target/release/farhaul" lab probe ${ONLY:+--only "$ONLY"} ${RUNS:+--runs "$RUNS"} ${JOBS:+--jobs "$JOBS"} "$@"
