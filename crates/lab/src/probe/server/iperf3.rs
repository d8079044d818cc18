//! One iperf3 client: one test, then it goes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, MutexGuard};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::{Shared, Stream};
use crate::probe::error::{ProbeError, While};
use crate::probe::iperf3::stream::{self, Course};
use crate::probe::iperf3::{Cookie, Params, Results, State, goes_up, stream_id, udp};
use crate::probe::message::{Control, PATIENCE, REQUEST_BYTES_MAX, SLICE};
use crate::probe::socket_state::{
    clamp_window, fix_buffer_for, set_receive_buffer, set_send_buffer,
};
use crate::probe::tcp_test::{DURATION_MAX_MS, Direction};

/// Streams that wait for their test to take them.
const STREAMS_WAITING_MAX: usize = 256;
/// How long a client may take with the next of its UDP streams: others wait for
/// their turn meanwhile.
const OPENING_PATIENCE: Duration = Duration::from_secs(4);
/// How long a client waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(60);
/// Beyond the time a client has announced.
const LATE: Duration = Duration::from_secs(15);
/// iperf3's numbers of what it cannot do: `IEUNIMP`, `IERECVPARAMS`,
/// `IESTREAMCONNECT`.
const NOT_DONE_HERE: i32 = 13;
const NO_PARAMETERS: i32 = 114;
const NO_STREAMS: i32 = 203;

/// Serves a control connection to its end.
pub(super) fn serve(shared: &Arc<Shared>, stream: TcpStream, from: SocketAddr, cookie: Cookie) {
    let local = stream.local_addr();
    let control = Control::new(stream, Arc::clone(&shared.stop), REQUEST_BYTES_MAX);
    let (Ok(local), Ok(mut control)) = (local, control) else {
        return;
    };
    let (sender, streams) = sync_channel(STREAMS_WAITING_MAX);
    if !shared.enlist_iperf3(cookie, sender) {
        let _ = control.write(&[State::AccessDenied.byte()]);
        return;
    }
    let _listed = Listed { shared, cookie };
    let mut test = Test {
        shared,
        control,
        streams: &streams,
        local,
        client: from.ip(),
    };
    // Whoever broke the protocol or went away ends its own test only.
    let _ = test.run();
}

/// Takes a test off the table, whatever happens.
struct Listed<'a> {
    shared: &'a Shared,
    cookie: Cookie,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.shared.clients().iperf3_tests.remove(&self.cookie);
    }
}

/// A connection for data.
enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Carrier {
    /// By its name, for the client's report.
    fn congestion_control(&self) -> Option<String> {
        let Self::Tcp(stream) = self else {
            return None;
        };
        let name = SockRef::from(stream).tcp_congestion().ok()?;
        let name = String::from_utf8_lossy(&name);
        Some(name.trim_end_matches('\0').to_owned())
    }
}

struct Test<'a> {
    shared: &'a Shared,
    control: Control,
    streams: &'a Receiver<Stream<u64>>,
    local: SocketAddr,
    client: IpAddr,
}

impl Test<'_> {
    fn run(&mut self) -> Result<(), ProbeError> {
        self.say(State::ParamExchange)?;
        let params: Params = match self.control.receive("reading parameters", PATIENCE) {
            Ok(params) => params,
            Err(error) => return self.refuse(NO_PARAMETERS, error),
        };
        if let Err(why) = params.check() {
            return self.refuse(NOT_DONE_HERE, ProbeError::protocol(why));
        }
        let carriers = match self.carriers(&params) {
            Ok(carriers) => carriers,
            Err(error) => return self.refuse(NO_STREAMS, error),
        };
        self.say(State::TestStart)?;
        self.say(State::TestRunning)?;
        self.measure(&params, carriers)
    }

    fn say(&mut self, state: State) -> Result<(), ProbeError> {
        self.control.write(&[state.byte()])
    }

    /// The client is told a number of iperf3's, and the system's, which is none.
    fn refuse(&mut self, number: i32, error: ProbeError) -> Result<(), ProbeError> {
        self.say(State::ServerError)?;
        let numbers = [number.to_be_bytes(), 0_i32.to_be_bytes()].concat();
        self.control.write(&numbers)?;
        Err(error)
    }

    fn carriers(&mut self, params: &Params) -> Result<Vec<Carrier>, ProbeError> {
        let each_way = usize::try_from(params.parallel).unwrap_or(usize::MAX);
        let count = match params.direction() {
            Direction::Both => each_way.saturating_mul(2),
            _ => each_way,
        };
        match params.is_udp() {
            true => self.udp_streams(count, params),
            false => self.tcp_streams(count, params),
        }
    }

    /// In the order in which they were accepted: it decides their direction.
    fn tcp_streams(&mut self, count: usize, params: &Params) -> Result<Vec<Carrier>, ProbeError> {
        self.say(State::CreateStreams)?;
        let mut end = Instant::now() + PATIENCE;
        let mut taken: Vec<Stream<u64>> = Vec::new();
        while taken.len() < count {
            match self.streams.recv_timeout(SLICE) {
                Ok(stream) => {
                    taken.push(stream);
                    // They come one after the other, a round trip each.
                    end = Instant::now() + PATIENCE;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ProbeError::Interrupted),
                Err(RecvTimeoutError::Timeout) => self.check(end)?,
            }
        }
        taken.sort_by_key(|(accepted, _)| *accepted);
        let window_bytes = self.shared.options.window_bytes;
        for (_, stream) in &taken {
            prepare(stream, params, window_bytes)
                .and_then(|()| mark(&SockRef::from(stream), self.local, params))
                .locally("setting up a stream")?;
        }
        let streams = taken.into_iter().map(|(_, stream)| Carrier::Tcp(stream));
        Ok(streams.collect())
    }

    fn check(&self, end: Instant) -> Result<(), ProbeError> {
        match self.shared.is_stopping() || self.control.is_gone() {
            true => Err(ProbeError::Interrupted),
            false if Instant::now() > end => Err(ProbeError::Silent {
                seconds: PATIENCE.as_secs(),
                during: "waiting for streams".to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Until no other test opens its UDP streams, as long as the client waits.
    fn udp_turn<'a>(&self, shared: &'a Shared) -> Result<MutexGuard<'a, ()>, ProbeError> {
        let end = Instant::now() + TURN_PATIENCE;
        loop {
            match shared.udp_turn() {
                Some(turn) => return Ok(turn),
                None => self.check(end)?,
            }
            thread::sleep(SLICE / 10);
        }
    }

    /// A first datagram has no cookie: only one test at a time opens its
    /// streams, and only to its client.
    fn udp_streams(&mut self, count: usize, params: &Params) -> Result<Vec<Carrier>, ProbeError> {
        let _turn = self.udp_turn(self.shared)?;
        let mut waiting = udp_socket(self.local).locally("opening a UDP socket")?;
        self.say(State::CreateStreams)?;
        let mut end = Instant::now() + OPENING_PATIENCE;
        let mut carriers = Vec::new();
        let mut buffer = [0; 64];
        while carriers.len() < count {
            // Strangers' datagrams are no reason to wait longer.
            self.check(end)?;
            let (length, from) = match waiting.recv_from(&mut buffer) {
                Ok(got) => got,
                Err(error) if udp::is_passing(&error) => continue,
                Err(error) => return Err(error).lost_while("waiting for a datagram"),
            };
            let datagram = buffer.get(..length).unwrap_or_default();
            if from.ip() != self.client || !udp::opens_stream(datagram) {
                continue;
            }
            end = Instant::now() + OPENING_PATIENCE;
            waiting.connect(from).locally("opening a stream")?;
            // The next client's datagram must find somebody.
            let next = udp_socket(self.local).locally("opening a UDP socket")?;
            let stream = std::mem::replace(&mut waiting, next);
            mark(&SockRef::from(&stream), self.local, params).locally("setting up a stream")?;
            stream
                .send(&udp::ANSWER.to_ne_bytes())
                .lost_while("opening a stream")?;
            carriers.push(Carrier::Udp(stream));
        }
        Ok(carriers)
    }

    fn measure(&mut self, params: &Params, carriers: Vec<Carrier>) -> Result<(), ProbeError> {
        let course = Course::begin(params.omit);
        let streams = carriers.len();
        let congestion_used = carriers.first().and_then(Carrier::congestion_control);
        let own_window = self.shared.options.window_bytes;
        let window_bytes = own_window.filter(|_| params.window.is_none());
        thread::scope(|scope| {
            let course = &course;
            let carry = move |nth, carrier| carry(params, nth, carrier, window_bytes, course);
            let threads: Vec<_> = carriers
                .into_iter()
                .enumerate()
                .map(|(nth, carrier)| scope.spawn(move || carry(nth, carrier)))
                .collect();
            let outcome = self
                .wait(params, &threads)
                .and_then(|()| self.exchange(params, course, streams, congestion_used));
            // Not before: a client takes the end of a stream for trouble.
            if outcome.is_err() && self.shared.is_stopping() {
                let _ = self.say(State::ServerTerminate);
            }
            course.stop();
            outcome
        })
    }

    fn exchange(
        &mut self,
        params: &Params,
        course: &Course,
        streams: usize,
        congestion_used: Option<String>,
    ) -> Result<(), ProbeError> {
        let counts = course.counts_of(streams);
        self.say(State::ExchangeResults)?;
        let _theirs: Results = self.control.receive("exchanging results", PATIENCE)?;
        let sends_tcp = !params.is_udp() && params.direction().has_down();
        let counts = counts.into_iter().map(|ended| ended.count).collect();
        let results = Results::of(counts, sends_tcp, congestion_used);
        self.control.send(&results)?;
        self.say(State::DisplayResults)?;
        // Whether the client says that it is done changes nothing.
        let _ = self.control.poll_byte("waiting for the end", PATIENCE);
        Ok(())
    }

    /// Until the client says that the test is over.
    fn wait<T>(
        &mut self,
        params: &Params,
        threads: &[ScopedJoinHandle<'_, T>],
    ) -> Result<(), ProbeError> {
        let planned = match params.time {
            0 => Duration::from_millis(DURATION_MAX_MS),
            seconds => Duration::from_secs(seconds + params.omit),
        };
        let end = Instant::now() + planned + LATE;
        while Instant::now() < end {
            match self.control.poll_byte("a test was running", SLICE)? {
                Some(byte) if State::of(byte) == Some(State::TestEnd) => return Ok(()),
                Some(byte) if State::of(byte) == Some(State::ClientTerminate) => {
                    return Err(ProbeError::Interrupted);
                }
                Some(_) => return Err(ProbeError::protocol("it speaks out of turn")),
                // A stream that failed ends early; the others go on.
                None if threads.iter().all(ScopedJoinHandle::is_finished) => break,
                None => {}
            }
        }
        self.say(State::ServerTerminate)?;
        Err(ProbeError::Silent {
            seconds: planned.as_secs(),
            during: "waiting for the end of a test".to_owned(),
        })
    }
}

/// `window_bytes` holds where the client does not ask for a window of its own.
fn prepare(stream: &TcpStream, params: &Params, window_bytes: Option<u32>) -> io::Result<()> {
    let socket = SockRef::from(stream);
    if let Some(window) = params.window.and_then(|bytes| u32::try_from(bytes).ok()) {
        set_receive_buffer(stream.as_raw_fd(), window)?;
        set_send_buffer(stream.as_raw_fd(), window)?;
    } else if let Some(window) = window_bytes {
        fix_buffer_for(stream.as_raw_fd(), window)?;
        clamp_window(stream.as_raw_fd(), window)?;
    }
    if params.nodelay == Some(true) {
        stream.set_nodelay(true)?;
    }
    if let Some(mss) = params.mss.and_then(|bytes| u32::try_from(bytes).ok()) {
        socket.set_tcp_mss(mss)?;
    }
    match &params.congestion {
        Some(name) => socket.set_tcp_congestion(name.as_bytes()),
        None => Ok(()),
    }
}

/// The type of service that the client asks for is both ends'.
fn mark(socket: &Socket, local: SocketAddr, params: &Params) -> io::Result<()> {
    let tos = params.tos.and_then(|tos| u8::try_from(tos).ok());
    match (tos.unwrap_or(0), local) {
        (0, _) => Ok(()),
        (tos, SocketAddr::V4(_)) => socket.set_tos_v4(tos.into()),
        (tos, SocketAddr::V6(_)) => socket.set_tclass_v6(tos.into()),
    }
}

/// On the port of the server, beside those of the streams that are open.
fn udp_socket(local: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&local.into())?;
    let socket: UdpSocket = socket.into();
    socket.set_read_timeout(Some(SLICE))?;
    udp::prepare(&socket)?;
    Ok(socket)
}

fn carry(
    params: &Params,
    nth: usize,
    carrier: Carrier,
    window_bytes: Option<u32>,
    course: &Course,
) -> io::Result<()> {
    let id = stream_id(nth);
    let each_way = usize::try_from(params.parallel).unwrap_or(usize::MAX);
    let receives = goes_up(params.direction(), each_way, nth);
    let (block, rate) = (params.block_bytes(), params.bandwidth);
    let is_wide = params.udp_counters_64bit.is_some_and(|wide| wide != 0);
    match (carrier, receives) {
        (Carrier::Tcp(stream), true) => stream::receive(stream, id, window_bytes, course),
        (Carrier::Tcp(stream), false) => stream::send(stream, id, block, rate, course),
        (Carrier::Udp(socket), true) => udp::receive(&socket, id, is_wide, course),
        (Carrier::Udp(socket), false) => udp::send(&socket, id, block, rate, is_wide, course),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_mark_its_client_asks_for() {
        for (address, tos, expected) in [
            ("127.0.0.1:0", Some(0xb8), 0xb8),
            ("[::1]:0", Some(0x28), 0x28),
            ("127.0.0.1:0", None, 0),
            ("127.0.0.1:0", Some(70_000), 0),
        ] {
            let local: SocketAddr = address.parse().unwrap();
            let socket = UdpSocket::bind(local).unwrap();
            let params = Params {
                tos,
                ..Params::default()
            };
            let socket = SockRef::from(&socket);
            mark(&socket, local, &params).unwrap();
            let is = match local {
                SocketAddr::V4(_) => socket.tos_v4(),
                SocketAddr::V6(_) => socket.tclass_v6(),
            };
            assert_eq!(is.unwrap(), expected, "{address} {tos:?}");
        }
    }
}
