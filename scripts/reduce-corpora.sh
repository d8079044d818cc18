#!/bin/sh
# Pairs of upstream versions that nobody here edited, for `make bench-reduce`:
# the oldest and the newest that Debian's archive offers of a kernel source
# tree and of a set of programs, as tar and as ext4 image. Needs apt and
# network once; what is there is kept. With `desktop`, instead: images of a
# larger set, 2.6 GB each. Usage: scripts/reduce-corpora.sh FOLDER [desktop]
set -eu
folder=${1:?folder for the corpora}
what=${2:-pairs}
mkdir -p "$folder/deb"
cd "$folder"
kernel_folders="arch/x86 arch/arm64 drivers/net fs include kernel mm net sound"
programs="libreoffice-core libreoffice-common libreoffice-writer libreoffice-calc openjdk-17-jre-headless
    postgresql-15 samba-libs libwebkit2gtk-4.1-0 libjavascriptcoregtk-4.1-0 git libavcodec59 libgs10
    perl-modules-5.36 libc6 locales php8.2-cli libpython3.11-stdlib"

desktop="$programs chromium chromium-common firefox-esr thunderbird nodejs libnode108 openjdk-17-jdk-headless
    openjdk-17-doc mariadb-server-core qemu-system-x86"

# Versions of a package in apt's lists, oldest first.
versions() {
    apt-cache madison "$1" | awk -F'|' '{gsub(/ /, "", $2); print $2}' | sort -uV
}

# fetch PACKAGE VERSION: prints the path of the .deb.
fetch() {
    name=$(printf '%s_%s_*.deb' "$1" "$2" | sed 's/:/%3a/')
    # shellcheck disable=SC2086 # the name holds a wildcard
    [ -e "$(ls deb/$name 2>/dev/null | head -n 1)" ] || (cd deb && apt-get download -q "$1=$2" >/dev/null 2>&1)
    # shellcheck disable=SC2086
    ls deb/$name
}

# pack TREE NAME: one tar whose bytes depend on the tree only.
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -C "$1" -cf "$2.part" .
    mv "$2.part" "$2"
}

# image TREE NAME: an ext4 image with fixed identity and room of a tenth.
image() {
    kib=$(du -sk "$1" | awk '{print int($1 * 1.15) + 8192}')
    rm -f "$2.part"
    E2FSPROGS_FAKE_TIME=1700000000 mke2fs -q -F -t ext4 -b 4096 -O '^has_journal' \
        -U 11111111-2222-4333-8444-555555555555 -E hash_seed=11111111-2222-4333-8444-666666666666 \
        -d "$1" "$2.part" "${kib}k"
    mv "$2.part" "$2"
}

kernel() {
    [ -e "kernel-$1.tar" ] && return
    version=$(versions linux-source-6.1 | "$2" -n 1)
    deb=$(fetch linux-source-6.1 "$version")
    rm -rf tree && mkdir tree
    dpkg-deb --fsys-tarfile "$deb" | tar -xOf - ./usr/src/linux-source-6.1.tar.xz >kernel.tar.xz
    # shellcheck disable=SC2086
    tar -xf kernel.tar.xz -C tree $(for part in $kernel_folders; do echo "linux-source-6.1/$part"; done)
    pack tree "kernel-$1.tar"
    rm -rf tree kernel.tar.xz
    echo "kernel-$1.tar: linux-source-6.1 $version" >>versions.txt
}

# unpack NAME head|tail PACKAGES: the oldest or newest versions in `tree`.
unpack() {
    rm -rf tree && mkdir tree
    for package in $3; do
        version=$(versions "$package" | "$2" -n 1)
        dpkg-deb -x "$(fetch "$package" "$version")" tree
        echo "$1: $package $version" >>versions.txt
    done
}

programs_tree() {
    [ -e "usr-$1.tar" ] && [ -e "usr-$1.img" ] && return
    unpack "usr-$1" "$2" "$programs"
    pack tree "usr-$1.tar"
    image tree "usr-$1.img"
    rm -rf tree
}

desktop_image() {
    [ -e "desktop-$1.img" ] && return
    unpack "desktop-$1" "$2" "$desktop"
    image tree "desktop-$1.img"
    rm -rf tree
}

# sums FILE NEWEST FILES: SHA-256 of files, taken once.
sums() {
    sums=$1 newest=$2
    shift 2
    [ -e "$sums" ] && [ "$sums" -nt "$newest" ] || sha256sum "$@" >"$sums"
    cat "$sums"
}

if [ "$what" = desktop ]; then
    desktop_image 1 head
    desktop_image 2 tail
    sums SHA256-desktop desktop-2.img desktop-?.img
    exit
fi
kernel 1 head
kernel 2 tail
programs_tree 1 head
programs_tree 2 tail
sums SHA256 usr-2.img kernel-?.tar usr-?.tar usr-?.img
