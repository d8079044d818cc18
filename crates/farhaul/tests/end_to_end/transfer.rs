//! A transfer that goes on until it is told to finish or something breaks it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::apps::{Content, Service};
use crate::world::{HANG, World, until, v4};

/// Between two blocks, so that a transfer leaves the processors to others.
const PACE: Duration = Duration::from_millis(5);
const BLOCK_BYTES: usize = 64 << 10;
/// Turns a hang into an error; longer than any outage.
const STALL: Duration = HANG.saturating_mul(3);

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Server to client.
    Down,
    /// Client to server.
    Up,
}

/// What an application saw until its connection ended.
#[derive(Debug)]
pub struct End {
    /// Bytes that went through its hands.
    pub len: usize,
    sum: [u8; 32],
    /// Clean end, or what came instead.
    pub result: io::Result<()>,
    /// When.
    pub at: Instant,
}

/// Two applications and what is between them.
pub struct Transfer {
    /// Its connection, for questions about it.
    pub stream: TcpStream,
    enough: Arc<AtomicBool>,
    moved: Arc<AtomicUsize>,
    sender: JoinHandle<End>,
    receiver: JoinHandle<End>,
    _service: Service,
}

impl Transfer {
    /// Starts one and waits until its first megabyte has arrived.
    pub fn start(world: &World, port: u16, way: Way) -> Self {
        let (accepted, incoming) = mpsc::channel();
        let service = Service::start(&world.lab.server().unwrap(), port, move |stream, _| {
            let _ = accepted.send(stream);
        });
        let stream = world.connect(v4(port));
        let client = stream.try_clone().unwrap();
        let server = incoming.recv_timeout(HANG).unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(STALL)).unwrap();
            stream.set_write_timeout(Some(STALL)).unwrap();
        }
        let (from, to) = match way {
            Way::Down => (server, client),
            Way::Up => (client, server),
        };
        let (enough, moved) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stop, count) = (Arc::clone(&enough), Arc::clone(&moved));
        let transfer = Self {
            stream,
            enough,
            moved,
            sender: std::thread::spawn(move || feed(from, u64::from(port), &stop)),
            receiver: std::thread::spawn(move || drain(to, &count)),
            _service: service,
        };
        transfer.wait_moved(1 << 20);
        transfer
    }

    /// Bytes that have arrived.
    pub fn moved(&self) -> usize {
        self.moved.load(Ordering::Relaxed)
    }

    /// Waits for that many more bytes.
    pub fn wait_moved(&self, bytes: usize) {
        let goal = self.moved() + bytes;
        until("the transfer to move", || self.moved() >= goal);
    }

    /// Nothing new is sent; what was goes on.
    pub fn stop(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    /// Lets it come to its end, which must be clean and whole at both ends.
    pub fn finish_whole(self) {
        self.stop();
        let (sent, received) = self.ends();
        sent.result.unwrap();
        received.result.unwrap();
        assert_eq!((received.len, received.sum), (sent.len, sent.sum));
    }

    /// Waits until both applications have seen it break, at most `patience`
    /// after `fault`. A clean end of a transfer that was not told to finish is
    /// the one thing that must not be.
    pub fn broken(self, fault: Instant, patience: Duration) {
        let (sent, received) = self.ends();
        for (what, end) in [("sender", sent), ("receiver", received)] {
            let after = end.at.saturating_duration_since(fault);
            assert!(
                end.result.is_err(),
                "the {what} saw a clean end after {} bytes",
                end.len
            );
            assert!(after < patience, "the {what} learnt of it after {after:?}");
        }
    }

    fn ends(self) -> (End, End) {
        (self.sender.join().unwrap(), self.receiver.join().unwrap())
    }
}

fn feed(mut stream: TcpStream, seed: u64, enough: &AtomicBool) -> End {
    let (mut content, mut sum, mut len) = (Content::new(seed), Sha256::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    let mut send = || {
        while !enough.load(Ordering::Relaxed) {
            content.fill(&mut block);
            stream.write_all(&block)?;
            sum.update(&block);
            len += block.len();
            sleep(PACE);
        }
        stream.shutdown(Shutdown::Write)?;
        // The receiver closes when it has everything.
        match stream.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(io::Error::other("bytes from a receiver")),
        }
    };
    let result = send();
    let at = Instant::now();
    End {
        len,
        sum: sum.finalize().into(),
        result,
        at,
    }
}

fn drain(mut stream: TcpStream, moved: &AtomicUsize) -> End {
    let (mut sum, mut len) = (Sha256::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    let result = loop {
        match stream.read(&mut block) {
            Ok(0) => break stream.shutdown(Shutdown::Write),
            Ok(part) => {
                sum.update(&block[..part]);
                len += part;
                moved.store(len, Ordering::Relaxed);
            }
            Err(error) => break Err(error),
        }
    };
    End {
        len,
        sum: sum.finalize().into(),
        result,
        at: Instant::now(),
    }
}
