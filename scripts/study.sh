#!/bin/sh
# A plan of real clients over many links, and its page: build for speed, run,
# report to out/PLAN.html. Needs root. PLAN=quick takes a minute,
# PLAN=wx2006-cifs 1 h 35, with JOBS=4 an hour; RESUME=1 goes on, ONLY=text picks cells and leaves
# the others as they are; JOBS=4 runs slow copies beside a fast one.
set -eu
cd "$(dirname "$0")/.."
verb=study
. scripts/privilege.sh
require_root "make study"
require_cargo
scripts/setup.sh
PLAN=${PLAN:-quick}
as_builder cargo build --release -p farhaul
# A row that does not hold is a result, too: the page shows it.
status=0
as_root "$target/release/farhaul" lab run "plans/$PLAN.toml" ${ONLY:+--only "$ONLY"} ${RESUME:+--resume} ${JOBS:+--jobs "$JOBS"} "$@" || status=$?
as_root "$target/release/farhaul" lab report "out/$PLAN.json" -o "out/$PLAN.html"
exit "$status"
