//! Client, two halves, server, and what lies between them, in virtual time.

use std::collections::VecDeque;

use farhaul_optimise::{Event, Half, Output, Reason, Settings};

use super::client::Client;
use super::server::{OtherWrite, Server};

const SEGMENT_BYTES: usize = 1448;
const LAN_BYTES_S: u64 = 125_000_000;
const LAN_DELAY_NS: u64 = 50_000;
/// More events than any test needs.
const EVENTS_MAX: u64 = 20_000_000;

/// One direction of a line: bytes arrive in order, so late.
#[derive(Debug)]
struct Line {
    rate_bytes_s: u64,
    delay_ns: u64,
    free_ns: u64,
    arriving: VecDeque<(u64, Vec<u8>)>,
    bytes: u64,
}

impl Line {
    fn new(rate_bytes_s: u64, delay_ns: u64) -> Self {
        Self {
            rate_bytes_s,
            delay_ns,
            free_ns: 0,
            arriving: VecDeque::new(),
            bytes: 0,
        }
    }

    fn send(&mut self, now_ns: u64, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for segment in bytes.chunks(SEGMENT_BYTES) {
            let takes_ns = segment.len() as u64 * 1_000_000_000 / self.rate_bytes_s;
            self.free_ns = self.free_ns.max(now_ns) + takes_ns;
            self.arriving
                .push_back((self.free_ns + self.delay_ns, segment.to_vec()));
        }
    }

    fn due_ns(&self) -> u64 {
        self.arriving.front().map_or(u64::MAX, |(at, _)| *at)
    }

    /// Everything that has arrived.
    fn take(&mut self, now_ns: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.due_ns() <= now_ns {
            bytes.extend(self.arriving.pop_front().unwrap().1);
        }
        bytes
    }
}

/// In the order of the way there and back.
const CLIENT_NEAR: usize = 0;
const NEAR_FAR: usize = 1;
const FAR_SERVER: usize = 2;
const SERVER_FAR: usize = 3;
const FAR_NEAR: usize = 4;
const NEAR_CLIENT: usize = 5;

/// The two halves and where each sends.
const NEAR: usize = 0;
const FAR: usize = 1;
const LOCAL_LINE: [usize; 2] = [NEAR_CLIENT, FAR_SERVER];
const PEER_LINE: [usize; 2] = [NEAR_FAR, FAR_NEAR];

/// Looks at what was carried, and lets out two and a half times the most of it.
#[derive(Debug)]
pub struct Learner {
    pub link: (u64, u64),
    pub rate_bytes_s: u64,
    pub next_ns: u64,
    pub seen_bytes: u64,
}

pub struct World {
    pub now_ns: u64,
    pub client: Client,
    pub server: Server,
    /// None: a line without gateways.
    pub halves: Option<[Half; 2]>,
    lines: Vec<Line>,
    /// What others do, by time.
    pub others: VecDeque<(u64, OtherWrite)>,
    /// When which half gives up.
    pub gives_up: Option<(u64, usize)>,
    pub gave_up: Option<Reason>,
    pub cut: Option<Reason>,
    /// A tunnel that finds its rate by what it carries.
    pub learner: Option<Learner>,
    /// What each half heard, and whether from the other, if that is wanted.
    pub fed: Option<Vec<(usize, bool, Vec<u8>)>>,
    /// When a half wants to be told the time.
    wakes_ns: [u64; 2],
    /// What client (0) and server (1) have said, in its order.
    pub tape: Vec<(usize, Vec<u8>)>,
}

impl World {
    pub fn new(
        client: Client,
        server: Server,
        settings: Option<Settings>,
        link: (u64, u64),
    ) -> Self {
        let (rate_bytes_s, rtt_ns) = link;
        let lan = || Line::new(LAN_BYTES_S, LAN_DELAY_NS);
        let wan = || Line::new(rate_bytes_s, rtt_ns / 2);
        Self {
            now_ns: 0,
            client,
            server,
            halves: settings.map(|settings| [Half::near(settings), Half::far(settings)]),
            lines: vec![lan(), wan(), lan(), lan(), wan(), lan()],
            others: VecDeque::new(),
            gives_up: None,
            gave_up: None,
            cut: None,
            learner: None,
            fed: None,
            wakes_ns: [u64::MAX; 2],
            tape: Vec::new(),
        }
    }

    /// Bytes that crossed the link towards the client.
    pub fn wan_bytes(&self) -> u64 {
        self.lines[FAR_NEAR].bytes
    }

    fn learns_ns(&self) -> u64 {
        self.learner.as_ref().map_or(u64::MAX, |it| it.next_ns)
    }

    /// Once a round trip.
    fn learn(&mut self) {
        let bytes = self.wan_bytes() + self.lines[NEAR_FAR].bytes;
        let (Some(learner), Some(halves)) = (&mut self.learner, &mut self.halves) else {
            return;
        };
        if learner.next_ns > self.now_ns {
            return;
        }
        let (rate_bytes_s, rtt_ns) = learner.link;
        let carried = u128::from(bytes - learner.seen_bytes) * 1_000_000_000;
        let seen = u64::try_from(carried / u128::from(rtt_ns)).unwrap();
        learner.rate_bytes_s = learner.rate_bytes_s.max(seen).min(rate_bytes_s);
        learner.seen_bytes = bytes;
        learner.next_ns += rtt_ns;
        for line in PEER_LINE {
            self.lines[line].rate_bytes_s = rate_bytes_s.min(learner.rate_bytes_s * 5 / 2);
        }
        let settings = Settings::of_link(learner.rate_bytes_s, rtt_ns);
        for half in halves {
            half.handle_link(&settings);
        }
        self.drain(NEAR);
        self.drain(FAR);
    }

    /// Runs until the client has done everything, or the connection is cut.
    pub fn run(&mut self) {
        self.drain(NEAR);
        self.drain(FAR);
        self.client.go_on(0, &self.server);
        let mut events = 0;
        while !self.client.is_done && self.cut.is_none() {
            self.flush();
            let wakes_ns = match self.client.wakes_ns > self.now_ns {
                true => self.client.wakes_ns,
                false => u64::MAX,
            };
            let lines_ns = self.lines.iter().map(Line::due_ns).min().unwrap();
            let others_ns = self.others.front().map_or(u64::MAX, |(at, _)| *at);
            let gives_up_ns = self.gives_up.map_or(u64::MAX, |(at, _)| at);
            let server_ns = self.server.due_ns();
            let next_ns = lines_ns.min(wakes_ns).min(others_ns).min(gives_up_ns);
            let halves_ns = self.wakes_ns.iter().copied().min().unwrap();
            let next_ns = next_ns.min(server_ns).min(self.learns_ns()).min(halves_ns);
            assert!(next_ns < u64::MAX, "everybody waits: {:?}", self.client);
            self.now_ns = self.now_ns.max(next_ns);
            self.happen();
            events += 1;
            assert!(events < EVENTS_MAX, "no end");
        }
    }

    fn happen(&mut self) {
        self.server.handle_time(self.now_ns);
        self.learn();
        if self
            .others
            .front()
            .is_some_and(|(at, _)| *at <= self.now_ns)
        {
            let (_, write) = self.others.pop_front().unwrap();
            self.server.now_ns = self.now_ns;
            self.server.write(&write);
        }
        if let Some((_, half)) = self.gives_up.take_if(|(at, _)| *at <= self.now_ns)
            && let Some(halves) = &mut self.halves
        {
            halves[half].handle_give_up(Reason::Operator);
            self.drain(half);
        }
        for half in [NEAR, FAR] {
            if self.wakes_ns[half] <= self.now_ns
                && let Some(halves) = &mut self.halves
            {
                halves[half].handle_timeout(self.now_ns);
                self.drain(half);
            }
        }
        for line in 0..self.lines.len() {
            let bytes = self.lines[line].take(self.now_ns);
            if !bytes.is_empty() {
                self.arrive(line, &bytes);
            }
        }
        self.client.go_on(self.now_ns, &self.server);
    }

    fn arrive(&mut self, line: usize, bytes: &[u8]) {
        match line {
            FAR_SERVER => self.server.handle(self.now_ns, bytes),
            NEAR_CLIENT => self.client.handle(self.now_ns, bytes, &self.server),
            _ => self.pass(line, bytes),
        }
        self.flush();
    }

    fn pass(&mut self, line: usize, bytes: &[u8]) {
        let Some(halves) = &mut self.halves else {
            return self.lines[line + 1].send(self.now_ns, bytes);
        };
        let half = match line {
            CLIENT_NEAR | FAR_NEAR => NEAR,
            _ => FAR,
        };
        if let Some(fed) = &mut self.fed {
            let is_peer = [NEAR_FAR, FAR_NEAR].contains(&line);
            fed.push((half, is_peer, bytes.to_vec()));
        }
        match line {
            CLIENT_NEAR | SERVER_FAR => {
                halves[half].handle_local(self.now_ns, bytes.to_vec().into())
            }
            _ => halves[half].handle_peer(self.now_ns, bytes.to_vec().into()),
        }
        self.drain(half);
    }

    fn drain(&mut self, half: usize) {
        let Some(halves) = &mut self.halves else {
            return;
        };
        loop {
            match halves[half].poll_output() {
                Output::Local(bytes) => self.lines[LOCAL_LINE[half]].send(self.now_ns, &bytes),
                Output::Peer(bytes) => self.lines[PEER_LINE[half]].send(self.now_ns, &bytes),
                Output::Event(Event::GaveUp(reason)) => self.gave_up = Some(reason),
                Output::Event(Event::Recognised(_)) => (),
                Output::Cut(reason) => self.cut = Some(reason),
                Output::Timeout(at_ns) => {
                    self.wakes_ns[half] = at_ns;
                    break;
                }
                Output::Idle => {
                    self.wakes_ns[half] = u64::MAX;
                    break;
                }
                end => panic!("{end:?}"),
            }
        }
    }

    fn flush(&mut self) {
        let asked = std::mem::take(&mut self.client.output);
        let said = [(0, asked.clone()), (1, self.server.take_output())];
        self.lines[CLIENT_NEAR].send(self.now_ns, &asked);
        self.lines[SERVER_FAR].send(self.now_ns, &said[1].1);
        self.tape
            .extend(said.into_iter().filter(|(_, bytes)| !bytes.is_empty()));
    }
}
