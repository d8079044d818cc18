//! The control protocol: JSON messages with a length before them, each bounded
//! in size and time, over one TCP connection.
//!
//! Every connection to the server begins with a [`Greeting`]; one that begins
//! otherwise is not ours.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};

use super::datagram_flow::{FlowCount, FlowPlan};
use super::error::{ProbeError, While};
use super::host::HostFacts;
use super::tcp_test::{StreamEnd, TcpPlan};

/// Port of the server: iperf3's, whose clients it also answers.
pub const PORT: u16 = 5201;
/// Version of the protocol.
pub(crate) const VERSION: u32 = 1;
/// Longest message of a client.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest message of a server: the samples of many streams.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How often a wait looks whether to stop.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How long the other end may take to answer what needs no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// A control connection that is silent for so long is asked whether the other host is there,
const KEEPALIVE: Duration = Duration::from_secs(10);
/// and one that acknowledges nothing for so long ends.
const VANISHED: Duration = Duration::from_secs(30);
/// Segment size of the control connection: it must pass where large packets
/// silently do not.
pub(crate) const CONTROL_MSS_BYTES: u32 = 536;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Requests and answers.
    Control,
    /// One stream of a TCP test.
    Stream(u16),
    /// Every byte comes back.
    Echo,
}

/// The first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) purpose: Purpose,
    /// Zero for a control connection; else what the server gave out.
    pub(crate) token: Token,
}

/// Proves that a connection or datagram belongs to a session.
pub(crate) type Token = [u8; 16];

impl Greeting {
    pub(crate) const BYTES: usize = 24;
    /// No cookie of iperf3 begins so: those are lower case.
    pub(crate) const MAGIC: [u8; 4] = *b"FHP1";

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (kind, stream) = match self.purpose {
            Purpose::Control => (1, 0),
            Purpose::Stream(stream) => (2, stream),
            Purpose::Echo => (3, 0),
        };
        let mut bytes = [0; Self::BYTES];
        let parts = [
            &Self::MAGIC[..],
            &[kind, 0],
            &stream.to_be_bytes(),
            &self.token,
        ];
        for (at, byte) in bytes.iter_mut().zip(parts.concat()) {
            *at = byte;
        }
        bytes
    }

    pub(crate) fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (head, token) = bytes.split_first_chunk::<8>()?;
        let purpose = match head {
            [b'F', b'H', b'P', b'1', 1, 0, 0, 0] => Purpose::Control,
            [b'F', b'H', b'P', b'1', 2, 0, high, low] => {
                Purpose::Stream(u16::from_be_bytes([*high, *low]))
            }
            [b'F', b'H', b'P', b'1', 3, 0, 0, 0] => Purpose::Echo,
            _ => return None,
        };
        let token = token.try_into().ok()?;
        Some(Self { purpose, token })
    }
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// First of all.
    Hello {
        /// Version of the protocol.
        version: u32,
    },
    /// What time is it at yours?
    Clock,
    /// Take part in a TCP test.
    Tcp(TcpPlan),
    /// Take part in a UDP test.
    Datagrams(FlowPlan),
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To `Hello`.
    Welcome {
        /// Version of the protocol.
        version: u32,
        /// For further connections and datagrams.
        token: Token,
        /// UDP port that sends everything back.
        echo_port: u16,
        /// Our settings.
        host: Box<HostFacts>,
        /// Other sessions at present: they may disturb.
        other_sessions: u32,
    },
    /// To `Clock`.
    Clock {
        /// Monotonic time.
        at_ns: u64,
    },
    /// To `Tcp` and `Datagrams`: waiting for streams or datagrams.
    Ready {
        /// UDP port; 0 for TCP.
        port: u16,
    },
    /// All streams are there; it begins now.
    Go,
    /// The end of a TCP test.
    TcpDone {
        /// Streams as seen here.
        streams: Vec<StreamEnd>,
        /// Sessions beside this one, at most, during the test.
        other_sessions: u32,
    },
    /// The end of a UDP test.
    DatagramsDone {
        /// Datagrams sent here.
        sent: u64,
        /// What arrived here, if it is the receiver.
        count: Option<Box<FlowCount>>,
        /// Sessions beside this one, at most, during the test.
        other_sessions: u32,
    },
    /// No.
    Refused {
        /// Why.
        why: String,
    },
}

/// A message without its length: a client's or a server's.
pub(crate) fn read_message<T: DeserializeOwned>(text: &[u8]) -> Result<T, ProbeError> {
    serde_json::from_slice(text).map_err(|error| {
        ProbeError::protocol(super::error::harmless(&format!(
            "a message is wrong: {error}"
        )))
    })
}

/// A control connection of either end.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
    receive_bytes_max: usize,
}

impl Control {
    pub(crate) fn new(
        stream: TcpStream,
        stop: Arc<AtomicBool>,
        receive_bytes_max: usize,
    ) -> Result<Self, ProbeError> {
        stream.set_nodelay(true).locally("setting TCP_NODELAY")?;
        notice_vanished(&stream).locally("setting keepalive")?;
        stream
            .set_write_timeout(Some(SLICE))
            .and_then(|()| stream.set_read_timeout(Some(SLICE)))
            .locally("setting a time-out")?;
        Ok(Self {
            stream,
            stop,
            receive_bytes_max,
        })
    }

    /// A message, all of it soon.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), ProbeError> {
        self.send_within(message, PATIENCE)
    }

    /// A message, whole by the end of `patience`: who takes it in drips must not
    /// hold us for ever.
    pub(crate) fn send_within(
        &mut self,
        message: &impl Serialize,
        patience: Duration,
    ) -> Result<(), ProbeError> {
        let text =
            serde_json::to_vec(message).map_err(|error| ProbeError::protocol(error.to_string()))?;
        let length = u32::try_from(text.len())
            .map_err(|_| ProbeError::protocol("a message of ours is too long"))?;
        let bytes = [&length.to_be_bytes()[..], &text].concat();
        self.write_within(&bytes, patience)
    }

    fn write_within(&mut self, mut bytes: &[u8], patience: Duration) -> Result<(), ProbeError> {
        let during = "sending a message";
        let end = Instant::now() + patience;
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero).lost_while(during),
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                // Who stops still says why, where that needs no waiting.
                Err(error) if is_slice_over(&error) => self.check_stop()?,
                Err(error) => return Err(error).lost_while(during),
            }
            if !bytes.is_empty() && Instant::now() >= end {
                return Err(ProbeError::Silent {
                    seconds: patience.as_secs(),
                    during: during.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The next message, whole by the end of `patience`.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
        during: &str,
        patience: Duration,
    ) -> Result<T, ProbeError> {
        let end = Instant::now() + patience;
        let silent = || ProbeError::Silent {
            seconds: patience.as_secs(),
            during: during.to_owned(),
        };
        let mut length = [0; 4];
        self.read_exact(&mut length, end, during, silent)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > self.receive_bytes_max {
            let most = self.receive_bytes_max;
            return Err(ProbeError::protocol(format!(
                "it announces a message of {length} bytes; at most {most} are allowed"
            )));
        }
        // Memory grows with what arrives, not with what is announced.
        let mut text = Vec::new();
        let mut piece = [0; 16 << 10];
        while text.len() < length {
            let wanted = piece.len().min(length - text.len());
            let (wanted, _) = piece.split_at_mut(wanted);
            self.read_exact(wanted, end, during, silent)?;
            text.extend_from_slice(wanted);
        }
        read_message(&text)
    }

    /// The operator has asked to stop.
    pub(crate) fn check_stop(&self) -> Result<(), ProbeError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(ProbeError::Interrupted),
            false => Ok(()),
        }
    }

    /// Bytes as they are, for another protocol.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ProbeError> {
        self.write_within(bytes, PATIENCE)
    }

    /// A single byte; `None` when patience is over.
    pub(crate) fn poll_byte(
        &mut self,
        during: &str,
        patience: Duration,
    ) -> Result<Option<u8>, ProbeError> {
        let mut byte = [0];
        let silent = || ProbeError::Silent {
            seconds: patience.as_secs(),
            during: during.to_owned(),
        };
        match self.read_exact(&mut byte, Instant::now() + patience, during, silent) {
            Ok(()) => Ok(byte.first().copied()),
            Err(ProbeError::Silent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next byte, which stays to be read; `None` where nothing comes any more.
    pub(crate) fn peek_byte(
        &self,
        during: &str,
        patience: Duration,
    ) -> Result<Option<u8>, ProbeError> {
        let (end, mut byte) = (Instant::now() + patience, [0]);
        while Instant::now() < end {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            match self.stream.peek(&mut byte) {
                Ok(got) => return Ok(byte.first().copied().filter(|_| got > 0)),
                Err(error) if is_slice_over(&error) => {}
                Err(error) => return Err(error).lost_while(during),
            }
        }
        Err(ProbeError::Silent {
            seconds: patience.as_secs(),
            during: during.to_owned(),
        })
    }

    /// As many bytes as fit, soon.
    pub(crate) fn read_whole(&mut self, wanted: &mut [u8], during: &str) -> Result<(), ProbeError> {
        let silent = || ProbeError::Silent {
            seconds: PATIENCE.as_secs(),
            during: during.to_owned(),
        };
        self.read_exact(wanted, Instant::now() + PATIENCE, during, silent)
    }

    fn read_exact(
        &self,
        mut wanted: &mut [u8],
        end: Instant,
        during: &str,
        silent: impl Fn() -> ProbeError,
    ) -> Result<(), ProbeError> {
        while !wanted.is_empty() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            if Instant::now() >= end {
                return Err(silent());
            }
            match (&self.stream).read(wanted) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof).lost_while(during),
                Ok(got) => wanted = wanted.get_mut(got..).unwrap_or_default(),
                Err(error) if is_slice_over(&error) => {}
                Err(error) => return Err(error).lost_while(during),
            }
        }
        Ok(())
    }

    /// Nothing comes any more, and nothing is waited for.
    pub(crate) fn close(&self) {
        // Where it is closed already there is nothing to do.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Nothing comes any more; waits for a while until the other end has
    /// closed, too.
    pub(crate) fn end(&mut self, patience: Duration) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let end = Instant::now() + patience;
        while Instant::now() < end && matches!(self.poll_byte("ending", patience), Ok(Some(_))) {}
    }

    /// Whether the other end has closed; what it sent meanwhile stays unread.
    pub(crate) fn is_gone(&self) -> bool {
        let mut byte = [0];
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = self.stream.peek(&mut byte);
        let back = self.stream.set_nonblocking(false);
        match seen {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != ErrorKind::WouldBlock || back.is_err(),
        }
    }
}

/// Ends the connection when the other host is gone without a word, switched off or cut off: nothing else would tell, for a test
/// may be silent here for an hour while it floods the circuit.
fn notice_vanished(stream: &TcpStream) -> std::io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 2);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(VANISHED))
}

/// Whether a read ended because its slice of patience is over.
pub(crate) fn is_slice_over(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        (
            far,
            Control::new(near, Arc::default(), REQUEST_BYTES_MAX).unwrap(),
        )
    }

    #[test]
    fn greetings_come_back_and_others_are_refused() {
        for purpose in [Purpose::Control, Purpose::Stream(513), Purpose::Echo] {
            let token = [7; 16];
            let greeting = Greeting { purpose, token };
            assert_eq!(Greeting::read(&greeting.to_bytes()), Some(greeting));
        }
        assert_eq!(Greeting::read(&[b'a'; 24]), None);
        assert_eq!(Greeting::read(&[0; 24]), None);
    }

    #[test]
    fn messages_come_back() {
        let (mut far, mut control) = pair();
        let text = br#"{"request":"hello","version":1}"#;
        far.write_all(&(text.len() as u32).to_be_bytes()).unwrap();
        far.write_all(text).unwrap();
        let request: Request = control.receive("testing", PATIENCE).unwrap();
        assert_eq!(request, Request::Hello { version: 1 });
        far.write_all(b"\x09").unwrap();
        for _ in 0..2 {
            assert_eq!(control.peek_byte("testing", PATIENCE).unwrap(), Some(9));
        }
        assert_eq!(control.poll_byte("testing", PATIENCE).unwrap(), Some(9));
        let silent = control.peek_byte("testing", Duration::ZERO).unwrap_err();
        assert_eq!(silent.code(), "silent");
        assert!(!control.is_gone());
        drop(far);
        assert_eq!(control.peek_byte("testing", PATIENCE).unwrap(), None);
        assert!(control.is_gone());
    }

    #[test]
    fn what_is_absurd_is_refused_at_once() {
        for (sent, expected) in [
            (&b"\xff\xff\xff\xff"[..], "4294967295 bytes"),
            (b"\0\0\0\x02{]", "a message is wrong"),
            (b"\0\0\0\x02[]", "a message is wrong"),
            (
                b"\0\0\0\x1e{\"request\":\"hello\",\"version\":1",
                "a message is wrong",
            ),
            (b"\0\0\0\x00", "a message is wrong"),
        ] {
            let (mut far, control) = pair();
            far.write_all(sent).unwrap();
            let error = control.receive::<Request>("testing", PATIENCE).unwrap_err();
            assert_eq!(error.code(), "protocol", "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn who_takes_a_message_in_drips_does_not_get_to_its_end() {
        let (mut far, mut control) = pair();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut drip = [0; 16 << 10];
                while !over.load(Ordering::Relaxed) && far.read(&mut drip).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let begin = Instant::now();
            let long = "x".repeat(64 << 20);
            let error = control.send_within(&long, Duration::from_secs(1));
            over.store(true, Ordering::Relaxed);
            assert_eq!(error.unwrap_err().code(), "silent");
            assert!(begin.elapsed() < Duration::from_secs(20));
        });
    }

    #[test]
    fn a_message_that_nobody_takes_ends_when_the_operator_stops() {
        let (_far, mut control) = pair();
        control.stop.store(true, Ordering::Relaxed);
        control.send(&"what has room is sent").unwrap();
        let error = control.send(&"x".repeat(64 << 20)).unwrap_err();
        assert_eq!(error.code(), "interrupted");
    }

    #[test]
    fn silence_ends_and_so_does_a_message_cut_short() {
        let (mut far, control) = pair();
        far.write_all(b"\0\0\0\x09{").unwrap();
        let patience = Duration::from_millis(300);
        let error = control.receive::<Request>("testing", patience).unwrap_err();
        assert_eq!(error.code(), "silent");
        far.write_all(b"\0\0").unwrap();
        drop(far);
        let error = control.receive::<Request>("testing", PATIENCE).unwrap_err();
        assert_eq!(error.code(), "lost");
    }
}
