//! One TCP connection with one message under way, each behind its length.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::LockstepError;

/// A long link with loss may take so long.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(200);
/// What the length of a message can say (RFC 1002 4.3.1, 24 bits as MS-SMB2 2.1 has it).
const MESSAGE_BYTES_MAX: usize = (1 << 24) - 1;
/// A server that has said nothing for some minutes may look whether its client is there (RFC 1002 4.3.7). No message follows.
const KEEP_ALIVE: [u8; 4] = [0x85, 0, 0, 0];

pub(super) struct Connection {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
}

impl Connection {
    pub(super) fn open(server: SocketAddr, stop: Arc<AtomicBool>) -> Result<Self, LockstepError> {
        let connecting = |error| LockstepError::io("connecting", error);
        let stream = TcpStream::connect_timeout(&server, CONNECT_PATIENCE).map_err(connecting)?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(LOOK)))
            .and_then(|()| stream.set_write_timeout(Some(LOOK)))
            .map_err(connecting)?;
        Ok(Self { stream, stop })
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), LockstepError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(LockstepError::Malformed("more than a message can hold"));
        }
        let mut whole = (message.len() as u32).to_be_bytes().to_vec();
        whole.extend_from_slice(message);
        let mut rest = whole.as_slice();
        while !rest.is_empty() {
            let stream = &mut self.stream;
            let sent = patiently(&self.stop, "sending", || stream.write(rest))?;
            rest = rest.split_at(sent).1;
        }
        Ok(())
    }

    /// Waits for a message.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>, LockstepError> {
        let mut prefix = KEEP_ALIVE;
        while prefix == KEEP_ALIVE {
            self.fill(&mut prefix)?;
        }
        let [_, a, b, c] = prefix;
        let mut message = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.fill(&mut message)?;
        Ok(message)
    }

    fn fill(&mut self, mut rest: &mut [u8]) -> Result<(), LockstepError> {
        while !rest.is_empty() {
            let stream = &mut self.stream;
            let came = patiently(&self.stop, "receiving", || stream.read(rest))?;
            rest = rest.split_at_mut(came).1;
        }
        Ok(())
    }
}

/// Tries until something moves, or it is time to stop.
fn patiently(
    stop: &AtomicBool,
    what: &'static str,
    mut attempt: impl FnMut() -> std::io::Result<usize>,
) -> Result<usize, LockstepError> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(LockstepError::Stopped);
        }
        match attempt() {
            Ok(0) => {
                let closed = std::io::Error::from(ErrorKind::UnexpectedEof);
                return Err(LockstepError::io(what, closed));
            }
            Ok(moved) => return Ok(moved),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(LockstepError::io(what, error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Samba asks every five minutes, and a copy over a long link with loss takes ten.
    #[test]
    fn a_server_may_look_whether_its_client_is_there() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = Connection::open(address, Arc::default()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for said in [&KEEP_ALIVE[..], &KEEP_ALIVE, &[0, 0, 0, 3], b"abc"] {
            server.write_all(said).unwrap();
        }
        assert_eq!(client.receive().unwrap(), b"abc");
    }
}
