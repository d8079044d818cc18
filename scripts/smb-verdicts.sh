#!/bin/sh
# Samba's own tests of its protocol (smbtorture), directly over an emulated link
# and through a pair of gateways: set up, build, run. Needs root and about half an
# hour; ONLY=text picks tests, JOBS=n side by side (4). What is run:
# docs/reference/smb-verdicts.txt
set -eu
cd "$(dirname "$0")/.."
verb=smb-verdicts
. scripts/privilege.sh
require_root "make smb-verdicts"
require_cargo
# A module of smbd's without a program of its own.
ls /usr/lib/*/samba/vfs/streams_xattr.so >/dev/null 2>&1 || streams=streams_xattr.so:samba-vfs-modules
scripts/setup.sh smbtorture:samba-testsuite python3:python3 ${streams:-}
as_builder cargo build -p farhaul
as_root env FARHAUL="$target/debug/farhaul" ONLY="${ONLY:-}" JOBS="${JOBS:-4}" python3 scripts/smb-verdicts.py
