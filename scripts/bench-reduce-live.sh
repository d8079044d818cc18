#!/bin/sh
# A disk image over two links by HTTP, FTP and CIFS, at six levels of
# optimisation: fetch two versions of 2.6 GB from Debian's archive (once, 6 GB
# of disk), build for speed, run. Needs root, 20 GB of memory and 9 GB more of
# disk in /var/tmp; takes an hour and ends by itself: what is not done WITHIN
# (90) minutes is a failed row. CORPORA=folder, ONLY=text picks rows.
set -eu
cd "$(dirname "$0")/.."
verb=bench-reduce-live
. scripts/privilege.sh
require_root "make bench-reduce-live"
require_cargo
scripts/setup.sh vsftpd:vsftpd
CORPORA=${CORPORA:-$PWD/target/corpora}
as_builder scripts/reduce-corpora.sh "$CORPORA" desktop
as_builder cargo build --release -p farhaul
as_root "$target/release/farhaul" lab reduce "$CORPORA/desktop-1.img" "$CORPORA/desktop-2.img" --within "${WITHIN:-90}" ${ONLY:+--only "$ONLY"} "$@"
