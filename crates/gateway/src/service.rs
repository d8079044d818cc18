//! Tells a service manager how we are (sd_notify(3)), when there is one.

use std::os::unix::net::UnixDatagram;

/// Sends one state line, such as `READY=1`, to `$NOTIFY_SOCKET`. Without a
/// service manager, or when it does not listen, nothing happens: the gateway
/// serves all the same.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    let text = path.to_string_lossy();
    let _ = match text.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            std::os::unix::net::SocketAddr::from_abstract_name(name)
                .and_then(|address| socket.send_to_addr(state.as_bytes(), &address))
        }
        None => socket.send_to(state.as_bytes(), &path),
    };
}
