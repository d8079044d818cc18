//! One client: its requests, one after the other.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use super::clients::Known;
use super::send_back::Echoes;
use super::{Shared, Stream, echo};
use crate::probe::clock::now_ns;
use crate::probe::datagram_flow::{FlowCount, FlowPlan, Header, Kind, receive_flow, send_flow};
use crate::probe::datagram_socket::DatagramSocket;
use crate::probe::error::{ProbeError, While};
use crate::probe::host::HostFacts;
use crate::probe::message::{
    Answer, Control, PATIENCE, REQUEST_BYTES_MAX, Request, SLICE, Token, VERSION,
};
use crate::probe::tcp_test::{StreamEnd, TcpPlan, Worker};

/// A client that asks for nothing for so long is gone.
const IDLE_PATIENCE: Duration = Duration::from_secs(120);
/// Streams that wait for a session to take them.
const STREAMS_WAITING_MAX: usize = 128;

/// Serves a control connection to its end.
pub(super) fn serve(shared: &Arc<Shared>, stream: TcpStream, from: SocketAddr) {
    let stop = Arc::new(AtomicBool::new(false));
    let local = stream.local_addr();
    let control = Control::new(stream, Arc::clone(&shared.stop), REQUEST_BYTES_MAX);
    let (Ok(local), Ok(control)) = (local, control) else {
        return;
    };
    let mut session = Session {
        shared,
        control,
        client: from.ip(),
        local,
        stop: &stop,
    };
    // A client that breaks the protocol or goes away ends its session; the
    // reason is told to it where it can still hear it.
    if let Err(error) = session.run() {
        let why = match error {
            ProbeError::Interrupted => "it is being ended".to_owned(),
            error => error.to_string(),
        };
        let _ = session.control.send(&Answer::Refused { why });
    }
    stop.store(true, Ordering::Relaxed);
}

struct Session<'a> {
    shared: &'a Shared,
    control: Control,
    client: IpAddr,
    local: SocketAddr,
    stop: &'a Arc<AtomicBool>,
}

/// Takes a session off the table, whatever happens.
struct Listed<'a> {
    shared: &'a Shared,
    token: Token,
    stop: &'a AtomicBool,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.shared.clients().sessions.remove(&self.token);
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Session<'_> {
    fn run(&mut self) -> Result<(), ProbeError> {
        match self.control.receive("waiting for the greeting", PATIENCE)? {
            Request::Hello { version: VERSION } => {}
            Request::Hello { version } => {
                let why = format!("it speaks version {version}, this server version {VERSION}");
                return Err(ProbeError::protocol(why));
            }
            _ => return Err(ProbeError::protocol("it asks before it greets")),
        }
        let token = random_token()?;
        let (sender, streams) = sync_channel(STREAMS_WAITING_MAX);
        let known = Known {
            streams: sender,
            echoes: Echoes::of(self.stop),
        };
        let others = match self.shared.enlist_session(token, known) {
            Ok(others) => others,
            Err(others) => {
                let why = format!("{others} clients are being served, which is the most allowed");
                return self.control.send(&Answer::Refused { why });
            }
        };
        let (shared, stop, client) = (self.shared, self.stop, self.client);
        let listed = Listed {
            shared,
            token,
            stop,
        };
        let socket = self.udp_socket()?;
        self.control.send(&Answer::Welcome {
            version: VERSION,
            token,
            echo_port: socket.port().locally("reading a port")?,
            host: Box::new(HostFacts::here()),
            other_sessions: others,
        })?;
        thread::scope(|scope| {
            scope.spawn(|| echo::serve(&socket, token, client, stop));
            let outcome = self.requests(token, &streams);
            // Before the client hears of it: its next session is no second one.
            drop(listed);
            if outcome.is_ok() {
                self.control.close();
            }
            outcome
        })
    }

    fn requests(&mut self, token: Token, streams: &Receiver<Stream>) -> Result<(), ProbeError> {
        loop {
            let request = match self.control.receive("waiting for a request", IDLE_PATIENCE) {
                // The client is done.
                Err(ProbeError::Lost { .. }) => return Ok(()),
                other => other?,
            };
            match request {
                Request::Hello { .. } => return Err(ProbeError::protocol("it greets twice")),
                Request::Clock => self.control.send(&Answer::Clock { at_ns: now_ns() })?,
                Request::Tcp(plan) => match plan.check() {
                    Ok(()) => self.tcp(plan, streams)?,
                    Err(why) => self.control.send(&Answer::Refused { why })?,
                },
                Request::Datagrams(plan) => match plan.check() {
                    Ok(()) => self.datagrams(&plan, token)?,
                    Err(why) => self.control.send(&Answer::Refused { why })?,
                },
            }
        }
    }

    fn udp_socket(&self) -> Result<DatagramSocket, ProbeError> {
        let opened = self.shared.udp_sockets.open(self.local);
        opened.locally("opening a UDP socket")
    }

    fn others(&self) -> u32 {
        self.shared.clients().count().saturating_sub(1)
    }

    fn tcp(&mut self, mut plan: TcpPlan, streams: &Receiver<Stream>) -> Result<(), ProbeError> {
        plan.window_bytes = plan.window_bytes.or(self.shared.options.window_bytes);
        // What a test before has left.
        while streams.try_recv().is_ok() {}
        self.control.send(&Answer::Ready { port: 0 })?;
        let mut taken: Vec<Option<TcpStream>> = Vec::new();
        taken.resize_with(plan.connections().into(), || None);
        while taken.iter().any(Option::is_none) {
            // Each has its own patience: a client opens them one after the other,
            // and a round trip of a long path for each adds up.
            let (number, stream) = self.next_stream(streams, Instant::now() + PATIENCE)?;
            match taken.get_mut(usize::from(number)) {
                Some(place @ None) => *place = Some(stream),
                _ => return Err(ProbeError::protocol("it opens a stream nobody asked for")),
            }
        }
        let stop = self.stop;
        let workers: Result<Vec<_>, _> = (0..)
            .zip(taken.into_iter().flatten())
            .map(|(number, stream)| Worker::new(&plan, stop, stream, number, true))
            .collect();
        let workers = match workers {
            Ok(workers) => workers,
            Err(error) => {
                let why = format!("a setting is not possible here: {error}");
                return self.control.send(&Answer::Refused { why });
            }
        };
        self.control.send(&Answer::Go)?;
        let (streams, other_sessions) = thread::scope(|scope| {
            let run = |worker: Worker<'_>| worker.run();
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(move || run(worker)))
                .collect();
            let others = self.watch(&threads);
            let ends: Vec<StreamEnd> = threads
                .into_iter()
                .flat_map(ScopedJoinHandle::join)
                .collect();
            (ends, others)
        });
        let done = Answer::TcpDone {
            streams,
            other_sessions,
        };
        self.tell_result(&done, Duration::from_millis(plan.duration_ms))
    }

    fn next_stream(&self, streams: &Receiver<Stream>, end: Instant) -> Result<Stream, ProbeError> {
        loop {
            match streams.recv_timeout(SLICE) {
                Ok(stream) => return Ok(stream),
                Err(RecvTimeoutError::Disconnected) => return Err(ProbeError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.shared.is_stopping() {
                return Err(ProbeError::Interrupted);
            }
            if self.control.is_gone() || Instant::now() > end {
                return Err(ProbeError::Silent {
                    seconds: PATIENCE.as_secs(),
                    during: "waiting for streams".to_owned(),
                });
            }
        }
    }

    /// Ends the test when the client is gone or the server stops; returns how
    /// many other sessions there were at most.
    fn watch<T>(&self, threads: &[ScopedJoinHandle<'_, T>]) -> u32 {
        let mut others = self.others();
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            sleep(SLICE / 4);
            others = others.max(self.others());
            if self.shared.is_stopping() || self.control.is_gone() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        others
    }

    fn datagrams(&mut self, plan: &FlowPlan, token: Token) -> Result<(), ProbeError> {
        let socket = self.udp_socket()?;
        let port = socket.port().locally("reading a port")?;
        self.control.send(&Answer::Ready { port })?;
        let to = self.opened(&socket, token)?;
        self.control.send(&Answer::Go)?;
        let (client, stop) = (self.client, self.stop);
        let (sent, count, other_sessions) = thread::scope(|scope| {
            let mut threads = Vec::new();
            if plan.direction.has_down() {
                let send = || send_flow(plan, token, &socket, to, stop).map(End::Sent);
                threads.push(scope.spawn(send));
            }
            if plan.direction.has_up() {
                let receive = || receive_flow(plan, token, &socket, client, stop);
                threads.push(scope.spawn(move || receive().map(End::counted)));
            }
            let others = self.watch(&threads);
            let (mut sent, mut count) = (0, None);
            for end in threads.into_iter().flat_map(ScopedJoinHandle::join) {
                match end.locally("moving datagrams")? {
                    End::Sent(datagrams) => sent = datagrams,
                    End::Counted(found) => count = Some(found),
                }
            }
            Ok((sent, count, others))
        })?;
        // Before the client hears of it: what it asks for next may need the port.
        drop(socket);
        let done = Answer::DatagramsDone {
            sent,
            count,
            other_sessions,
        };
        self.tell_result(&done, Duration::from_nanos(plan.duration_ns()))
    }

    /// Long, on a circuit that may be slow: clients wait for it as long as the
    /// test took, and a while more. A test that our own end has cut short has none.
    fn tell_result(&mut self, done: &Answer, test: Duration) -> Result<(), ProbeError> {
        self.control.check_stop()?;
        self.control.send_within(done, PATIENCE + test)
    }

    /// Where the client's datagrams come from, which a NAT on the way decides.
    fn opened(&self, socket: &DatagramSocket, token: Token) -> Result<SocketAddr, ProbeError> {
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 2048];
        while Instant::now() < end && !self.shared.is_stopping() && !self.control.is_gone() {
            let received = socket
                .receive(&mut buffer)
                .lost_while("waiting for a datagram")?;
            let Some((arrival, from)) = received else {
                continue;
            };
            let datagram = buffer.get(..arrival.length).unwrap_or_default();
            let header = Header::read(datagram, &token);
            if header.is_some_and(|header| header.kind == Kind::Open) && from.ip() == self.client {
                return Ok(from);
            }
        }
        Err(ProbeError::Silent {
            seconds: PATIENCE.as_secs(),
            during: "waiting for the first datagram: UDP does not get through".to_owned(),
        })
    }
}

enum End {
    Sent(u64),
    Counted(Box<FlowCount>),
}

impl End {
    fn counted(count: FlowCount) -> Self {
        Self::Counted(Box::new(count))
    }
}

fn random_token() -> Result<Token, ProbeError> {
    use std::io::Read;
    let mut token = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut token))
        .locally("reading random bytes")?;
    Ok(token)
}
