//! A netlink socket polled by the runtime.
#![allow(unsafe_code)] // tokio cannot prove that a type keeps its descriptor; socket2's does

use std::io;

use socket2::Socket;
use tokio::io::unix::AsyncFd;

/// Registers `socket` with the runtime of the calling task.
pub(super) fn register(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    socket.set_nonblocking(true)?;
    // SAFETY: `Socket` owns its descriptor, returns the same one from
    // `as_raw_fd` for as long as it lives, and closes it only when dropped;
    // `AsyncFd` owns the socket and hands out no `&mut` here.
    unsafe { AsyncFd::register(socket) }.map_err(Into::into)
}
