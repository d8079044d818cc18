#!/bin/sh
# Accuracy of the circuit tester on the emulator, tables of windows (ONLY=memo,
# ONLY=windows), our rates beside iperf3's (ONLY=iperf3), 8755 runs and the memory they
# take (ONLY=campaign): set up, build for speed, run.
# Needs root; takes hours at 20 runs one after the other, JOBS=n runs n at once. A run that was stopped goes on,
# with the same program: runs of another build do not count. Parts (ONLY=) that the same program has run in the
# same folder make one document. SEED=n draws other circuits.
set -eu
cd "$(dirname "$0")/.."
verb=probe
. scripts/privilege.sh
require_root "make probe"
require_cargo
scripts/setup.sh
as_builder cargo build --release -p farhaul
as_root "$target/release/farhaul" lab probe ${ONLY:+--only "$ONLY"} ${RUNS:+--runs "$RUNS"} \
    ${WINDOW_RUNS:+--window-runs "$WINDOW_RUNS"} ${SEED:+--seed "$SEED"} ${JOBS:+--jobs "$JOBS"} "$@"
