#!/bin/sh
# The tunnel over every link of the matrix, in virtual time: build for speed,
# run. Needs neither root nor a network. Options: crates/gateway/benches/tunnel/main.rs.
set -eu
cd "$(dirname "$0")/.."
. scripts/privilege.sh
require_cargo
# The dev profile spares a second build where the tests are built already.
as_builder env ONLY="${ONLY:-}" SEEDS="${SEEDS:-}" JOBS="${JOBS:-}" \
    cargo bench --quiet --profile "${PROFILE:-bench}" -p farhaul-gateway --bench tunnel -- "$@"
