#!/bin/sh
# Gateways with disks, killed at many moments of their work, once with a disk
# that is too small for what passes and once with one much larger than the
# memory: set up, build, run. Each moment is waited for: reducing, sealing and
# writing, making durable, throwing away and reading back have their turn, and
# what the gateways were really at is shown. Needs root and .7 GB in /var/tmp;
# twice 200 moments take some 50 minutes. KILLS=n takes so many.
set -eu
cd "$(dirname "$0")/.."
verb=bench-kill
. scripts/privilege.sh
require_root "make bench-kill"
require_cargo
scripts/setup.sh
as_builder cargo test -p farhaul --test end_to_end --no-run
tests=$(as_builder cargo test -p farhaul --test end_to_end --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*end_to_end-[^"]*\)".*/\1/p' | tail -n 1)
[ -n "$tests" ] || die "the tests were not built"
as_root env FARHAUL_KILLS="${KILLS:-200}" "$tests" --nocapture --test-threads=1 killed_at_any_moment
