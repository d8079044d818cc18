//! One tunnel's error correction, shared by its session and the socket.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_tunnel::Side;
use farhaul_tunnel::fec::{
    CorrectionState, Decoder, Header, Observation, Protection, Repair, Report,
};
use ring::hmac;
use tokio::sync::Notify;

use super::copies::Copies;
use crate::lock::lock;
use crate::quic::flight::Flight;

const EXPORTER_LABEL: &[u8] = b"EXPORTER-farhaul-fec-1";
const KEY_BYTES: usize = 32;
/// Number and key.
const HALF_BYTES: usize = 4 + KEY_BYTES;
/// What of a datagram is not payload of frames, about: QUIC's header, tag and
/// the frames' own headers.
const OVERHEAD_BYTES: usize = 64;
/// After this without a sign of repairs to come, arrivals are no longer kept.
const KEPT_NS: u64 = 3_000_000_000;
/// A sender of repairs says so this often, so that the other side keeps what
/// arrives.
const REPORT_INTERVAL_NS: u64 = 500_000_000;
/// Between two copies of a datagram: losses come in bursts.
pub const PAUSE: Duration = Duration::from_millis(10);

/// What the transport has counted at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wire {
    /// The moment, nanoseconds.
    pub now_ns: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets counted lost.
    pub lost: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Sent, neither acknowledged nor counted lost, bytes.
    pub in_flight_bytes: u64,
    /// Round trip, nanoseconds.
    pub rtt_ns: u64,
    /// Largest datagram of the path, bytes.
    pub mtu_bytes: usize,
}

/// Figures for status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Whether repairs are sent at the moment.
    pub is_on: bool,
    /// What is done about the path's losses.
    pub state: CorrectionState,
    /// Loss on the way to the peer before repair, 0 to 1.
    pub loss: f64,
    /// Mean length of a burst of losses, datagrams.
    pub burst: f64,
    /// Repairs sent.
    pub repairs: u64,
    /// Their bytes, and those of reports.
    pub sent_bytes: u64,
    /// Share of repairs in all bytes sent lately, 0 to 1.
    pub share: f64,
    /// Datagrams of the peer recovered here.
    pub recovered: u64,
    /// Bytes of repairs and reports received.
    pub received_bytes: u64,
    /// Bytes of datagrams recovered here.
    pub recovered_bytes: u64,
}

struct Half {
    number: u32,
    key: hmac::Key,
}

impl Half {
    fn new(secret: &[u8; HALF_BYTES]) -> Self {
        let [a, b, c, d, key @ ..] = secret;
        Self {
            number: u32::from_be_bytes([*a, *b, *c, *d]),
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    fn tag(&self, header: &Header<'_>) -> hmac::Tag {
        let mut signing = hmac::Context::with_key(&self.key);
        signing.update(header.prefix);
        signing.update(header.fields);
        signing.sign()
    }

    fn seal(&self, message: &mut [u8]) {
        if let Ok(tag) = Header::read(message).map(|header| self.tag(&header)) {
            Header::seal(message, tag.as_ref());
        }
    }

    fn has_sealed(&self, header: &Header<'_>) -> bool {
        let tag = self.tag(header);
        let pairs = tag.as_ref().iter().zip(header.tag);
        pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// Tells apart what QUIC sends: acknowledgements, which nobody counts, and content, which its controller counted before.
#[derive(Default)]
struct ToldApart {
    flight: Option<Arc<Flight>>,
    /// Packets with content that the controller had been told of when it was asked last,
    counted: u64,
    /// and those of them that have not been seen here.
    coming: u64,
}

impl ToldApart {
    fn begin(&mut self) {
        self.coming = 0;
        self.counted = self
            .flight
            .as_ref()
            .map_or(0, |flight| flight.sent_packets());
    }

    /// Whether the datagram that is sent now has content.
    fn is_content(&mut self) -> bool {
        let Some(flight) = &self.flight else {
            return false;
        };
        let counted = flight.sent_packets();
        self.coming += counted.saturating_sub(std::mem::replace(&mut self.counted, counted));
        let is_content = self.coming > 0;
        self.coming = self.coming.saturating_sub(1);
        is_content
    }
}

#[derive(Default)]
struct Sending {
    protection: Protection,
    /// Bytes of repairs and of everything, halved now and then.
    lately: (f64, f64),
}

#[derive(Default)]
struct Receiving {
    decoder: Decoder,
    /// The peer's latest report.
    report: Option<Report>,
    /// Its counters since the beginning: missing, runs, recovered in time.
    missing: u64,
    runs: u64,
    recovered: u64,
    sequence: u32,
    reported_ns: u64,
    /// What we reported last.
    told: Option<Report>,
    /// A sign of repairs to come was seen since the last tick.
    is_expecting: bool,
    expected_ns: u64,
}

/// One tunnel's error correction.
pub struct Channel {
    outgoing: Half,
    incoming: Half,
    /// Bytes of protected frames that QUIC sends next.
    pending_bytes: AtomicUsize,
    mtu_bytes: AtomicUsize,
    /// Whether all that is sent was sent before.
    is_rest: AtomicBool,
    copies: Mutex<Copies>,
    /// Something may wait there.
    for_copies: Notify,
    told_apart: Mutex<ToldApart>,
    /// Whether arriving datagrams are kept for repairs to come.
    is_keeping: AtomicBool,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    recovered_bytes: AtomicU64,
    /// What was last told of.
    told: Mutex<CorrectionState>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    pub(super) fn of(connection: &noq::Connection, side: Side) -> Option<Self> {
        let mut secret = [0; 2 * HALF_BYTES];
        let exported = connection.export_keying_material(&mut secret, EXPORTER_LABEL, b"");
        exported.ok()?;
        Self::from_secret(&secret, side)
    }

    fn from_secret(secret: &[u8; 2 * HALF_BYTES], side: Side) -> Option<Self> {
        let (dialer, acceptor) = secret.split_at(HALF_BYTES);
        let dialer = Half::new(dialer.try_into().ok()?);
        let acceptor = Half::new(acceptor.try_into().ok()?);
        let (outgoing, incoming) = match side {
            Side::Dialer => (dialer, acceptor),
            Side::Acceptor => (acceptor, dialer),
        };
        Some(Self {
            outgoing,
            incoming,
            pending_bytes: AtomicUsize::new(0),
            mtu_bytes: AtomicUsize::new(0),
            is_rest: AtomicBool::new(false),
            copies: Mutex::default(),
            for_copies: Notify::new(),
            told_apart: Mutex::default(),
            is_keeping: AtomicBool::new(false),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            recovered_bytes: AtomicU64::new(0),
            told: Mutex::default(),
        })
    }

    /// The number of what arrives.
    pub(super) fn number(&self) -> u32 {
        self.incoming.number
    }

    /// A frame of so many bytes is about to be handed to QUIC and shall be
    /// protected. Frames go by priority, so it is what QUIC sends next.
    pub fn protect(&self, frame_bytes: usize) {
        self.pending_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
    }

    /// This counts what QUIC sends from now on.
    pub fn watch(&self, flight: Option<Arc<Flight>>) {
        let mut told_apart = lock(&self.told_apart);
        told_apart.flight = flight;
        told_apart.begin();
    }

    /// From now on all that QUIC sends was lost before, for there is nothing new, and somebody waits for it; or that is over. What
    /// was lost before goes more than once.
    pub fn repeat_rest(&self, is_rest: bool) {
        let was_rest = self.is_rest.swap(is_rest, Ordering::Relaxed);
        if is_rest && !was_rest {
            lock(&self.told_apart).begin();
        }
    }

    /// Whether copies are worth their bytes: the path loses packets.
    pub fn is_copying(&self) -> bool {
        lock(&self.sending).protection.copies_while_idle() > 0
    }

    /// Waits until there are copies.
    pub async fn copied(&self) {
        while lock(&self.copies).is_empty() {
            self.for_copies.notified().await;
        }
    }

    /// The copies that may go after another [`PAUSE`] on a path of this rate, in which so much else was sent.
    pub fn due_copies(&self, rate_bytes_s: u64, else_bytes: u64) -> Vec<Vec<u8>> {
        let mut copies = lock(&self.copies);
        copies.handle_pause(rate_bytes_s, else_bytes);
        let due: Vec<_> = std::iter::from_fn(|| copies.poll()).collect();
        let bytes: usize = due.iter().map(Vec::len).sum();
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        due
    }

    /// How often a frame should be sent again, where a copy costs so many bytes of what may be
    /// spent on repairs; 0 where none are sent or it cannot be afforded.
    pub fn pay_for_copies(&self, copy_bytes: usize) -> usize {
        lock(&self.sending).protection.pay_for_copies(copy_bytes)
    }

    /// QUIC has sent a datagram.
    pub(super) fn handle_sent(&self, datagram: &[u8]) {
        let used = datagram.len().saturating_sub(OVERHEAD_BYTES).max(1);
        let left = |pending: usize| Some(pending.saturating_sub(used));
        let pending = self
            .pending_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .unwrap_or(0);
        let mtu_bytes = self.mtu_bytes.load(Ordering::Relaxed);
        let is_rest = self.is_rest.load(Ordering::Relaxed) && lock(&self.told_apart).is_content();
        let mut sending = lock(&self.sending);
        if is_rest {
            let times = sending.protection.copies_while_idle();
            lock(&self.copies).push(datagram, times);
            self.for_copies.notify_one();
        }
        sending.lately.1 += datagram.len() as f64;
        sending
            .protection
            .handle_sent(datagram, pending.min(datagram.len()));
        // A datagram that is not full: QUIC has nothing more to say. Behind a
        // full one something follows, and if it is an acknowledgement.
        let is_short = datagram.len() + OVERHEAD_BYTES < mtu_bytes;
        if pending > 0 && is_short {
            sending.protection.handle_pause();
        }
    }

    /// The next repair to be sent, sealed.
    pub(super) fn poll_repair(&self, out: &mut Vec<u8>) -> bool {
        let mut sending = lock(&self.sending);
        let Some(repair) = sending.protection.poll_repair() else {
            return false;
        };
        repair.write(self.outgoing.number, out);
        self.outgoing.seal(out);
        sending.lately.0 += out.len() as f64;
        sending.lately.1 += out.len() as f64;
        self.sent_bytes
            .fetch_add(out.len() as u64, Ordering::Relaxed);
        true
    }

    /// A datagram for QUIC has arrived. Returns whether it made others
    /// recoverable, which [`Channel::poll_recovered`] then gives.
    pub(super) fn handle_datagram(&self, datagram: &[u8]) -> bool {
        if !self.is_keeping.load(Ordering::Relaxed) {
            return false;
        }
        let mut receiving = lock(&self.receiving);
        receiving.decoder.handle_datagram(datagram);
        receiving.decoder.has_recovered()
    }

    /// A message with this channel's number has arrived. `None` where it is
    /// not the peer's; else whether datagrams were recovered.
    pub(super) fn handle_message(&self, header: &Header<'_>) -> Option<bool> {
        if !self.incoming.has_sealed(header) {
            return None;
        }
        let bytes = header.prefix.len() + header.tag.len() + header.fields.len();
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        let mut receiving = lock(&self.receiving);
        if header.is_report().ok()? {
            receiving.handle_report(Report::read(header.fields).ok()?);
        } else {
            let repair = Repair::read(header.fields).ok()?;
            receiving.is_expecting = true;
            receiving.decoder.handle_repair(&repair);
        }
        if receiving.is_expecting {
            self.is_keeping.store(true, Ordering::Relaxed);
        }
        Some(receiving.decoder.has_recovered())
    }

    /// The next datagram recovered.
    pub(super) fn poll_recovered(&self) -> Option<Vec<u8>> {
        let recovered = lock(&self.receiving).decoder.poll_recovered()?;
        self.recovered_bytes
            .fetch_add(recovered.len() as u64, Ordering::Relaxed);
        Some(recovered)
    }

    /// To be called some times a second. Gives the report that is due.
    pub fn tick(&self, wire: Wire) -> Option<Vec<u8>> {
        self.mtu_bytes.store(wire.mtu_bytes, Ordering::Relaxed);
        let mut receiving = lock(&self.receiving);
        let observation = Observation {
            now_ns: wire.now_ns,
            sent: wire.sent,
            lost: wire.lost,
            recovered: receiving.recovered,
            missing: receiving.missing,
            runs: receiving.runs,
            acknowledged: wire.acknowledged,
            in_flight_bytes: wire.in_flight_bytes,
            rtt_ns: wire.rtt_ns,
        };
        let protects = {
            let mut sending = lock(&self.sending);
            sending.lately.0 *= 0.9;
            sending.lately.1 *= 0.9;
            sending.protection.observe(observation);
            sending.protection.adaptation().is_on()
        };
        let is_keeping = receiving.is_keeping(wire.now_ns);
        self.is_keeping.store(is_keeping, Ordering::Relaxed);
        let report = receiving.next_report(wire.now_ns, protects)?;
        let mut message = Vec::new();
        report.write(self.outgoing.number, &mut message);
        self.outgoing.seal(&mut message);
        self.sent_bytes
            .fetch_add(message.len() as u64, Ordering::Relaxed);
        Some(message)
    }

    /// What is done about the path's losses, where that has changed since this was last asked,
    /// and the loss. Pauses while a queue is full are no change worth telling.
    pub fn take_change(&self) -> Option<(CorrectionState, f64)> {
        let sending = lock(&self.sending);
        let adaptation = sending.protection.adaptation();
        let state = adaptation.state();
        let told = std::mem::replace(&mut *lock(&self.told), state);
        (told != state).then(|| (state, adaptation.loss()))
    }

    /// Figures of the moment.
    pub fn figures(&self) -> Figures {
        let sending = lock(&self.sending);
        let adaptation = sending.protection.adaptation();
        let (repairs, all) = sending.lately;
        let mut figures = Figures {
            is_on: adaptation.is_on(),
            state: adaptation.state(),
            loss: adaptation.loss(),
            burst: adaptation.burst(),
            repairs: sending.protection.repairs(),
            share: if all > 0.0 { repairs / all } else { 0.0 },
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            recovered_bytes: self.recovered_bytes.load(Ordering::Relaxed),
            recovered: 0,
        };
        drop(sending);
        figures.recovered = lock(&self.receiving).decoder.tally().recovered;
        figures
    }
}

impl Receiving {
    fn handle_report(&mut self, report: Report) {
        let before = self.report.unwrap_or_default();
        let is_newer = (1..1 << 31).contains(&report.sequence.wrapping_sub(before.sequence));
        if !is_newer {
            return;
        }
        let grown = |now: u32, before: u32| u64::from(now.wrapping_sub(before));
        let in_time = |report: &Report| report.recovered.wrapping_sub(report.late);
        self.missing += grown(report.missing, before.missing);
        self.runs += grown(report.runs, before.runs);
        // More of them late than recovered: reordering, not loss.
        let recovered = in_time(&report)
            .wrapping_sub(in_time(&before))
            .cast_signed();
        self.recovered += u64::try_from(recovered).unwrap_or(0);
        self.is_expecting |= report.protects;
        self.report = Some(report);
    }

    fn is_keeping(&mut self, now_ns: u64) -> bool {
        if std::mem::take(&mut self.is_expecting) {
            self.expected_ns = now_ns + KEPT_NS;
        } else if self.expected_ns != 0 && now_ns > self.expected_ns {
            self.expected_ns = 0;
            self.decoder.rest();
        }
        self.expected_ns != 0
    }

    fn next_report(&mut self, now_ns: u64, protects: bool) -> Option<Report> {
        let mut report = self.decoder.report(self.sequence, protects);
        let is_news = match self.told {
            Some(told) => report != told,
            None => protects || report.repairs > 0,
        };
        let is_due = protects && now_ns.saturating_sub(self.reported_ns) >= REPORT_INTERVAL_NS;
        if !(is_news || is_due) {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        report.sequence = self.sequence;
        self.reported_ns = now_ns;
        self.told = Some(report);
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let secret: Vec<u8> = (0..2 * HALF_BYTES as u8).collect();
        let secret = secret.as_slice().try_into().unwrap();
        (
            Channel::from_secret(secret, Side::Dialer).unwrap(),
            Channel::from_secret(secret, Side::Acceptor).unwrap(),
        )
    }

    /// A path that loses `loss` of its packets, at second `at_s`.
    fn wire(at_s: u64, loss: f64) -> Wire {
        let sent = at_s * 1000;
        Wire {
            now_ns: at_s * 1_000_000_000,
            sent,
            lost: (sent as f64 * loss) as u64,
            rtt_ns: 60_000_000,
            mtu_bytes: 1472,
            ..Wire::default()
        }
    }

    fn datagram(number: u8, bytes: usize) -> Vec<u8> {
        let noise = |i: usize| (i as u8).wrapping_mul(31) ^ number.wrapping_mul(87);
        (0..bytes).map(noise).collect()
    }

    fn deliver(to: &Channel, message: &[u8]) -> Option<bool> {
        to.handle_message(&Header::read(message).unwrap())
    }

    /// Makes `from` send repairs and `to` keep what arrives.
    fn switch_on(from: &Channel, to: &Channel) {
        from.tick(wire(1, 0.0));
        let report = from.tick(wire(9, 0.01)).expect("says that repairs follow");
        assert_eq!(deliver(to, &report), Some(false));
        to.tick(wire(9, 0.0));
        assert!(from.figures().is_on);
    }

    #[test]
    fn a_lost_datagram_is_recovered_at_the_other_end() {
        let (near, far) = pair();
        switch_on(&near, &far);
        near.protect(3000);
        let sent = [datagram(1, 1472), datagram(2, 1472), datagram(3, 500)];
        for (index, datagram) in sent.iter().enumerate() {
            near.handle_sent(datagram);
            if index != 1 {
                assert!(!far.handle_datagram(datagram));
            }
        }
        let mut message = Vec::new();
        let mut recovered = Vec::new();
        while near.poll_repair(&mut message) {
            assert!(message.len() <= 1200);
            deliver(&far, &message).expect("is ours");
            recovered.extend(std::iter::from_fn(|| far.poll_recovered()));
        }
        assert_eq!(recovered, [sent[1].clone()]);
        let report = far.tick(wire(10, 0.0)).expect("tells what it recovered");
        deliver(&near, &report).expect("is ours");
        assert_eq!(lock(&near.receiving).recovered, 1);
        assert!(near.figures().repairs >= 2 && near.figures().share > 0.0);
    }

    #[test]
    fn bulk_after_what_is_protected_gets_no_repairs() {
        let (near, far) = pair();
        switch_on(&near, &far);
        near.protect(1000);
        for number in 0..100 {
            near.handle_sent(&datagram(number, 1472));
        }
        let mut message = Vec::new();
        let mut repairs = 0;
        while near.poll_repair(&mut message) {
            repairs += 1;
            let fields = Header::read(&message).unwrap().fields;
            assert_eq!(fields[3], 1, "covers the first datagram only");
        }
        assert!((2..=4).contains(&repairs));
    }

    #[test]
    fn what_another_has_sealed_or_somebody_changed_is_refused() {
        let (near, far) = pair();
        switch_on(&near, &far);
        near.protect(10);
        near.handle_sent(&datagram(1, 100));
        let mut message = Vec::new();
        assert!(near.poll_repair(&mut message));
        assert_eq!(deliver(&near, &message), None, "reflected");
        for index in 0..message.len() {
            let mut changed = message.clone();
            changed[index] ^= 0x40;
            assert_eq!(deliver(&far, &changed), None, "byte {index}");
        }
        assert!(deliver(&far, &message).is_some());
    }

    #[test]
    fn nothing_is_sent_and_nothing_kept_without_loss() {
        let (near, far) = pair();
        for second in 1..100 {
            assert!(near.tick(wire(second, 0.0)).is_none());
        }
        near.protect(100_000);
        let datagram = datagram(1, 1472);
        near.handle_sent(&datagram);
        assert!(!near.poll_repair(&mut Vec::new()));
        assert!(!far.handle_datagram(&datagram));
        assert!(!far.is_keeping.load(Ordering::Relaxed));
    }

    #[test]
    fn what_is_kept_is_let_go_when_repairs_cease() {
        let (near, far) = pair();
        switch_on(&near, &far);
        assert!(far.is_keeping.load(Ordering::Relaxed));
        for second in 10..14 {
            far.tick(wire(second, 0.0));
        }
        assert!(!far.is_keeping.load(Ordering::Relaxed));
    }

    #[test]
    fn old_reports_say_nothing() {
        let mut receiving = Receiving::default();
        let report = |sequence, recovered| Report {
            sequence,
            recovered,
            ..Report::default()
        };
        receiving.handle_report(report(2, 5));
        receiving.handle_report(report(1, 900));
        receiving.handle_report(report(2, 900));
        assert_eq!(receiving.recovered, 5);
        receiving.handle_report(report(3, 9));
        assert_eq!(receiving.recovered, 9);
    }
}
