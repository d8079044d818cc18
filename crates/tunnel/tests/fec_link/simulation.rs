//! What error correction is for: requests beside bulk on a lossy link. A sender paces datagrams at
//! the link's rate, answers to requests before bulk; what is lost and not recovered is sent again
//! a round trip and a quarter later, as QUIC does. No QUIC here: the code alone.

use farhaul_link::{Emulator, LinkProfile, Output, Packet};
use farhaul_tunnel::fec::{Decoder, Observation, Protection, Repair};
use std::collections::{BTreeMap, VecDeque};

const RATE_BITS_S: f64 = 51.84e6;
pub const ONE_WAY_NS: u64 = 30_000_000;
/// Ethernet, IPv4 and UDP headers.
const HEADERS_BYTES: usize = 42;
const DATAGRAM_BYTES: usize = 1472;
/// After this a datagram that has not arrived is sent again.
const PATIENCE_NS: u64 = 2 * ONE_WAY_NS * 5 / 4;
const TICK_NS: u64 = 100_000_000;

#[derive(Debug, Clone)]
struct Wire {
    datagram: Vec<u8>,
    answer: Option<usize>,
    repair: Option<Repair>,
}

impl Packet for Wire {
    fn frame_bytes(&self) -> usize {
        self.datagram.len() + HEADERS_BYTES
    }
    fn corrupt(&mut self, _bit: u64) {}
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Outcome {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub bulk: u64,
    pub repairs: u64,
    pub answers: usize,
    pub recovered: u64,
}

struct Simulation {
    link: Emulator<Wire>,
    protection: Protection,
    decoder: Decoder,
    is_protected: bool,
    /// Datagrams to be sent before bulk: answer and content.
    urgent: VecDeque<(usize, Vec<u8>)>,
    /// Datagrams of answers on the way and when they left.
    on_the_way: BTreeMap<Vec<u8>, (usize, u64)>,
    /// Started, datagrams left, finished.
    answers: Vec<(u64, usize, Option<u64>)>,
    sent: u64,
    lost: u64,
    bulk: u64,
    random: u64,
}

impl Simulation {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut datagram = vec![0; bytes];
        let tag = self.random(u64::MAX).to_le_bytes();
        datagram[bytes - 8..].copy_from_slice(&tag);
        datagram[..8].copy_from_slice(&tag);
        datagram
    }

    fn arrived(&mut self, now_ns: u64, datagram: &[u8]) {
        if let Some((answer, _)) = self.on_the_way.remove(datagram) {
            let (_, left, finished) = &mut self.answers[answer];
            *left -= 1;
            if *left == 0 {
                *finished = Some(now_ns);
            }
        }
    }

    fn receive(&mut self, now_ns: u64) {
        while let Output::Deliver { packet, due_ns } = self.link.poll_output(now_ns) {
            if let Some(repair) = packet.repair {
                self.decoder.handle_repair(&repair);
            } else {
                self.decoder.handle_datagram(&packet.datagram);
                self.arrived(due_ns, &packet.datagram);
            }
            while let Some(datagram) = self.decoder.poll_recovered() {
                self.arrived(due_ns, &datagram);
            }
        }
    }

    fn detect(&mut self, now_ns: u64) {
        let late: Vec<_> = self
            .on_the_way
            .iter()
            .filter(|(_, (_, sent_ns))| now_ns >= sent_ns + PATIENCE_NS)
            .map(|(datagram, (answer, _))| (*answer, datagram.clone()))
            .collect();
        for (answer, datagram) in late {
            self.on_the_way.remove(&datagram);
            self.lost += 1;
            self.urgent.push_front((answer, datagram));
        }
    }

    /// One turn of the pacer; returns the bytes of the frame sent.
    fn send(&mut self, now_ns: u64) -> usize {
        let repair = self.protection.poll_repair();
        let wire = match (repair, self.urgent.pop_front()) {
            (Some(repair), kept) => {
                self.urgent.extend(kept);
                let mut datagram = Vec::new();
                repair.write(1, &mut datagram);
                Wire {
                    datagram,
                    answer: None,
                    repair: Some(repair),
                }
            }
            (None, Some((answer, datagram))) => Wire {
                datagram,
                answer: Some(answer),
                repair: None,
            },
            (None, None) => Wire {
                datagram: self.noise(DATAGRAM_BYTES),
                answer: None,
                repair: None,
            },
        };
        if wire.repair.is_none() {
            self.sent += 1;
            self.bulk += u64::from(wire.answer.is_none());
            let is_protected = self.is_protected && wire.answer.is_some();
            let protected_bytes = if is_protected { wire.datagram.len() } else { 0 };
            self.protection.handle_sent(&wire.datagram, protected_bytes);
        }
        if let Some(answer) = wire.answer {
            self.on_the_way
                .insert(wire.datagram.clone(), (answer, now_ns));
        }
        let bytes = wire.frame_bytes();
        self.link.handle_packet(now_ns, wire);
        bytes
    }
}

/// Answers of so many datagrams, three per second, for so long.
pub fn run(loss: &str, datagrams: usize, is_protected: bool, seconds: u64, seed: u64) -> Outcome {
    let words = format!("rate 51.84mbit delay 30ms queue 100ms loss {loss}");
    let profile = words.parse::<LinkProfile>().unwrap();
    let mut simulation = Simulation {
        link: Emulator::new(profile.forward, seed),
        protection: Protection::default(),
        decoder: Decoder::default(),
        is_protected,
        urgent: VecDeque::new(),
        on_the_way: BTreeMap::new(),
        answers: Vec::new(),
        sent: 0,
        lost: 0,
        bulk: 0,
        random: seed | 1,
    };
    let (mut now_ns, mut next_answer_ns, mut next_tick_ns) = (0u64, 3_000_000_000, 0);
    while now_ns < seconds * 1_000_000_000 {
        simulation.receive(now_ns);
        if now_ns >= next_tick_ns {
            next_tick_ns += TICK_NS;
            simulation.detect(now_ns);
            let tally = simulation.decoder.tally();
            // What bulk lost is known from the link; what answers lost, from time-outs.
            let dropped = simulation.link.stats().drops.loss;
            simulation.protection.observe(Observation {
                now_ns,
                sent: simulation.sent,
                lost: dropped.saturating_sub(tally.recovered),
                recovered: tally.recovered - tally.late,
                missing: tally.missing,
                runs: tally.runs,
                rtt_ns: 2 * ONE_WAY_NS,
                ..Observation::default()
            });
        }
        if now_ns >= next_answer_ns {
            next_answer_ns += 200_000_000 + simulation.random(266_000_000);
            simulation.answers.push((now_ns, datagrams, None));
            for _ in 0..datagrams {
                let datagram = simulation.noise(DATAGRAM_BYTES);
                let answer = simulation.answers.len() - 1;
                simulation.urgent.push_back((answer, datagram));
            }
        }
        simulation.detect(now_ns);
        let bytes = simulation.send(now_ns);
        now_ns += (bytes as f64 * 8.0 / (RATE_BITS_S * 0.99) * 1e9) as u64;
    }
    let mut times: Vec<f64> = simulation
        .answers
        .iter()
        .filter_map(|(started, _, finished)| Some((finished.as_ref()? - started) as f64 / 1e6))
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Outcome {
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        bulk: simulation.bulk,
        repairs: simulation.protection.repairs(),
        answers: times.len(),
        recovered: simulation.decoder.tally().recovered,
    }
}
