# Sourced by the other scripts: who builds and who runs. The build belongs to
# the user who called (also behind sudo), the lab to root.

die() { printf '%s\n' "$@" >&2; exit 1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# Administrators' programs are not on every user's path.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

# The user behind `sudo make`, if there is one.
builder=
if is_root && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
    builder=$SUDO_USER
    builder_home=$(getent passwd "$builder" | cut -d: -f6)
    PATH=$PATH:$builder_home/.cargo/bin
else
    PATH=$PATH:${HOME:-/root}/.cargo/bin
fi

as_builder() {
    if [ -n "$builder" ]; then
        sudo -u "$builder" env HOME="$builder_home" PATH="$PATH" "$@"
    else
        "$@"
    fi
}

require_root() {
    is_root && return
    command -v sudo >/dev/null 2>&1 && return
    die "$1 needs root (network namespaces, raw sockets), and there is no sudo here." \
        "Run it as root: su -c 'make ${verb:-}'"
}

as_root() {
    if is_root; then "$@"; else sudo --preserve-env=NO_COLOR,COLUMNS "$@"; fi
}

require_cargo() {
    command -v cargo >/dev/null 2>&1 || die \
        "cargo, the Rust build tool, is not installed (or not on PATH)." \
        "Install Rust 1.89 or newer from https://rustup.rs, then open a new shell:" \
        "  curl --proto '=https' -sSf https://sh.rustup.rs | sh" \
        "(Debian 12's own package is too old.)"
    has=$(as_builder cargo --version) || die "cargo does not start: $has"
    minor=$(printf '%s\n' "$has" | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge 89 ] || die "This needs Rust 1.89 or newer; here is $has." "Remedy: rustup update stable"
}

target=${CARGO_TARGET_DIR:-target}
