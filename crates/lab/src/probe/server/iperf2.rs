//! iperf 2 clients over TCP: each connection is a test of its own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use super::Shared;
use super::clients::Transport;
use crate::probe::client::{CONNECT_PATIENCE, reaches_another};
use crate::probe::clock::now_ns;
use crate::probe::datagram_socket::at_port;
use crate::probe::iperf2::{Amount, Answer, Blocks, HEAD_BYTES, Wish};
use crate::probe::iperf3::stream::Pace;
use crate::probe::message::{SLICE, is_slice_over};
use crate::probe::socket_state::{clamp_window, fix_buffer_for};
use crate::probe::tcp_test::DURATION_MAX_MS;

/// How long the first bytes may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// A connection on which nothing moves.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client that wants to be called may take until it listens, and how often that is tried.
const CALL_PATIENCE: Duration = Duration::from_secs(5);
const CALL_PAUSE: Duration = Duration::from_millis(50);
const PIECE_BYTES: usize = 128 << 10;

/// Serves a connection to its end. Whoever breaks off ends its own test only.
pub(super) fn serve(shared: &Shared, stream: TcpStream, from: SocketAddr) {
    let Some(_client) = shared.enlist_iperf2(from.ip(), Transport::Tcp) else {
        return;
    };
    let test = Test {
        shared,
        from,
        end: Instant::now() + Duration::from_millis(DURATION_MAX_MS) + IDLE_PATIENCE,
    };
    let _ = test.run(stream);
}

struct Test<'a> {
    shared: &'a Shared,
    from: SocketAddr,
    end: Instant,
}

impl Test<'_> {
    fn run(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        self.prepare(&stream)?;
        let wish = Wish::read(&self.head(&stream)?);
        match wish.answer {
            Answer::Nothing => self.sink(stream),
            Answer::Reverse => self.source(&stream, &wish),
            Answer::Duplex => {
                let back = stream.try_clone()?;
                self.both(stream, || self.source(&back, &wish))
            }
            Answer::CallAtOnce => self.both(stream, || self.call(&wish)),
            Answer::CallAfter => self.sink(stream).and_then(|()| self.call(&wish)),
        }
    }

    fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        match self.shared.options.window_bytes {
            Some(bytes) => fix_buffer_for(stream.as_raw_fd(), bytes)
                .and_then(|()| clamp_window(stream.as_raw_fd(), bytes)),
            None => Ok(()),
        }
    }

    /// The first bytes, as many as come.
    fn head(&self, mut stream: &TcpStream) -> io::Result<Vec<u8>> {
        let (end, mut head) = (Instant::now() + HEAD_PATIENCE, Vec::new());
        while head.len() < HEAD_BYTES && Instant::now() < end && !self.shared.is_stopping() {
            let mut rest = (&mut stream).take((HEAD_BYTES - head.len()) as u64);
            match rest.read_to_end(&mut head) {
                Ok(_) if head.len() < HEAD_BYTES => break,
                Ok(_) => {}
                Err(error) if is_slice_over(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(head)
    }

    fn is_over(&self, last: Instant) -> bool {
        let now = Instant::now();
        self.shared.is_stopping() || now > self.end || now.duration_since(last) > IDLE_PATIENCE
    }

    fn sink(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut last = Instant::now();
        while !self.is_over(last) {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(_) => last = Instant::now(),
                Err(error) if is_slice_over(&error) => {}
                Err(error) => return Err(error),
            }
            if let Some(bytes) = self.shared.options.window_bytes {
                clamp_window(stream.as_raw_fd(), bytes)?;
            }
        }
        Ok(())
    }

    /// As much as was asked for; then it is heard that the client has it.
    fn source(&self, mut stream: &TcpStream, wish: &Wish) -> io::Result<()> {
        let mut blocks = Blocks::of(wish.block_bytes);
        let (start, mut sent) = (Instant::now(), 0);
        let mut pace = Pace::new(wish.bit_per_s);
        let mut last = start;
        while !self.is_over(last) {
            let left = match wish.amount {
                Amount::Ms(ms) if start.elapsed() < Duration::from_millis(ms) => u64::MAX,
                Amount::Ms(_) => 0,
                Amount::Bytes(bytes) => bytes.saturating_sub(sent),
            };
            if left == 0 {
                break;
            }
            if let Some(pause) = pace.as_ref().and_then(|pace| pace.pause(now_ns())) {
                thread::sleep(pause);
                continue;
            }
            let rest = blocks.next();
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            match stream.write(rest.get(..most).unwrap_or_default()) {
                Ok(written) => {
                    pace.iter_mut().for_each(|pace| pace.sent(written));
                    sent += written as u64;
                    blocks.written(written);
                    last = Instant::now();
                }
                Err(error) if is_slice_over(&error) => {}
                Err(error) => return Err(error),
            }
        }
        stream.shutdown(Shutdown::Write)?;
        match wish.answer {
            // The other half goes on.
            Answer::Duplex => Ok(()),
            _ => self.sink(stream.try_clone()?),
        }
    }

    /// To the address the client comes from, which has proved to be its own. A client on a busy machine asks before it listens.
    fn call(&self, wish: &Wish) -> io::Result<()> {
        let to = at_port(self.from, wish.port);
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect_timeout(&to, CONNECT_PATIENCE) {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && begin.elapsed() < CALL_PATIENCE
                        && !self.shared.is_stopping() =>
                {
                    thread::sleep(CALL_PAUSE);
                }
                answer => break answer.and_then(reaches_another)?,
            }
        };
        self.prepare(&stream)?;
        self.source(&stream, wish)
    }

    fn both(
        &self,
        stream: TcpStream,
        source: impl FnOnce() -> io::Result<()> + Send,
    ) -> io::Result<()> {
        thread::scope(|scope| {
            let sending = scope.spawn(source);
            let outcome = self.sink(stream);
            let sent = sending.join().unwrap_or(Ok(()));
            outcome.and(sent)
        })
    }
}
