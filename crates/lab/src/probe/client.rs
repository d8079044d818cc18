//! The near end: connects, asks, measures, and brings both views together.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::clock::now_ns;
use super::datagram_flow::{FlowCount, FlowPlan, Header, Kind, receive_flow, send_flow};
use super::datagram_socket::{DatagramSocket, at_port};
use super::error::{ProbeError, While, harmless};
use super::host::HostFacts;
use super::iperf3::State;
use super::message::{
    ANSWER_BYTES_MAX, Answer, CONTROL_MSS_BYTES, Control, Greeting, PATIENCE, Purpose, Request,
    SLICE, Token, VERSION,
};
use super::observe::{FlowResult, TcpResult};
use super::tcp_test::{StreamEnd, TcpPlan, Worker};

/// How long a connection may take.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long our first datagram may take to arrive: less than the server waits for it, which could only refuse the test.
const KNOCK_PATIENCE: Duration = Duration::from_secs(8);
/// How long a server may take to end a session.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How long a server that is being ended may take to say so where its clients listen.
const PARTING_PATIENCE: Duration = Duration::from_secs(2);
/// Clock readings of which the quickest counts.
const CLOCK_READINGS: usize = 8;

/// A session with a server.
#[derive(Debug)]
pub struct Client {
    control: Control,
    server: SocketAddr,
    stop: Arc<AtomicBool>,
    pub(crate) token: Token,
    pub(crate) echo_port: u16,
    local: SocketAddr,
    /// How far the server's monotonic clock is ahead of ours.
    clock_ahead_ns: i64,
    /// Quickest round trip of the control connection.
    pub(crate) control_rtt_ns: u64,
    /// The server's settings.
    pub server_host: HostFacts,
    /// Other clients the server had when we came.
    pub other_sessions: u32,
    /// Largest segment of the streams to come, where large packets do not pass.
    pub stream_mss_bytes: Option<u16>,
}

/// The first address of a name that somebody answers at.
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ProbeError> {
    let unknown = |why: String| ProbeError::UnknownHost {
        target: host.to_owned(),
        why,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<_> = (bare, port)
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?
        .collect();
    match addresses.is_empty() {
        true => Err(unknown("it has no address".to_owned())),
        false => Ok(addresses),
    }
}

impl Client {
    /// Connects to the first address that answers, and greets.
    pub fn connect(host: &str, port: u16, stop: Arc<AtomicBool>) -> Result<Self, ProbeError> {
        let mut trouble = None;
        for server in resolve(host, port)? {
            match open(server, Some(CONTROL_MSS_BYTES), 0) {
                Ok(stream) => return Self::greet(stream, server, stop),
                Err(source) => {
                    let target = server.to_string();
                    trouble.get_or_insert(ProbeError::Unreachable { target, source });
                }
            }
            // To wait for nobody takes seconds for each address.
            if stop.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
        }
        Err(trouble.unwrap_or(ProbeError::Interrupted))
    }

    fn greet(
        stream: TcpStream,
        server: SocketAddr,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, ProbeError> {
        let greeting = Greeting {
            purpose: Purpose::Control,
            token: [0; 16],
        };
        let local = stream.local_addr().locally("reading an address")?;
        write(&stream, &greeting.to_bytes())?;
        let mut control = Control::new(stream, Arc::clone(&stop), ANSWER_BYTES_MAX)?;
        control.send(&Request::Hello { version: VERSION })?;
        // It has the same port, and takes our greeting for a cookie. No message
        // of ours is so long that its length begins so.
        let during = "waiting for the server's greeting";
        if control.peek_byte(during, PATIENCE)? == Some(State::ParamExchange.byte()) {
            let why = "it is an iperf3 server: test with `farhaul probe iperf3` or `farhaul probe campaign --iperf3`, or start `farhaul probe serve` there";
            return Err(ProbeError::protocol(why));
        }
        match control.receive(during, PATIENCE)? {
            Answer::Welcome {
                token,
                echo_port,
                host,
                other_sessions,
                ..
            } => {
                let mut client = Self {
                    control,
                    server,
                    local,
                    stop,
                    token,
                    echo_port,
                    clock_ahead_ns: 0,
                    control_rtt_ns: u64::MAX,
                    server_host: host.of_another(),
                    other_sessions,
                    stream_mss_bytes: None,
                };
                client.compare_clocks()?;
                Ok(client)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Address of the server.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    pub(crate) fn check_stop(&self) -> Result<(), ProbeError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(ProbeError::Interrupted),
            false => Ok(()),
        }
    }

    /// Our address for sockets towards the server. With several the system may choose another one for datagrams than it chose for
    /// the connection, and they would be a stranger's.
    pub(crate) fn local_address(&self) -> SocketAddr {
        at_port(self.local, 0)
    }

    fn compare_clocks(&mut self) -> Result<(), ProbeError> {
        for _ in 0..CLOCK_READINGS {
            let before = now_ns();
            self.control.send(&Request::Clock)?;
            let Answer::Clock { at_ns } = self.control.receive("comparing clocks", PATIENCE)?
            else {
                return Err(ProbeError::protocol("it does not tell the time"));
            };
            let rtt_ns = now_ns() - before;
            if rtt_ns < self.control_rtt_ns {
                self.control_rtt_ns = rtt_ns;
                self.clock_ahead_ns = at_ns.wrapping_sub(before + rtt_ns / 2).cast_signed();
            }
        }
        Ok(())
    }

    /// A TCP test, watched at both ends.
    pub fn tcp(&mut self, plan: &TcpPlan) -> Result<TcpResult, ProbeError> {
        plan.check().map_err(ProbeError::Usage)?;
        let mut plan = plan.clone();
        plan.mss_bytes = plan.mss_bytes.or(self.stream_mss_bytes);
        self.control.send(&Request::Tcp(plan.clone()))?;
        self.expect_ready()?;
        let over = AtomicBool::new(false);
        let workers: Result<Vec<_>, ProbeError> = (0..plan.connections())
            .map(|number| {
                let stream = self.open_stream(&plan, number);
                let stream = stream.map_err(|error| self.why_lost(error))?;
                Worker::new(&plan, &over, stream, number, false).locally("setting up a stream")
            })
            .collect();
        let workers = workers?;
        let patience = PATIENCE + 2 * Duration::from_millis(plan.duration_ms);
        match self
            .control
            .receive("waiting for the test to begin", PATIENCE)?
        {
            Answer::Go => {}
            other => return Err(unexpected(other)),
        }
        let (answer, client) = thread::scope(|scope| {
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(move || worker.run()))
                .collect();
            let answer = self.control.receive("a TCP test was running", patience);
            // Interrupted, or the server is gone or breaks it off: nothing goes on without it.
            let is_done = matches!(answer, Ok(Answer::TcpDone { .. }));
            over.store(!is_done, Ordering::Relaxed);
            self.watch(&over, || threads.iter().all(ScopedJoinHandle::is_finished));
            let ends: Vec<StreamEnd> = threads
                .into_iter()
                .flat_map(ScopedJoinHandle::join)
                .collect();
            (answer, ends)
        });
        let answer = answer?;
        self.check_stop()?;
        match answer {
            Answer::TcpDone {
                mut streams,
                other_sessions,
            } => {
                streams
                    .iter_mut()
                    .for_each(|stream| stream.shift(self.clock_ahead_ns));
                let whole = none_was_cut(client.iter().chain(&streams));
                let result = TcpResult::of(plan, client, streams, other_sessions)?;
                whole.map(|()| result)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Waits for what is left of a test: a server may say long before that it is
    /// over, and the operator has the last word.
    fn watch(&self, over: &AtomicBool, is_finished: impl Fn() -> bool) {
        while !is_finished() {
            if self.stop.load(Ordering::Relaxed) {
                over.store(true, Ordering::Relaxed);
            }
            thread::sleep(SLICE / 50);
        }
    }

    /// Why a connection beside the control connection was lost: a server that is
    /// being ended says so on that one.
    pub(crate) fn why_lost(&self, error: ProbeError) -> ProbeError {
        if !matches!(error, ProbeError::Lost { .. }) {
            return error;
        }
        let during = "a connection was lost";
        match self.control.receive(during, PARTING_PATIENCE) {
            Ok(answer @ Answer::Refused { .. }) => unexpected(answer),
            Err(ProbeError::Interrupted) => ProbeError::Interrupted,
            _ => error,
        }
    }

    /// Ends the session, and waits until the server has done so: it would count
    /// as another client of the next one.
    pub fn end(mut self) {
        self.control.end(END_PATIENCE);
    }

    fn open_stream(&self, plan: &TcpPlan, number: u16) -> Result<TcpStream, ProbeError> {
        self.check_stop()?;
        let mss = plan.mss_bytes.map(u32::from);
        let stream = open(self.server, mss, plan.tos).lost_while("opening a stream")?;
        let greeting = Greeting {
            purpose: Purpose::Stream(number),
            token: self.token,
        };
        write(&stream, &greeting.to_bytes())?;
        Ok(stream)
    }

    /// A connection whose bytes all come back.
    pub(crate) fn open_echo(&self) -> Result<TcpStream, ProbeError> {
        let mss = Some(CONTROL_MSS_BYTES);
        let stream = open(self.server, mss, 0).lost_while("opening a connection")?;
        let greeting = Greeting {
            purpose: Purpose::Echo,
            token: self.token,
        };
        write(&stream, &greeting.to_bytes())?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(SLICE)))
            .locally("setting up a connection")?;
        Ok(stream)
    }

    fn expect_ready(&mut self) -> Result<u16, ProbeError> {
        match self
            .control
            .receive("waiting for the server to be ready", PATIENCE)?
        {
            Answer::Ready { port } => Ok(port),
            other => Err(unexpected(other)),
        }
    }

    /// A UDP test.
    pub fn datagrams(&mut self, plan: &FlowPlan) -> Result<FlowResult, ProbeError> {
        plan.check().map_err(ProbeError::Usage)?;
        self.control.send(&Request::Datagrams(*plan))?;
        let port = self.expect_ready()?;
        let to = at_port(self.server, port);
        let socket =
            DatagramSocket::bind(self.local_address(), SLICE).locally("opening a UDP socket")?;
        self.knock(&socket, to)?;
        let patience = PATIENCE + 2 * Duration::from_nanos(plan.duration_ns());
        let (token, over) = (self.token, AtomicBool::new(false));
        let (answer, sent, count) = thread::scope(|scope| {
            let up = plan.direction.has_up();
            let sender = up.then(|| scope.spawn(|| send_flow(plan, token, &socket, to, &over)));
            let receive = || receive_flow(plan, token, &socket, to.ip(), &over);
            let receiver = plan.direction.has_down().then(|| scope.spawn(receive));
            let answer: Result<Answer, _> =
                self.control.receive("a UDP test was running", patience);
            let is_done = matches!(answer, Ok(Answer::DatagramsDone { .. }));
            over.store(!is_done, Ordering::Relaxed);
            self.watch(&over, || is_finished(&sender) && is_finished(&receiver));
            (answer, join(sender), join(receiver))
        });
        let answer = answer?;
        self.check_stop()?;
        match answer {
            Answer::DatagramsDone {
                sent: sent_down,
                count: count_up,
                other_sessions,
            } => {
                let sent_up = sent.transpose().locally("sending datagrams")?.unwrap_or(0);
                let count_down = count.transpose().locally("receiving datagrams")?;
                Ok(FlowResult {
                    plan: *plan,
                    up: count_up.map(|count| (sent_up, *count).into()),
                    down: count_down.map(|count: FlowCount| (sent_down, count).into()),
                    other_sessions,
                })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Shows the server where our datagrams come from until it says so.
    fn knock(&mut self, socket: &DatagramSocket, to: SocketAddr) -> Result<(), ProbeError> {
        let mut datagram = [0; Header::BYTES];
        let header = Header {
            token: self.token,
            kind: Kind::Open,
            tos: 0,
            bytes: 0,
            sequence: 0,
            sent_ns: 0,
        };
        header.write(&mut datagram);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let knocking = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = socket.send_to(&datagram, to);
                    thread::park_timeout(SLICE / 2);
                }
            });
            let answer = self.control.receive(
                "the server waited for the first datagram: UDP does not get through",
                KNOCK_PATIENCE,
            );
            done.store(true, Ordering::Relaxed);
            // At once: datagrams that come before somebody reads them have no
            // time of their own.
            knocking.thread().unpark();
            match answer? {
                Answer::Go => Ok(()),
                other => Err(unexpected(other)),
            }
        })
    }
}

fn is_finished<T>(thread: &Option<ScopedJoinHandle<'_, T>>) -> bool {
    thread.as_ref().is_none_or(ScopedJoinHandle::is_finished)
}

fn join<T>(thread: Option<ScopedJoinHandle<'_, io::Result<T>>>) -> Option<io::Result<T>> {
    let joined = thread?.join();
    Some(joined.unwrap_or_else(|_| Err(io::Error::other("a thread of the test died"))))
}

/// A stream that ended before its time has no rate: what its bytes would be
/// divided by is not the test's.
fn none_was_cut<'a>(ends: impl Iterator<Item = &'a StreamEnd>) -> Result<(), ProbeError> {
    let cut = ends
        .filter_map(|end| Some((end, end.error.as_ref()?)))
        .next();
    let Some((end, why)) = cut else {
        return Ok(());
    };
    let way = if end.goes_up { "up" } else { "down" };
    Err(ProbeError::Lost {
        during: format!("a TCP stream carried data {way}"),
        source: io::Error::other(harmless(why)),
    })
}

fn unexpected(answer: Answer) -> ProbeError {
    match answer {
        Answer::Refused { why } => ProbeError::Refused {
            why: harmless(&why),
        },
        _ => ProbeError::protocol("it answers something else than was asked"),
    }
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<(), ProbeError> {
    io::Write::write_all(&mut stream, bytes).lost_while("greeting the server")
}

fn open(server: SocketAddr, mss_bytes: Option<u32>, tos: u8) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(server),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if let Some(mss) = mss_bytes {
        // Heard by both ends: the SYN carries it.
        socket.set_tcp_mss(mss)?;
    }
    if tos != 0 {
        match server {
            SocketAddr::V4(_) => socket.set_tos_v4(tos.into())?,
            SocketAddr::V6(_) => socket.set_tclass_v6(tos.into())?,
        }
    }
    socket.connect_timeout(&server.into(), CONNECT_PATIENCE)?;
    SockRef::from(&socket).set_nonblocking(false)?;
    reaches_another(socket.into())
}

/// The connection, if another socket accepted it: where nothing listens on a
/// port of this host's ephemeral range, the kernel may pick that same port to
/// call from, and the socket meets itself (simultaneous open, RFC 9293, 3.5).
///
/// # Errors
/// [`io::ErrorKind::ConnectionRefused`], which is what the caller would have
/// been told with any other port.
pub(crate) fn reaches_another(stream: TcpStream) -> io::Result<TcpStream> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(io::ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_socket_that_met_itself_was_refused() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        socket.connect(&socket.local_addr().unwrap()).unwrap();
        let refused = reaches_another(socket.into()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(reaches_another(other).is_ok());
    }

    /// A name may have many addresses at which nobody answers.
    #[test]
    fn who_is_stopped_while_connecting_tries_no_other_address() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        for (is_stopped, code) in [(false, "unreachable"), (true, "interrupted")] {
            let stop = Arc::new(AtomicBool::new(is_stopped));
            let error = Client::connect("127.0.0.1", port, stop).unwrap_err();
            assert_eq!(error.code(), code);
        }
    }
}
