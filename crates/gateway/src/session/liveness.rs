//! Listens for silence, and asks when there is some.
//!
//! Any datagram of the peer counts, acknowledgements included; the QUIC
//! stack's own idle time-out is as long as flows are kept and says nothing
//! about the moment. Each side sends at least every `keep_alive`, whatever it
//! hears, so a healthy peer is heard that often at any round-trip time. Once
//! it is not, pings follow closely: a handful of lost packets must not look
//! like a dead gateway, and a dead one must be known within 3 s.
//!
//! How often that goes wrong with independent loss `p` in both directions: a
//! ping is answered in time with probability (1-p)^2 if it was sent one round
//! trip and one acknowledgement delay before `dead_after`. With the defaults
//! (silence from 0.8 s on, a ping each 50 ms, dead after 2.5 s) that leaves
//! (1.675 s - RTT) / 50 ms = n pings, and at most one such silence begins
//! per lost keep-alive:
//!
//! | p    | RTT    | n  | false alarms per day, at most |
//! |------|--------|----|-------------------------------|
//! | 10 % | 200 ms | 29 | 2e-17 |
//! | 10 % | 600 ms | 21 | 1e-11 |
//! | 10 % | 900 ms | 15 | 2e-7  |
//! | 5 %  | 600 ms | 21 | 4e-18 |
//!
//! A peer that is heard may still be out of reach: nothing of ours arrives any
//! more, or nothing that is large enough to carry data. Where the QUIC stack
//! can tell that it is the size, the tunnel is ended (`quic/narrow.rs`). Where
//! a full congestion window keeps it from sending anything small, all that
//! shows is that nothing is acknowledged: that counts as silence.
//!
//! Where round trips exceed 0.9 s `tunnel.dead_after` should be longer than
//! its default by what they do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::proof::{Proof, Seen};
use super::unblock::{Step, Unblock};
use super::{Session, SessionEnd};
use crate::quic::alias::Aliases;
use crate::quic::flight::Flight;
use crate::quic::narrow::DATAGRAM_BYTES_MIN;

/// Looks, and pings, per `keep_alive`.
const LOOKS: u32 = 14;
/// Closer pings would be acknowledged together (RFC 9000 section 13.2.1: an
/// acknowledgement may wait for 25 ms).
const SPACING_MIN: Duration = Duration::from_millis(50);
/// Adds to detection.
const SPACING_MAX: Duration = Duration::from_millis(200);
/// A pause of our own process is not the peer's silence: what a look comes
/// late by counts only up to this.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Fewer packets without an answer are lost by chance.
const UNANSWERED_MIN: u64 = 4;
/// So much is lent at a look: two packets.
const LENT_BYTES: u64 = 3000;
/// A gateway next to a server ends a connection when it could not tell the other, silent for so long and 5 s more, that a file is
/// others' now: after such a silence that may have happened.
pub(super) const SILENCE_LONG: Duration = Duration::from_secs(10);
/// Until so long behind it: what had been said, and that the connection has ended, has come by then.
const UNSURE_AFTER: Duration = Duration::from_secs(10);
/// After so many `keep_alive`s of silence pings are as rare as before.
const CLOSE_PINGS: u32 = 10;

/// A peer that is alive is heard within this: its keep-alive and some jitter.
pub(super) fn usual_silence(keep_alive: Duration) -> Duration {
    keep_alive + keep_alive / 7
}

pub(super) async fn run(session: Arc<Session>) {
    let mut tick = interval(spacing(session.keep_alive));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch::new(session.keep_alive, Instant::now());
    let mut answers = Answers::new(Instant::now());
    let mut moves = session.aliases.clone().map(Moves::new);
    let mut unblock = Unblock::default();
    let mut flight = None;
    let mut looks: u32 = 0;
    let looking = session.pauses.begin(Instant::now());
    while !session.is_over() {
        tick.tick().await;
        looking.look(Instant::now());
        if looks.is_multiple_of(LOOKS) {
            let found = Flight::of(&session.connection);
            if is_another(flight.as_ref(), found.as_ref()) {
                session.follow_path();
            }
            flight = found;
        }
        looks = looks.wrapping_add(1);
        if flight.as_ref().is_some_and(|flight| flight.is_narrow()) {
            return session.close(SessionEnd::Narrow);
        }
        let wire = session.connection.stats();
        if let Some(moves) = &mut moves {
            moves.look(&session);
        }
        let is_due = watch.look(Instant::now(), wire.udp_rx.datagrams, wire.udp_tx.datagrams);
        let unanswered = match &flight {
            Some(flight) => answers.look(Instant::now(), Sent::of(flight)),
            None => Duration::ZERO,
        };
        match (unblock.look(unanswered, usual_rtt(&session)), &flight) {
            (Step::Lend, Some(flight)) => flight.lend(LENT_BYTES),
            (Step::Nudge, _) => (session.nudge)(),
            _ => {}
        }
        session.note_silence(watch.silent.max(unanswered));
        session
            .unanswered_ms
            .store(ms(unanswered), Ordering::Relaxed);
        session
            .unheard_ms
            .store(ms(watch.silent), Ordering::Relaxed);
        if is_due && let Some(path) = session.connection.path(noq::PathId::ZERO) {
            // Fails only on a path that is closed: the tunnel ends then.
            let _ = path.ping();
        }
    }
}

impl Session {
    /// What a look has found: how long the peer has been silent.
    fn note_silence(&self, silent: Duration) {
        let now_ms = self.now_ns() / 1_000_000;
        let looked_ms = self.looked_ms.swap(now_ms, Ordering::Relaxed);
        let slept_ms = now_ms.saturating_sub(looked_ms);
        if ms(silent).max(slept_ms) >= ms(SILENCE_LONG) {
            let until_ms = now_ms.saturating_add(ms(UNSURE_AFTER));
            self.unsure_until_ms.store(until_ms, Ordering::Relaxed);
        }
        self.silent_ms.store(ms(silent), Ordering::Relaxed);
    }
}

/// The round trip, but not much more than the least there was: after an outage in which packets were held up and not lost, the
/// stack's is as long as that for a while.
fn usual_rtt(session: &Session) -> Duration {
    let smoothed = session.rtt();
    let least = session.path().map(|path| path.base_rtt_ns);
    match least.filter(|least_ns| (1..u64::MAX).contains(least_ns)) {
        Some(least_ns) => smoothed.min(Duration::from_nanos(least_ns).saturating_mul(2)),
        None => smoothed,
    }
}

/// What the proofs of a peer's addresses have taken.
struct Moves {
    aliases: Arc<Aliases>,
    proof: Proof,
    renamed: Option<SocketAddr>,
}

impl Moves {
    fn new(aliases: Arc<Aliases>) -> Self {
        Self {
            aliases,
            proof: Proof::default(),
            renamed: None,
        }
    }

    fn look(&mut self, session: &Session) {
        let Some(address) = session.known_address() else {
            return;
        };
        let path = session.connection.path_stats(noq::PathId::ZERO);
        let path = path.unwrap_or_default();
        let seen = Seen {
            address,
            responses: path.frame_rx.path_response,
            rtt: path.rtt,
        };
        let place = self.aliases.real(address);
        if self.renamed.is_some_and(|renamed| renamed != place) {
            self.forget();
        }
        if self.proof.look(Instant::now(), seen) {
            self.aliases.renew(place);
            self.renamed = Some(place);
        }
    }

    fn forget(&mut self) {
        if let Some(renamed) = self.renamed.take() {
            self.aliases.forget(renamed);
        }
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A path to another address has a flight of its own.
fn is_another(known: Option<&Arc<Flight>>, found: Option<&Arc<Flight>>) -> bool {
    matches!((known, found), (Some(known), Some(found)) if !Arc::ptr_eq(known, found))
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn spacing(keep_alive: Duration) -> Duration {
    (keep_alive / LOOKS).clamp(SPACING_MIN, SPACING_MAX)
}

/// How long nothing was acknowledged while something was on its way.
#[derive(Debug)]
struct Answers {
    looked: Instant,
    acknowledged: u64,
    sent: u64,
    unanswered: Duration,
}

/// What became of the packets sent so far.
#[derive(Debug, Clone, Copy)]
struct Sent {
    packets: u64,
    acknowledged: u64,
    in_flight_bytes: u64,
}

impl Sent {
    fn of(flight: &Flight) -> Self {
        Self {
            packets: flight.sent_packets(),
            acknowledged: flight.acknowledged_packets(),
            in_flight_bytes: flight.in_flight_bytes(),
        }
    }
}

impl Answers {
    fn new(now: Instant) -> Self {
        Self {
            looked: now,
            acknowledged: 0,
            sent: 0,
            unanswered: Duration::ZERO,
        }
    }

    fn look(&mut self, now: Instant, sent: Sent) -> Duration {
        let passed = now.saturating_duration_since(self.looked).min(PAUSE_MAX);
        self.looked = now;
        if sent.acknowledged != self.acknowledged || sent.in_flight_bytes == 0 {
            (self.acknowledged, self.sent) = (sent.acknowledged, sent.packets);
            self.unanswered = Duration::ZERO;
            return Duration::ZERO;
        }
        self.unanswered += passed;
        // A stack whose window is full of what was sent before sends nothing more.
        let before = sent.in_flight_bytes / u64::from(DATAGRAM_BYTES_MIN);
        let packets = sent.packets.saturating_sub(self.sent).max(before);
        match packets < UNANSWERED_MIN {
            true => Duration::ZERO,
            false => self.unanswered,
        }
    }
}

/// How long nothing was received and nothing sent.
#[derive(Debug)]
struct Watch {
    keep_alive: Duration,
    looked: Instant,
    received: u64,
    sent: u64,
    silent: Duration,
    quiet: Duration,
}

impl Watch {
    fn new(keep_alive: Duration, now: Instant) -> Self {
        Self {
            keep_alive,
            looked: now,
            received: 0,
            sent: 0,
            silent: Duration::ZERO,
            quiet: Duration::ZERO,
        }
    }

    /// Takes the counters of the moment; says whether a ping is due.
    fn look(&mut self, now: Instant, received: u64, sent: u64) -> bool {
        let passed = now.saturating_duration_since(self.looked).min(PAUSE_MAX);
        self.looked = now;
        let since = |same: bool, before: Duration| match same {
            true => before + passed,
            false => Duration::ZERO,
        };
        self.silent = since(received == self.received, self.silent);
        self.quiet = since(sent == self.sent, self.quiet);
        (self.received, self.sent) = (received, sent);
        let close = usual_silence(self.keep_alive)..self.keep_alive * CLOSE_PINGS;
        close.contains(&self.silent) || self.quiet >= self.keep_alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::defaults::{DEAD_AFTER, KEEP_ALIVE};

    /// An upper bound, from the constants as they are.
    fn false_alarms_per_day(loss: f64, round_trip: Duration) -> f64 {
        let ack_delay = Duration::from_millis(25);
        let room = DEAD_AFTER - usual_silence(KEEP_ALIVE) - round_trip - ack_delay;
        let pings = room.as_nanos() / spacing(KEEP_ALIVE).as_nanos();
        let unanswered = 1.0 - (1.0 - loss) * (1.0 - loss);
        let silences = loss * 86_400.0 / KEEP_ALIVE.as_secs_f64();
        silences * unanswered.powi(i32::try_from(pings).unwrap())
    }

    #[test]
    fn lost_packets_look_like_a_dead_peer_less_than_once_in_a_million_days() {
        for (loss, round_trip_ms) in [(0.1, 200), (0.1, 600), (0.1, 900), (0.05, 900)] {
            let alarms = false_alarms_per_day(loss, Duration::from_millis(round_trip_ms));
            assert!(alarms < 1e-6, "{loss} {round_trip_ms} ms: {alarms:e}");
        }
    }

    fn watch() -> (Watch, Instant) {
        let now = Instant::now();
        (Watch::new(KEEP_ALIVE, now), now)
    }

    #[test]
    fn silence_is_followed_closely_until_something_is_heard() {
        let (mut watch, start) = watch();
        let mut pings = Vec::new();
        for step in 0..60_u32 {
            let now = start + spacing(KEEP_ALIVE) * step;
            // Something else is being sent all the time.
            if watch.look(now, 1, u64::from(step)) {
                pings.push(now - start);
            }
        }
        let first = *pings.first().unwrap();
        assert!(first >= usual_silence(KEEP_ALIVE) && first < KEEP_ALIVE * 2);
        assert!(
            pings
                .windows(2)
                .all(|pair| pair[1] - pair[0] == spacing(KEEP_ALIVE))
        );
        assert!(watch.silent > DEAD_AFTER);
        let now = start + spacing(KEEP_ALIVE) * 60;
        assert!(!watch.look(now, 2, 60));
        assert_eq!(watch.silent, Duration::ZERO);
    }

    #[test]
    fn a_side_that_has_sent_nothing_for_a_while_does_whatever_it_hears() {
        let (mut watch, start) = watch();
        let mut pings = 0;
        for step in 1..=140_u32 {
            let now = start + spacing(KEEP_ALIVE) * step;
            pings += u32::from(watch.look(now, u64::from(step), u64::from(pings)));
        }
        // 7 s with a ping at least every 0.75 s and at most every 0.7 s.
        assert!((9..=10).contains(&pings), "{pings}");
    }

    #[test]
    fn a_pause_of_our_own_is_not_the_peers_silence() {
        let (mut watch, start) = watch();
        watch.look(start, 1, 1);
        watch.look(start + DEAD_AFTER * 4, 1, 1);
        assert!(watch.silent <= PAUSE_MAX);
    }

    #[test]
    fn a_long_silence_is_no_longer_followed_closely() {
        let (mut watch, start) = watch();
        let mut pings = 0;
        let mut sent = 0;
        for step in 1..=1400_u32 {
            let now = start + spacing(KEEP_ALIVE) * step;
            if watch.look(now, 1, sent) {
                pings += 1;
                sent += 1;
            }
        }
        assert!(pings < 230, "{pings} pings in 70 s of silence");
    }

    #[test]
    fn what_is_sent_and_never_acknowledged_counts_as_silence() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let sent = |packets: u64, acknowledged: u64| Sent {
            packets,
            acknowledged,
            in_flight_bytes: (packets - acknowledged) * 1200,
        };
        let mut answers = Answers::new(start);
        assert_eq!(answers.look(at(5000), sent(7, 7)), Duration::ZERO, "idle");
        assert_eq!(answers.look(at(5400), sent(10, 7)), Duration::ZERO, "few");
        let waited = answers.look(at(5800), sent(11, 7));
        assert_eq!(waited, Duration::from_millis(800));
        // Our own pause is not the peer's.
        let waited = answers.look(at(9800), sent(11, 7));
        assert_eq!(waited, Duration::from_millis(1300));
        assert_eq!(answers.look(at(9850), sent(12, 8)), Duration::ZERO);
        // A window full of what was sent before: nothing more is.
        answers.look(at(10_000), sent(40, 20));
        let waited = answers.look(at(10_400), sent(40, 20));
        assert_eq!(waited, Duration::from_millis(400));
    }
}
