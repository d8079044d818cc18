//! One TCP test: the plan both ends follow, and what each of them saw.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::clock::now_ns;
use super::host::ThreadTime;
use super::message::{SLICE, is_slice_over};
use super::socket_state::{
    SocketSettings, TcpState, clamp_window, fix_buffer_for, set_send_buffer,
};

/// Most streams each way.
pub const STREAMS_MAX: u16 = 64;
/// Longest test.
pub const DURATION_MAX_MS: u64 = 3_600_000;
/// Least window a receiver can be told to keep to.
pub const WINDOW_BYTES_MIN: u32 = 1024;
/// How long what was sent may take to arrive after the end.
pub(crate) const DRAIN_NS: u64 = 3_000_000_000;
const SAMPLES: u64 = 100;
const SAMPLE_NS_MIN: u64 = 20_000_000;
const PIECE_BYTES: usize = 128 << 10;

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
    /// Both at the same time.
    Both,
}

impl Direction {
    /// Whether data goes up.
    pub fn has_up(self) -> bool {
        self != Self::Down
    }

    /// Whether data comes down.
    pub fn has_down(self) -> bool {
        self != Self::Up
    }
}

/// What a TCP test is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpPlan {
    /// Which way.
    pub direction: Direction,
    /// Streams each way.
    pub streams: u16,
    /// How long data is sent.
    pub duration_ms: u64,
    /// The receivers advertise no more than this.
    pub window_bytes: Option<u32>,
    /// The senders' buffers hold this much.
    pub send_buffer_bytes: Option<u32>,
    /// Congestion control of the senders.
    pub congestion_control: Option<String>,
    /// Largest segment, both ways.
    pub mss_bytes: Option<u16>,
    /// Type of service of all packets of the client.
    pub tos: u8,
}

impl TcpPlan {
    /// One stream with every setting as the hosts have it.
    pub fn new(direction: Direction, duration_ms: u64) -> Self {
        Self {
            direction,
            streams: 1,
            duration_ms,
            window_bytes: None,
            send_buffer_bytes: None,
            congestion_control: None,
            mss_bytes: None,
            tos: 0,
        }
    }

    /// Says what cannot be done.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64| match value {
            value if value < least || value > most => {
                Err(format!("{name} {value} is not between {least} and {most}"))
            }
            _ => Ok(()),
        };
        within("streams", self.streams.into(), 1, STREAMS_MAX.into())?;
        within("duration in ms", self.duration_ms, 1, DURATION_MAX_MS)?;
        let window = self.window_bytes.unwrap_or(8192);
        let least = WINDOW_BYTES_MIN.into();
        within("window in bytes", window.into(), least, 1 << 30)?;
        let buffer = self.send_buffer_bytes.unwrap_or(8192);
        within("send buffer in bytes", buffer.into(), 1024, 1 << 30)?;
        within(
            "segment size",
            self.mss_bytes.unwrap_or(1460).into(),
            88,
            32767,
        )?;
        match &self.congestion_control {
            Some(name) if name.is_empty() || name.len() > 15 => {
                Err("a congestion control's name has 1 to 15 characters".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Connections in all: those that go up come first.
    pub(crate) fn connections(&self) -> u16 {
        match self.direction {
            Direction::Both => self.streams * 2,
            _ => self.streams,
        }
    }

    /// Which way a connection's data goes.
    pub(crate) fn goes_up(&self, connection: u16) -> bool {
        match self.direction {
            Direction::Up => true,
            Direction::Down => false,
            Direction::Both => connection < self.streams,
        }
    }

    fn sample_ns(&self) -> u64 {
        let streams = u64::from(self.connections()).max(4) / 4;
        (self.duration_ms * 1_000_000 / SAMPLES).max(SAMPLE_NS_MIN) * streams
    }

    /// Settings of a connected socket, before data.
    pub(crate) fn prepare(&self, stream: &TcpStream, sends: bool) -> io::Result<()> {
        let socket = SockRef::from(stream);
        if !sends {
            return match self.window_bytes {
                Some(bytes) => fix_buffer_for(stream.as_raw_fd(), bytes)
                    .and_then(|()| clamp_window(stream.as_raw_fd(), bytes)),
                None => Ok(()),
            };
        }
        if let Some(name) = &self.congestion_control {
            let set = socket.set_tcp_congestion(name.as_bytes());
            set.map_err(|error| without_controller(name, &error))?;
        }
        match self.send_buffer_bytes {
            Some(bytes) => set_send_buffer(stream.as_raw_fd(), bytes),
            None => Ok(()),
        }
    }
}

/// The kernel's own words do not say what was not found.
fn without_controller(name: &str, error: &io::Error) -> io::Error {
    let why = format!(
        "congestion control `{name}`: {error}; see net.ipv4.tcp_available_congestion_control"
    );
    io::Error::new(error.kind(), why)
}

/// A connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Monotonic time of the end that took it; in a report, of the client.
    pub at_ns: u64,
    /// Payload written or read so far.
    pub bytes: u64,
    /// The kernel's view.
    pub state: TcpState,
    /// Processor time of the thread that moves the data.
    pub thread: ThreadTime,
}

/// One end's view of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamEnd {
    /// Number of the connection.
    pub connection: u16,
    /// Whether its data goes up.
    pub goes_up: bool,
    /// Whether this end sends.
    pub sends: bool,
    /// When it began, monotonic time as in the samples.
    pub start_ns: u64,
    /// First payload byte written or read.
    pub first_ns: Option<u64>,
    /// Last payload byte written or read.
    pub last_ns: Option<u64>,
    /// Payload written or read.
    pub bytes: u64,
    /// Settings of the socket.
    pub settings: SocketSettings,
    /// Its course.
    pub samples: Vec<Sample>,
    /// Why it ended early.
    pub error: Option<String>,
}

impl StreamEnd {
    /// In another clock: `ahead_ns` is how far this one is ahead of it.
    pub(crate) fn shift(&mut self, ahead_ns: i64) {
        let shift = |at: &mut u64| *at = at.saturating_add_signed(ahead_ns.saturating_neg());
        shift(&mut self.start_ns);
        self.first_ns.iter_mut().for_each(shift);
        self.last_ns.iter_mut().for_each(shift);
        self.samples
            .iter_mut()
            .for_each(|sample| shift(&mut sample.at_ns));
    }

    /// Mean payload rate from first to last byte, bit/s.
    pub fn mean_bit_per_s(&self) -> Option<f64> {
        let ns = self.last_ns?.checked_sub(self.first_ns?)?;
        (ns > 0).then(|| self.bytes as f64 * 8e9 / ns as f64)
    }
}

/// One end of one stream at work.
pub(crate) struct Worker<'a> {
    plan: &'a TcpPlan,
    stop: &'a AtomicBool,
    stream: TcpStream,
    end: StreamEnd,
    /// What is sent, or room for what comes; made before the time begins.
    piece: Vec<u8>,
    next_sample_ns: u64,
    thread_start: ThreadTime,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        plan: &'a TcpPlan,
        stop: &'a AtomicBool,
        stream: TcpStream,
        connection: u16,
        is_server: bool,
    ) -> io::Result<Self> {
        let goes_up = plan.goes_up(connection);
        let sends = goes_up != is_server;
        plan.prepare(&stream, sends)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        let settings = SocketSettings::of(&stream)?;
        let end = StreamEnd {
            connection,
            goes_up,
            sends,
            start_ns: 0,
            first_ns: None,
            last_ns: None,
            bytes: 0,
            settings,
            samples: Vec::new(),
            error: None,
        };
        Ok(Self {
            plan,
            stop,
            stream,
            end,
            piece: match sends {
                true => noise(PIECE_BYTES),
                false => vec![0; PIECE_BYTES],
            },
            next_sample_ns: 0,
            thread_start: ThreadTime::default(),
        })
    }

    /// Sends or receives until the plan's end; what goes wrong is part of the
    /// result.
    pub(crate) fn run(mut self) -> StreamEnd {
        self.end.start_ns = now_ns();
        self.thread_start = ThreadTime::so_far();
        self.next_sample_ns = self.end.start_ns;
        let outcome = match self.end.sends {
            true => self.send(),
            false => self.receive(),
        };
        // Afterwards it may end as it likes: the other end may have been quicker.
        if let Err(error) = outcome
            && now_ns() < self.end_ns()
        {
            self.end.error = Some(error.to_string());
        }
        // What is still on its way is not waited for.
        let _ = SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO));
        self.end
    }

    fn end_ns(&self) -> u64 {
        self.end.start_ns + self.plan.duration_ms * 1_000_000
    }

    fn send(&mut self) -> io::Result<()> {
        let end_ns = self.end_ns();
        while now_ns() < end_ns && !self.stop.load(Ordering::Relaxed) {
            match self.stream.write(&self.piece) {
                Ok(bytes) => self.moved(bytes),
                Err(error) if is_slice_over(&error) => {}
                Err(error) => return Err(error),
            }
            self.sample_if_due()?;
        }
        self.sample()?;
        self.stream.shutdown(Shutdown::Write)?;
        self.await_close(end_ns + DRAIN_NS)
    }

    /// The receiver closes when it has everything.
    fn await_close(&mut self, until_ns: u64) -> io::Result<()> {
        while now_ns() < until_ns && !self.stop.load(Ordering::Relaxed) {
            match self.stream.read(&mut [0; 64]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if is_slice_over(&error) => {}
                // It may have closed with a reset: all the same here.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let until_ns = self.end_ns() + DRAIN_NS;
        while now_ns() < until_ns && !self.stop.load(Ordering::Relaxed) {
            match self.stream.read(&mut self.piece) {
                Ok(0) => break,
                Ok(bytes) => {
                    self.moved(bytes);
                    if let Some(window_bytes) = self.plan.window_bytes {
                        clamp_window(self.stream.as_raw_fd(), window_bytes)?;
                    }
                }
                Err(error) if is_slice_over(&error) => {}
                Err(error) => {
                    self.sample()?;
                    return Err(error);
                }
            }
            self.sample_if_due()?;
        }
        self.sample()
    }

    fn moved(&mut self, bytes: usize) {
        let now = now_ns();
        self.end.first_ns.get_or_insert(now);
        self.end.last_ns = Some(now);
        self.end.bytes += bytes as u64;
    }

    fn sample_if_due(&mut self) -> io::Result<()> {
        if now_ns() < self.next_sample_ns {
            return Ok(());
        }
        self.sample()
    }

    fn sample(&mut self) -> io::Result<()> {
        let at_ns = now_ns();
        self.next_sample_ns = at_ns + self.plan.sample_ns();
        self.end.samples.push(Sample {
            at_ns,
            bytes: self.end.bytes,
            state: TcpState::of(&self.stream)?,
            thread: ThreadTime::so_far().since(&self.thread_start),
        });
        Ok(())
    }
}

/// Bytes nothing on the way can compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ now_ns();
    let word = || {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    let words = std::iter::repeat_with(word).flatten();
    words.take(length).collect()
}

#[cfg(test)]
mod tests;
