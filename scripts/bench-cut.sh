#!/bin/sh
# The link cut for a minute under 50 transfers, three times: set up, build, run.
# Needs root and some ten minutes.
set -eu
cd "$(dirname "$0")/.."
verb=bench-cut
. scripts/privilege.sh
require_root "make bench-cut"
require_cargo
scripts/setup.sh
as_builder cargo test -p farhaul --test end_to_end --no-run
tests=$(as_builder cargo test -p farhaul --test end_to_end --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*end_to_end-[^"]*\)".*/\1/p' | tail -n 1)
[ -n "$tests" ] || die "the tests were not built"
as_root env FARHAUL_CUT=whole "$tests" --nocapture --test-threads 1 survive_a_cut
