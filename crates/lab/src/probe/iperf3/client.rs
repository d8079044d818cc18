//! Our client against an iperf3 server.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::stream::{self, Course, Ended};
use super::{Cookie, Params, Results, State, StreamCount, goes_up, new_cookie, stream_id, udp};
use crate::probe::client::{CONNECT_PATIENCE, reaches_another, resolve};
use crate::probe::datagram_flow::check_rate;
use crate::probe::error::{ProbeError, While};
use crate::probe::message::{Control, PATIENCE, SLICE};
use crate::probe::socket_state::TcpState;
use crate::probe::tcp_test::Direction;

/// Segments that Linux makes (`TCP_MIN_MSS`) and iperf3 takes (`MAX_MSS`).
const MSS_BYTES: RangeInclusive<u16> = 88..=9216;
/// iperf3's `MAX_TCP_BUFFER`.
const WINDOW_BYTES_MAX: u32 = 512 << 20;

/// Longest results of a server: iperf3 takes some 200 bytes for each stream.
const RESULTS_BYTES_MAX: usize = 1 << 20;

/// A test with an iperf3 server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Plan {
    /// Which way.
    pub direction: Direction,
    /// Streams each way.
    pub streams: u16,
    /// How long it counts, seconds.
    pub duration_s: u64,
    /// Seconds before that which do not count.
    pub omit_s: u64,
    /// Datagrams in place of TCP.
    pub udp: bool,
    /// Payload rate of each stream, bit/s; null is as fast as possible.
    pub bit_per_s: Option<u64>,
    /// Buffers of both ends, bytes.
    pub window_bytes: Option<u32>,
    /// Largest segment.
    pub mss_bytes: Option<u16>,
    /// Payload of a write or a datagram; null is iperf3's.
    pub block_bytes: Option<u32>,
}

impl Iperf3Plan {
    fn params(&self) -> Params {
        // A server takes a length of 0 as it is, and fails.
        let length = self.block_bytes.map_or(0, u64::from);
        let mut params = Params {
            tcp: (!self.udp).then_some(true),
            udp: self.udp.then_some(true),
            omit: self.omit_s,
            time: self.duration_s,
            parallel: self.streams.into(),
            reverse: (self.direction == Direction::Down).then_some(true),
            bidirectional: (self.direction == Direction::Both).then_some(true),
            window: self.window_bytes.map(u64::from),
            mss: self.mss_bytes.map(u64::from),
            len: length,
            bandwidth: self.bit_per_s.unwrap_or(0),
            udp_counters_64bit: self.udp.then_some(1),
            pacing_timer: 1000,
            client_version: Some("3.12".to_owned()),
            ..Params::default()
        };
        params.len = params.block_bytes() as u64;
        params
    }

    /// Says what cannot be done.
    pub fn check(&self) -> Result<(), String> {
        if self.duration_s == 0 {
            return Err("a test takes at least 1 s".to_owned());
        }
        if self.block_bytes == Some(0) {
            return Err("a write or a datagram has at least 1 byte".to_owned());
        }
        if self.mss_bytes.is_some_and(|mss| !MSS_BYTES.contains(&mss)) {
            let (least, most) = (*MSS_BYTES.start(), *MSS_BYTES.end());
            return Err(format!(
                "a largest segment has between {least} and {most} bytes"
            ));
        }
        let windows = 1..=WINDOW_BYTES_MAX;
        if self
            .window_bytes
            .is_some_and(|window| !windows.contains(&window))
        {
            return Err(format!(
                "a window has between 1 and {WINDOW_BYTES_MAX} bytes"
            ));
        }
        let params = self.params();
        params
            .check()
            .map_err(|what| format!("iperf3 has no {what}"))?;
        match (self.udp, self.bit_per_s) {
            (true, Some(bit_per_s)) => check_rate(
                params.block_bytes() as u32,
                bit_per_s as f64,
                self.duration_s as f64,
            ),
            _ => Ok(()),
        }
    }
}

/// One stream, as both ends counted it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Stream {
    /// The sender's figures.
    pub sender: StreamCount,
    /// The receiver's.
    pub receiver: StreamCount,
    /// Our end as our kernel had it at the end; null for UDP.
    pub state: Option<TcpState>,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Way {
    /// Payload that left, all streams, bit/s.
    pub sent_bit_per_s: Option<f64>,
    /// Payload that arrived, all streams, bit/s.
    pub received_bit_per_s: Option<f64>,
    /// Datagrams that did not come.
    pub lost: i64,
    /// Datagrams, as the receiver numbers them.
    pub packets: u64,
    /// Every stream.
    pub streams: Vec<Iperf3Stream>,
}

/// The whole test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Result {
    /// What was asked for.
    pub plan: Iperf3Plan,
    /// From client to server.
    pub up: Option<Iperf3Way>,
    /// From server to client.
    pub down: Option<Iperf3Way>,
}

impl Iperf3Result {
    /// Whether something arrived in each direction that was tested.
    pub(crate) fn carried(&self) -> Result<(), ProbeError> {
        let arrived = |way: &Iperf3Way| way.streams.iter().any(|stream| stream.receiver.bytes > 0);
        ProbeError::unless_carried(
            self.up.as_ref().map(arrived),
            self.down.as_ref().map(arrived),
        )
    }
}

impl Iperf3Way {
    fn of(streams: Vec<Iperf3Stream>) -> Option<Self> {
        let sum = |of: fn(&Iperf3Stream) -> &StreamCount| {
            let rates = streams.iter().map(|stream| of(stream).bit_per_s());
            rates.sum::<Option<f64>>()
        };
        let receivers = || streams.iter().map(|stream| stream.receiver);
        let way = Self {
            sent_bit_per_s: sum(|stream| &stream.sender),
            received_bit_per_s: sum(|stream| &stream.receiver),
            lost: receivers().fold(0, |lost, one| lost.saturating_add(one.errors)),
            packets: receivers().fold(0, |all, one| all.saturating_add(one.packets)),
            streams: Vec::new(),
        };
        (!streams.is_empty()).then_some(Self { streams, ..way })
    }
}

/// Puts our counts beside those of the server, which are foreign.
fn beside(plan: &Iperf3Plan, ours: &[Ended], theirs: &Results) -> Result<Iperf3Result, ProbeError> {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    // Streams of ours that failed have ended the test before.
    for (nth, Ended { count, state }) in ours.iter().enumerate() {
        let their_count = theirs
            .streams
            .iter()
            .find(|stream| stream.id == count.id)
            .ok_or_else(|| ProbeError::protocol("its results lack one of the streams"))?;
        let (sender, receiver, way) = match goes_up(plan.direction, plan.streams.into(), nth) {
            true => (*count, *their_count, &mut up),
            false => (*their_count, *count, &mut down),
        };
        way.push(Iperf3Stream {
            sender,
            receiver,
            state: *state,
        });
    }
    Ok(Iperf3Result {
        plan: plan.clone(),
        up: Iperf3Way::of(up),
        down: Iperf3Way::of(down),
    })
}

/// A connection for data.
enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Tests with the iperf3 server of a host.
pub fn run(
    host: &str,
    port: u16,
    plan: &Iperf3Plan,
    stop: Arc<AtomicBool>,
) -> Result<Iperf3Result, ProbeError> {
    run_when_free(host, port, plan, stop, Duration::ZERO)
}

/// The same with a server that may not be ready yet after another test: it is
/// asked again, for as long as `patience`, before the test begins.
pub fn run_when_free(
    host: &str,
    port: u16,
    plan: &Iperf3Plan,
    stop: Arc<AtomicBool>,
    patience: Duration,
) -> Result<Iperf3Result, ProbeError> {
    plan.check().map_err(ProbeError::Usage)?;
    let end = Instant::now() + patience;
    loop {
        let may_pass = match Test::begin(host, port, plan, Arc::clone(&stop)) {
            Ok(mut test) => return test.run(),
            Err(error) => error,
        };
        let is_passing = matches!(
            may_pass,
            ProbeError::NoIperf3 { .. } | ProbeError::Refused { .. } | ProbeError::Lost { .. }
        );
        if !is_passing || Instant::now() >= end || stop.load(Ordering::Relaxed) {
            return Err(may_pass);
        }
        thread::sleep(SLICE / 2);
    }
}

fn connect(
    host: &str,
    port: u16,
    stop: &AtomicBool,
) -> Result<(SocketAddr, TcpStream), ProbeError> {
    let mut trouble = None;
    for server in resolve(host, port)? {
        match TcpStream::connect_timeout(&server, CONNECT_PATIENCE).and_then(reaches_another) {
            Ok(stream) => return Ok((server, stream)),
            Err(source) => {
                let target = server.to_string();
                trouble.get_or_insert(ProbeError::NoIperf3 { target, source });
            }
        }
        // To wait for nobody takes seconds for each address.
        if stop.load(Ordering::Relaxed) {
            return Err(ProbeError::Interrupted);
        }
    }
    Err(trouble.unwrap_or(ProbeError::Interrupted))
}

struct Test<'a> {
    plan: &'a Iperf3Plan,
    server: SocketAddr,
    cookie: Cookie,
    control: Control,
}

impl<'a> Test<'a> {
    /// As far as the server says that it is this test's turn.
    fn begin(
        host: &str,
        port: u16,
        plan: &'a Iperf3Plan,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, ProbeError> {
        let (server, stream) = connect(host, port, &stop)?;
        let mut test = Self {
            plan,
            server,
            cookie: new_cookie()?,
            control: Control::new(stream, stop, RESULTS_BYTES_MAX)?,
        };
        let cookie = test.cookie;
        test.control.write(&cookie)?;
        test.expect(State::ParamExchange)?;
        Ok(test)
    }

    fn run(&mut self) -> Result<Iperf3Result, ProbeError> {
        self.control.send(&self.plan.params())?;
        self.expect(State::CreateStreams)?;
        let each_way: usize = self.plan.streams.into();
        let streams = match self.plan.direction {
            Direction::Both => each_way * 2,
            _ => each_way,
        };
        let carriers: Result<Vec<_>, _> = (0..streams).map(|_| self.open()).collect();
        let carriers = carriers?;
        self.expect(State::TestStart)?;
        self.expect(State::TestRunning)?;
        self.measure(carriers)
    }

    fn measure(&mut self, carriers: Vec<Carrier>) -> Result<Iperf3Result, ProbeError> {
        let course = Course::begin(self.plan.omit_s);
        let (plan, streams) = (self.plan, carriers.len());
        thread::scope(|scope| {
            let course = &course;
            let threads: Vec<_> = carriers
                .into_iter()
                .enumerate()
                .map(|(nth, carrier)| scope.spawn(move || carry(plan, nth, carrier, course)))
                .collect();
            let outcome = self.wait_and_exchange(course, streams);
            course.stop();
            let ended: io::Result<Vec<()>> = threads
                .into_iter()
                .flat_map(ScopedJoinHandle::join)
                .collect();
            // An error of the control connection says more than one of a stream.
            let (ours, theirs) = outcome?;
            ended.lost_while("an iperf3 test was running")?;
            beside(plan, &ours, &theirs)
        })
    }

    fn wait_and_exchange(
        &mut self,
        course: &Course,
        streams: usize,
    ) -> Result<(Vec<Ended>, Results), ProbeError> {
        let time = Duration::from_secs(self.plan.duration_s + self.plan.omit_s);
        if let Some(byte) = self.control.poll_byte("a test was running", time)? {
            return Err(self.unexpected(byte));
        }
        let ours = course.counts_of(streams);
        self.control.write(&[State::TestEnd.byte()])?;
        self.expect(State::ExchangeResults)?;
        let counts = ours.iter().map(|ended| ended.count).collect();
        let sends_tcp = !self.plan.udp && self.plan.direction.has_up();
        self.control.send(&Results::of(counts, sends_tcp, None))?;
        let theirs = self.control.receive("exchanging results", PATIENCE)?;
        self.expect(State::DisplayResults)?;
        self.control.write(&[State::Done.byte()])?;
        Ok((ours, theirs))
    }

    fn expect(&mut self, wanted: State) -> Result<(), ProbeError> {
        let during = "waiting for the iperf3 server";
        match self.control.poll_byte(during, PATIENCE)? {
            Some(byte) if State::of(byte) == Some(wanted) => Ok(()),
            Some(byte) => Err(self.unexpected(byte)),
            None => Err(ProbeError::Silent {
                seconds: PATIENCE.as_secs(),
                during: during.to_owned(),
            }),
        }
    }

    fn unexpected(&mut self, byte: u8) -> ProbeError {
        let refused = |why: &str| ProbeError::Refused {
            why: why.to_owned(),
        };
        match State::of(byte) {
            Some(State::AccessDenied) => refused("it is busy with another test"),
            Some(State::ServerTerminate) => refused("it ends the test"),
            Some(State::ServerError) => {
                let mut code = [0; 8];
                let read = self.control.read_whole(&mut code, "reading its error");
                let code = read.ok().and_then(|()| code.first_chunk().copied());
                let number = code.map_or(-1, i32::from_be_bytes);
                refused(&format!("it reports iperf3's error {number}"))
            }
            _ => ProbeError::protocol(format!("it says {byte} out of turn")),
        }
    }

    fn open(&self) -> Result<Carrier, ProbeError> {
        const DURING: &str = "opening a stream";
        self.control.check_stop()?;
        if !self.plan.udp {
            let stream = self.open_tcp().lost_while(DURING)?;
            return Ok(Carrier::Tcp(stream));
        }
        let socket = self.knock().lost_while(DURING)?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.control.check_stop()?;
            match socket.recv(&mut [0; 64]) {
                Ok(_) => return Ok(Carrier::Udp(socket)),
                Err(error) if udp::is_passing(&error) => {}
                Err(error) => return Err(error).lost_while(DURING),
            }
        }
        Err(ProbeError::Silent {
            seconds: PATIENCE.as_secs(),
            during: format!("{DURING}: UDP does not get through"),
        })
    }

    fn open_tcp(&self) -> io::Result<TcpStream> {
        let domain = Domain::for_address(self.server);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if let Some(bytes) = self.plan.window_bytes {
            // Before the handshake: it decides the scale of windows.
            socket.set_recv_buffer_size(bytes as usize)?;
            socket.set_send_buffer_size(bytes as usize)?;
        }
        if let Some(mss) = self.plan.mss_bytes {
            socket.set_tcp_mss(mss.into())?;
        }
        socket.connect_timeout(&self.server.into(), CONNECT_PATIENCE)?;
        let mut stream = reaches_another(socket.into())?;
        io::Write::write_all(&mut stream, &self.cookie)?;
        Ok(stream)
    }

    /// A stream of datagrams, whose server has not answered yet.
    fn knock(&self) -> io::Result<UdpSocket> {
        let any: SocketAddr = match self.server {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.server)?;
        udp::prepare(&socket)?;
        socket.set_read_timeout(Some(SLICE))?;
        // Said once: said twice it would count as a datagram of the test.
        socket.send(&udp::CONNECT.to_ne_bytes())?;
        Ok(socket)
    }
}

fn carry(plan: &Iperf3Plan, nth: usize, carrier: Carrier, course: &Course) -> io::Result<()> {
    let id = stream_id(nth);
    let sends = goes_up(plan.direction, plan.streams.into(), nth);
    let (block, rate) = (plan.params().block_bytes(), plan.bit_per_s.unwrap_or(0));
    match (carrier, sends) {
        (Carrier::Tcp(stream), true) => stream::send(stream, id, block, rate, course),
        (Carrier::Tcp(stream), false) => stream::receive(stream, id, None, course),
        (Carrier::Udp(socket), true) => udp::send(&socket, id, block, rate, true, course),
        (Carrier::Udp(socket), false) => udp::receive(&socket, id, true, course),
    }
}
