//! What can go wrong with a live link, each with what to do about it.

use std::io;
use std::path::PathBuf;

use farhaul_link::ProfileError;

/// An error of the link emulator. The text says what happened, where, and the
/// remedy.
#[derive(Debug, thiserror::Error)]
pub enum EmulateError {
    /// No interface of that name.
    #[error("there is no interface `{name}` in this network namespace: `ip link` lists them")]
    NoSuchInterface {
        /// Name given.
        name: String,
    },
    /// Both ends are the same interface.
    #[error(
        "`{name}` is given twice: a link needs two different interfaces, or every frame would go round for ever"
    )]
    SameInterface {
        /// Name given.
        name: String,
    },
    /// The interface is administratively down.
    #[error("interface `{name}` is down: `ip link set dev {name} up` brings it up")]
    InterfaceDown {
        /// Its name.
        name: String,
    },
    /// Not an Ethernet interface.
    #[error(
        "interface `{name}` is not Ethernet (hardware type {hardware}): use a network card, a veth or a tap"
    )]
    NotEthernet {
        /// Its name.
        name: String,
        /// `ARPHRD_*` number.
        hardware: u16,
    },
    /// The interface belongs to a bridge or bond, which takes its frames.
    #[error(
        "interface `{name}` is a port of `{controller}`, which forwards its frames too: `ip link set dev {name} nomaster` takes it out"
    )]
    HasController {
        /// Its name.
        name: String,
        /// The bridge or bond.
        controller: String,
    },
    /// Another emulator holds the interface.
    #[error(
        "interface `{name}` is held by another running `farhaul link`: stop that first (`farhaul link stop`)"
    )]
    InterfaceHeld {
        /// Its name.
        name: String,
    },
    /// The interface went away while the link ran.
    #[error("interface `{name}` is gone: the link ends; run it again when the interface is back")]
    InterfaceGone {
        /// Its name.
        name: String,
    },
    /// Missing capability.
    #[error("{what}: not permitted: run it as root, or with CAP_NET_RAW and CAP_NET_ADMIN")]
    NotPermitted {
        /// What was tried.
        what: String,
    },
    /// A system call or file failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, to what.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The words that describe the link are wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A live emulator listens at the control socket.
    #[error(
        "a running `farhaul link` listens at {path}: choose another with --socket, or stop it with `farhaul link stop --socket {path}`"
    )]
    SocketInUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path of the control socket is taken by something else.
    #[error("{path} exists and is not a socket: choose another path with --socket")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Nobody listens at the control socket.
    #[error(
        "no `farhaul link` listens at {path}: start one with `farhaul link run`, or name its socket with --socket"
    )]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// No socket was named and none is there.
    #[error(
        "no `farhaul link` is running here: start one with `farhaul link run`, or name its socket with --socket"
    )]
    NoneRunning,
    /// No socket was named and several are there.
    #[error("several links are running, choose one with --socket: {paths}")]
    SeveralRunning {
        /// Their sockets.
        paths: String,
    },
    /// The emulator said no.
    #[error("{0}")]
    Refused(String),
    /// A thread of the emulator ended when it should not have.
    #[error("the link stopped working: {0}")]
    Broken(String),
}

/// Adds what was being done to a system error.
pub(super) trait Doing<T> {
    /// `what` reads like "opening a packet socket on eth1".
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, EmulateError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, EmulateError> {
        self.map_err(|error| {
            let source: io::Error = error.into();
            let what = what();
            match source.kind() {
                io::ErrorKind::PermissionDenied => EmulateError::NotPermitted { what },
                _ => EmulateError::Io { what, source },
            }
        })
    }
}
