//! The queue loop: held SYNs in, questions to the gateway, verdicts back.
//!
//! One task owns the NFQUEUE socket. While it turns, the lease may be renewed;
//! after a pause in which SYNs may have passed by, whatever is still held is
//! dropped, because its client may long be talking to the server directly.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::answer::Answerer;
use super::hold::{Arrival, Ends, Held, Hold};
use super::lease::{BEAT_INTERVAL, LAPSE, Lease};
use super::listener;
use super::nfqueue::NfQueue;
use super::packet::{Syn, Unreachable};
use super::rules::Identity;
use super::stats::Counters;
use super::{Attempt, Taken, Verdict};

/// Packets read before verdicts get their turn.
const BATCH: usize = 64;
/// A gateway that never answers does not hold a SYN longer than this.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Shared by the queue loop and the listeners.
#[derive(Clone)]
pub(super) struct Desk {
    hold: Arc<Mutex<Hold>>,
    pub taken: mpsc::Sender<Taken>,
    pub counters: Arc<Counters>,
}

impl Desk {
    pub fn new(taken: mpsc::Sender<Taken>, counters: Arc<Counters>) -> Desk {
        Desk {
            hold: Arc::default(),
            taken,
            counters,
        }
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, Hold> {
        // Nothing in the table can be left half done by a panic elsewhere.
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A verdict that has come back: whose, which question, what.
type Answer = (Ends, u64, Verdict);

/// State of the queue loop.
pub(super) struct Judge {
    pub queue: Arc<NfQueue>,
    pub desk: Desk,
    pub answerer: Answerer,
    pub lease: Lease,
    pub identity: Identity,
}

/// A packet as read from the queue; no SYN if it is not one we understand.
struct Arrived {
    id: u32,
    mark: u32,
    syn: Option<Syn>,
}

impl Judge {
    /// Runs until told to stop; held SYNs then go direct.
    pub async fn run(self, mut stop: oneshot::Receiver<()>) {
        let mut answers: JoinSet<Answer> = JoinSet::new();
        let mut tick = interval(BEAT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lapses = self.lease.lapses();
        // Set after a pause until the backlog of that pause is read.
        let mut stale = false;
        let mut arrived = Vec::with_capacity(BATCH);
        loop {
            let mut drained = false;
            let mut answer = None;
            tokio::select! {
                read = self.read(&mut arrived) => drained = read,
                Some(joined) = answers.join_next(), if !answers.is_empty() => answer = joined.ok(),
                _ = tick.tick() => self.desk.hold().expire(Instant::now()),
                _ = &mut stop => break,
            }
            if self.lease.turned() > LAPSE {
                stale = true;
            }
            if stale || self.lease.lapses() != lapses {
                lapses = self.lease.lapses();
                self.drop_stale();
                answers.abort_all();
                answer = None;
            }
            for packet in arrived.drain(..) {
                if stale {
                    self.desk.counters.stale.add();
                    self.drop_packet(packet.id);
                } else {
                    self.judge(packet, &mut answers);
                }
            }
            stale &= !drained;
            if let Some(answer) = answer {
                self.apply(answer);
            }
        }
        for held in self.desk.hold().release_all() {
            self.accept(held.packet_id, None);
        }
    }

    /// Reads a batch; true when the queue is empty.
    async fn read(&self, arrived: &mut Vec<Arrived>) -> bool {
        let read = self.queue.receive(BATCH, |packet| {
            arrived.push(Arrived {
                id: packet.id,
                mark: packet.mark,
                syn: Syn::parse(packet.payload),
            });
        });
        match read.await {
            Ok(drained) => drained,
            // Nothing known fails here for good; do not spin if it does.
            Err(_) => {
                sleep(Duration::from_millis(10)).await;
                false
            }
        }
    }

    fn judge(&self, packet: Arrived, answers: &mut JoinSet<Answer>) {
        let counters = &self.desk.counters;
        let Some(syn) = packet.syn else {
            counters.not_understood.add();
            return self.accept(packet.id, None);
        };
        counters.syns.add();
        let now = Instant::now();
        let arrival = self.desk.hold().arrive(now, packet.id, packet.mark, &syn);
        match arrival {
            Arrival::Ask(serial) => self.ask(&syn, serial, answers),
            Arrival::Replaces { packet_id } => {
                counters.retransmitted.add();
                self.drop_packet(packet_id);
            }
            Arrival::Decided(verdict) => {
                counters.retransmitted.add();
                let mark = (verdict == Verdict::Proxy).then(|| self.our_mark(packet.mark));
                self.accept(packet.id, mark);
            }
            Arrival::Full => {
                counters.overflow.add();
                self.accept(packet.id, None);
            }
        }
    }

    fn ask(&self, syn: &Syn, serial: u64, answers: &mut JoinSet<Answer>) {
        let ends = Ends::from(syn);
        let attempt = Attempt {
            client: syn.client,
            destination: syn.destination,
            dscp: syn.dscp,
        };
        let (verdict, answer) = oneshot::channel();
        if self
            .desk
            .taken
            .try_send(Taken::Attempt { attempt, verdict })
            .is_err()
        {
            self.desk.counters.overflow.add();
            return self.apply((ends, serial, Verdict::Direct));
        }
        answers.spawn(async move {
            let verdict = match timeout(ANSWER_MAX, answer).await {
                Ok(answer) => answer.unwrap_or(Verdict::Direct),
                Err(_elapsed) => Verdict::Silent,
            };
            (ends, serial, verdict)
        });
    }

    fn apply(&self, (ends, serial, verdict): Answer) {
        let decided = self
            .desk
            .hold()
            .decide(Instant::now(), ends, serial, verdict);
        let Some(held) = decided else { return };
        let counters = &self.desk.counters;
        match verdict {
            Verdict::Proxy => {
                counters.proxied.add();
                self.accept(held.packet_id, Some(self.our_mark(held.mark)));
            }
            Verdict::Direct => {
                counters.direct.add();
                self.accept(held.packet_id, None);
            }
            Verdict::Refused => {
                counters.refused.add();
                self.turn_away(&held, |answerer| answerer.refuse(&held.syn));
            }
            Verdict::HostUnreachable | Verdict::NetworkUnreachable => {
                counters.unreachable.add();
                let kind = if verdict == Verdict::HostUnreachable {
                    Unreachable::Host
                } else {
                    Unreachable::Network
                };
                self.turn_away(&held, |answerer| answerer.unreachable(&held.syn, kind));
            }
            Verdict::Silent => {
                counters.silent.add();
                self.drop_packet(held.packet_id);
            }
        }
    }

    /// Drops a SYN and answers it; if the answer cannot be sent, the client is
    /// left with its own time-out.
    fn turn_away(&self, held: &Held, answer: impl FnOnce(&Answerer) -> std::io::Result<()>) {
        self.drop_packet(held.packet_id);
        if answer(&self.answerer).is_err() {
            self.desk.counters.answers_failed.add();
        }
    }

    fn drop_stale(&self) {
        for held in self.desk.hold().release_all() {
            self.desk.counters.stale.add();
            self.drop_packet(held.packet_id);
        }
    }

    fn our_mark(&self, mark: u32) -> u32 {
        mark & !self.identity.mask() | self.identity.mark
    }

    fn accept(&self, packet_id: u32, mark: Option<u32>) {
        if self.queue.accept(packet_id, mark).is_err() {
            self.desk.counters.verdicts_failed.add();
        }
    }

    fn drop_packet(&self, packet_id: u32) {
        if self.queue.drop_packet(packet_id).is_err() {
            self.desk.counters.verdicts_failed.add();
        }
    }
}

/// Hands accepted connections to the gateway; back-pressure is the listen
/// queue's.
pub(super) async fn accept_connections(listener: TcpListener, desk: Desk) {
    let Ok(own) = listener.local_addr() else {
        return;
    };
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            // Out of descriptors, most likely: wait for flows to end.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Armed before anything else, so that a connection dropped unserved
        // ends in a reset.
        let prepared = listener::prepare(&stream);
        if prepared.is_err() || !listener::is_transparent(&stream, own) {
            desk.counters.strays.add();
            continue;
        }
        desk.counters.connections.add();
        let Some(attempt) = attempt_of(&stream, client, &desk) else {
            continue;
        };
        if desk
            .taken
            .send(Taken::Connection { attempt, stream })
            .await
            .is_err()
        {
            return;
        }
    }
}

fn attempt_of(stream: &TcpStream, client: SocketAddr, desk: &Desk) -> Option<Attempt> {
    let destination = stream.local_addr().ok()?;
    let plain = |address: SocketAddr| SocketAddr::new(address.ip(), address.port());
    Some(desk.hold().attempt(Ends {
        client: plain(client),
        destination: plain(destination),
    }))
}
