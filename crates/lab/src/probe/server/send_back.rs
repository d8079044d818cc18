//! Transactions: whatever comes over TCP goes back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::probe::message::{SLICE, is_slice_over};

/// Most of one session at once. A client uses one; those before it may not
/// have been seen to end.
const ECHOES_MAX: u32 = 64;
/// A connection on which nothing moves.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 16 << 10;

/// The echo connections of a session, which end with it.
#[derive(Debug, Clone)]
pub(super) struct Echoes {
    open: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
}

impl Echoes {
    /// Of a session that sets `is_over` in the end.
    pub(super) fn of(is_over: &Arc<AtomicBool>) -> Self {
        Self {
            open: Arc::default(),
            is_over: Arc::clone(is_over),
        }
    }

    /// Serves one more to its end; closes it where there are too many.
    pub(super) fn serve(&self, stream: TcpStream, stop: &AtomicBool) {
        let place = Place(&self.open);
        if self.open.fetch_add(1, Ordering::Relaxed) < ECHOES_MAX {
            let is_over = || {
                let flags = [stop, &self.is_over];
                flags.iter().any(|flag| flag.load(Ordering::Relaxed))
            };
            // Whoever breaks off ends its own connection only.
            let _ = send_back(stream, IDLE_PATIENCE, is_over);
        }
        drop(place);
    }
}

/// One of the connections counted; uncounted when dropped.
struct Place<'a>(&'a AtomicU32);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Until the client closes. One that sends and never reads must not hold a
/// thread: neither direction is waited for beyond a slice.
fn send_back(
    mut stream: TcpStream,
    patience: Duration,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SLICE))?;
    stream.set_write_timeout(Some(SLICE))?;
    let mut piece = [0; PIECE_BYTES];
    let (mut from, mut to) = (0, 0);
    let mut last = Instant::now();
    while !is_over() && last.elapsed() < patience {
        let moved = match piece.get(from..to).filter(|rest| !rest.is_empty()) {
            Some(rest) => stream.write(rest).inspect(|sent| from += sent),
            None => stream
                .read(&mut piece)
                .inspect(|got| (from, to) = (0, *got)),
        };
        match moved {
            Ok(0) => return Ok(()),
            Ok(_) => last = Instant::now(),
            Err(error) if is_slice_over(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Sends until nobody takes it, and reads nothing.
    fn fill(mut client: &TcpStream) {
        client
            .set_write_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        while client.write(&[1; 65_536]).is_ok() {}
    }

    #[test]
    fn whatever_comes_goes_back() {
        let (mut client, server) = pair();
        let sent: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let mut got = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| send_back(server, IDLE_PATIENCE, || false).unwrap());
            let mut half = client.try_clone().unwrap();
            let sent = &sent;
            scope.spawn(move || {
                half.write_all(sent).unwrap();
                half.shutdown(std::net::Shutdown::Write).unwrap();
            });
            client.read_to_end(&mut got).unwrap();
        });
        assert_eq!(got, sent);
    }

    #[test]
    fn a_client_that_sends_and_never_reads_holds_nothing_for_long() {
        let (client, server) = pair();
        std::thread::scope(|scope| {
            // Nothing moves: it ends, and the client's writing with it.
            scope.spawn(|| send_back(server, Duration::from_secs(2), || false));
            fill(&client);
        });
    }

    #[test]
    fn an_echo_that_nobody_reads_ends_with_its_session() {
        let (client, server) = pair();
        let (is_over, stop) = (Arc::<AtomicBool>::default(), AtomicBool::new(false));
        let echoes = Echoes::of(&is_over);
        std::thread::scope(|scope| {
            scope.spawn(|| echoes.serve(server, &stop));
            fill(&client);
            assert_eq!(echoes.open.load(Ordering::Relaxed), 1);
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(echoes.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_session_has_no_more_than_its_share() {
        let echoes = Echoes::of(&Arc::default());
        echoes.open.store(ECHOES_MAX, Ordering::Relaxed);
        let (mut client, server) = pair();
        echoes.serve(server, &AtomicBool::new(false));
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(echoes.open.load(Ordering::Relaxed), ECHOES_MAX);
    }
}
