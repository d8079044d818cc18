#!/bin/sh
# What second versions cost on the wire and in CPU time: fetch the upstream
# versions (once, 2.5 GB unpacked), build for speed, run. Needs apt, the zstd
# command, mke2fs and 4 GB of memory. CORPORA=folder, ONLY=text picks pairs,
# MEGABYTES=n measures so much of each version (256; the largest has 944).
set -eu
cd "$(dirname "$0")/.."
. scripts/privilege.sh
require_cargo
CORPORA=${CORPORA:-$PWD/target/corpora}
as_builder scripts/reduce-corpora.sh "$CORPORA"
as_builder env CORPORA="$CORPORA" ONLY="${ONLY:-}" MEGABYTES="${MEGABYTES:-256}" cargo bench --quiet -p farhaul-reduce --bench reduce -- "$@"
