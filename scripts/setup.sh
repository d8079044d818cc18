#!/bin/sh
# Installs the Debian or Ubuntu packages that are missing, and says which;
# PROGRAM:PACKAGE as arguments for what only the caller needs.
# No service is started or enabled by it: the demo runs nginx and smbd itself,
# inside a network namespace.
set -eu
cd "$(dirname "$0")/.."
verb=setup
. scripts/privilege.sh

# program:package
wanted='
    cc:build-essential
    curl:curl
    ethtool:ethtool
    ip:iproute2
    iperf:iperf
    iperf3:iperf3
    nft:nftables
    nginx:nginx
    ping:iputils-ping
    setsid:util-linux
    smbclient:smbclient
    smbd:samba
    ss:iproute2
    tcpdump:tcpdump
'

missing=
for pair in $wanted "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
[ -n "${missing% }" ] || exit 0

commands="apt-get update && apt-get install --no-install-recommends $missing"
command -v apt-get >/dev/null 2>&1 ||
    die "These Debian packages are missing and there is no apt-get: $missing" "Install what corresponds to them on this system."
if ! is_root; then
    command -v sudo >/dev/null 2>&1 ||
        die "These packages are missing: $missing" "Without root or sudo they cannot be installed from here. As root:" "  $commands"
    echo "Missing packages: $missing(installing them with sudo)"
    exec sudo "$0" "$@"
fi
echo "Missing packages: $missing(installing them with apt)"

# While this file says 101, package scripts start no service.
policy=/usr/sbin/policy-rc.d
saved=$policy.before-farhaul
enabled() { find /etc/systemd/system /etc/rc[0-6S].d -type l 2>/dev/null | sort; }
before=$(mktemp)
restore() {
    rm -f "$before"
    if [ -e "$saved" ]; then mv -f "$saved" "$policy"; else rm -f "$policy"; fi
}
trap restore EXIT
trap 'exit 130' INT TERM HUP
# A saved file is there already only if an earlier run was killed.
if [ -e "$policy" ] && [ ! -e "$saved" ]; then mv "$policy" "$saved"; fi
printf '#!/bin/sh\n# Put here by scripts/setup.sh for the time of an installation.\nexit 101\n' >"$policy"
chmod 755 "$policy"
enabled >"$before"

export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
log=$(mktemp)
apt-get update >"$log" 2>&1 || { cat "$log" >&2; echo "apt-get update failed; trying with the lists that are there" >&2; }
apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends $missing >"$log" 2>&1 || {
    cat "$log" >&2
    rm -f "$log"
    die "" "apt could not install: $missing" "Repair the above, then run again."
}
rm -f "$log"

# What the installation would start at the next boot shall not.
enabled | comm -13 "$before" - | while read -r link; do
    unit=$(basename "$link")
    case $link in
        /etc/systemd/system/*.wants/*)
            if command -v systemctl >/dev/null 2>&1; then systemctl --quiet disable "$unit" >/dev/null 2>&1 || rm -f "$link"; else rm -f "$link"; fi ;;
        /etc/rc*) update-rc.d "${unit#[SK][0-9][0-9]}" disable >/dev/null 2>&1 || true ;;
    esac
done
echo "Installed. No service was started or enabled."
