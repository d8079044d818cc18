//! One UDP test: datagrams in trains, evenly spaced, one way or both at once.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::{now_ns, precise, sleep_until};
use super::datagram_count::{Arrivals, Got};
pub use super::datagram_count::{Delays, FlowCount};
use super::datagram_socket::DatagramSocket;
use super::message::{SLICE, Token};
use super::tcp_test::{Direction, noise};

/// Most datagrams of one flow: what is kept of each fits 64 MB then.
pub const DATAGRAMS_MAX: u64 = 2_000_000;
/// Most of one train.
const TRAIN_DATAGRAMS_MAX: u32 = 1024;
const DURATION_MAX_NS: u64 = 600_000_000_000;
/// A flow whose time is over ends when none of its datagrams has come for so long.
const QUIET_NS: u64 = 600_000_000;
/// How long after its planned end a flow is waited for.
const LATE_NS: u64 = 2_000_000_000;

/// What a UDP test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowPlan {
    /// Which way.
    pub direction: Direction,
    /// Payload of each datagram.
    pub payload_bytes: u16,
    /// Trains.
    pub trains: u32,
    /// Datagrams of a train, sent back to back.
    pub train_datagrams: u32,
    /// From the beginning of a train to that of the next.
    pub gap_ns: u64,
    /// A sender that was held up makes up for so much of it, at the price of a
    /// burst.
    pub catch_up_ns: u64,
}

impl FlowPlan {
    /// Keeps the rate whatever happens.
    pub const CATCH_UP_ALL_NS: u64 = DURATION_MAX_NS;

    /// An even flow of a payload rate that can be kept in a time.
    pub fn at_rate(
        direction: Direction,
        payload_bytes: u16,
        bit_per_s: f64,
        duration_s: f64,
    ) -> Result<Self, String> {
        check_rate(payload_bytes.into(), bit_per_s, duration_s)?;
        Ok(Self::even(direction, payload_bytes, bit_per_s, duration_s))
    }

    /// An even flow of a payload rate for a time, of one datagram at least; fast
    /// ones leave in small trains.
    pub fn even(direction: Direction, payload_bytes: u16, bit_per_s: f64, duration_s: f64) -> Self {
        /// Closer together timers are not exact enough.
        const GAP_NS_MIN: f64 = 100_000.0;
        let one_ns = f64::from(payload_bytes) * 8e9 / bit_per_s.max(1.0);
        let train = (GAP_NS_MIN / one_ns)
            .ceil()
            .clamp(1.0, TRAIN_DATAGRAMS_MAX.into());
        let gap_ns = (one_ns * train).clamp(1.0, (duration_s * 1e9).max(1.0));
        Self {
            direction,
            payload_bytes,
            // More than a plan may have is refused, not cut off.
            trains: (duration_s * 1e9 / gap_ns).ceil().max(1.0) as u32,
            train_datagrams: train as u32,
            gap_ns: gap_ns as u64,
            catch_up_ns: Self::CATCH_UP_ALL_NS,
        }
    }

    /// Payload rate of a sender that is never late.
    pub fn bit_per_s(&self) -> f64 {
        let bytes = f64::from(self.train_datagrams) * f64::from(self.payload_bytes);
        bytes * 8e9 / (self.gap_ns as f64).max(1.0)
    }

    /// Datagrams in all, each way.
    pub fn datagrams(&self) -> u64 {
        u64::from(self.trains) * u64::from(self.train_datagrams)
    }

    /// How long sending takes.
    pub fn duration_ns(&self) -> u64 {
        u64::from(self.trains).saturating_mul(self.gap_ns)
    }

    /// When a sender that cannot keep up gives up: the rest is not sent.
    fn duration_max_ns(&self) -> u64 {
        let planned_ns = self.duration_ns();
        planned_ns
            .saturating_add(planned_ns / 2)
            .saturating_add(100_000_000)
    }

    /// Says what cannot be done.
    pub fn check(&self) -> Result<(), String> {
        let payload = usize::from(self.payload_bytes);
        if !(Header::BYTES..=65_507).contains(&payload) {
            let least = Header::BYTES;
            return Err(format!(
                "payload of {payload} bytes is not between {least} and 65507"
            ));
        }
        let datagrams = self.datagrams();
        if datagrams == 0 || datagrams > DATAGRAMS_MAX {
            return Err(format!(
                "{datagrams} datagrams are not between 1 and {DATAGRAMS_MAX}: make the test shorter, its rate lower or its datagrams longer"
            ));
        }
        let train = self.train_datagrams;
        if train > TRAIN_DATAGRAMS_MAX {
            return Err(format!(
                "a train of {train} datagrams is longer than {TRAIN_DATAGRAMS_MAX}"
            ));
        }
        // Nothing leaves in the last gap: it may end after the time asked for.
        let last_ns = u64::from(self.trains - 1).saturating_mul(self.gap_ns);
        match last_ns.max(self.gap_ns) {
            ns if ns > DURATION_MAX_NS => Err("a UDP test takes at most 600 s".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Refuses a payload rate at which no second datagram leaves within the test: a
/// single one has no rate.
pub(crate) fn check_rate(
    payload_bytes: u32,
    bit_per_s: f64,
    duration_s: f64,
) -> Result<(), String> {
    let least_bit_per_s = f64::from(payload_bytes) * 8.0 / duration_s;
    match bit_per_s > least_bit_per_s {
        true => Ok(()),
        false => Err(format!(
            "no two datagrams of {payload_bytes} bytes leave within {duration_s} s at that rate: it is at least {} Mbit/s, or the test longer, or its datagrams shorter",
            (least_bit_per_s.floor() + 1.0) / 1e6
        )),
    }
}

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Here I am: send to this address.
    Open,
    /// One of a flow.
    Flow,
    /// Send it back, as long and with the type of service it says.
    Echo,
    /// Sent back.
    Reply,
}

/// The beginning of every datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) token: Token,
    pub(crate) kind: Kind,
    /// In an echo: what the reply shall have; in a reply: what the echo had.
    pub(crate) tos: u8,
    /// In an echo: payload the reply shall have; in a reply: of the echo.
    pub(crate) bytes: u16,
    pub(crate) sequence: u32,
    pub(crate) sent_ns: u64,
}

impl Header {
    pub(crate) const BYTES: usize = 36;

    pub(crate) fn write(&self, datagram: &mut [u8]) {
        let kind = match self.kind {
            Kind::Open => 0,
            Kind::Flow => 1,
            Kind::Echo => 2,
            Kind::Reply => 3,
        };
        let parts = [
            &b"FHPu"[..],
            &self.token,
            &[kind, self.tos],
            &self.bytes.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.sent_ns.to_be_bytes(),
        ];
        for (at, byte) in datagram.iter_mut().zip(parts.concat()) {
            *at = byte;
        }
    }

    /// `None` for what does not belong to the session.
    pub(crate) fn read(datagram: &[u8], token: &Token) -> Option<Self> {
        let head: &[u8; Self::BYTES] = datagram.first_chunk()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (their_token, rest) = rest.split_first_chunk::<16>()?;
        if magic != b"FHPu" || their_token != token {
            return None;
        }
        let [kind, tos, rest @ ..] = rest else {
            return None;
        };
        let (bytes, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let kind = match kind {
            0 => Kind::Open,
            1 => Kind::Flow,
            2 => Kind::Echo,
            3 => Kind::Reply,
            _ => return None,
        };
        Some(Self {
            token: *token,
            kind,
            tos: *tos,
            bytes: u16::from_be_bytes(*bytes),
            sequence: u32::from_be_bytes(*sequence),
            sent_ns: u64::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

/// Sends a whole flow; returns how many datagrams left.
pub(crate) fn send_flow(
    plan: &FlowPlan,
    token: Token,
    socket: &DatagramSocket,
    to: SocketAddr,
    stop: &AtomicBool,
) -> io::Result<u64> {
    precise();
    let mut datagram = noise(usize::from(plan.payload_bytes));
    let mut sent = 0;
    let mut due_ns = now_ns();
    let until_ns = due_ns + plan.duration_max_ns();
    let is_over = || stop.load(Ordering::Relaxed) || now_ns() > until_ns;
    for train in 0..plan.trains {
        sleep_in_slices(due_ns, is_over);
        if is_over() {
            break;
        }
        let lateness_ns = now_ns().saturating_sub(due_ns);
        for nth in 0..plan.train_datagrams {
            // A slow device may take seconds for a train.
            if is_over() {
                break;
            }
            let header = Header {
                token,
                kind: Kind::Flow,
                tos: 0,
                bytes: 0,
                sequence: train * plan.train_datagrams + nth,
                sent_ns: now_ns(),
            };
            header.write(&mut datagram);
            match socket.send_to(&datagram, to) {
                Ok(_) => sent += 1,
                Err(error) => pass_over(error)?,
            }
        }
        due_ns += plan.gap_ns + lateness_ns.saturating_sub(plan.catch_up_ns);
    }
    Ok(sent)
}

/// Sleeps until a time, or until it is over before.
fn sleep_in_slices(at_ns: u64, is_over: impl Fn() -> bool) {
    let slice_ns = u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let now = now_ns();
        if now >= at_ns || is_over() {
            return;
        }
        sleep_until(at_ns.min(now.saturating_add(slice_ns)));
    }
}

/// Full buffers and ICMP errors are part of the test.
fn pass_over(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::EMSGSIZE | libc::EHOSTUNREACH | libc::ECONNREFUSED) => Ok(()),
        Some(libc::EAGAIN | libc::EINTR | libc::ENETUNREACH | libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}

/// When datagrams of a flow came.
#[derive(Debug, Clone, Copy)]
struct Came {
    first_ns: u64,
    last_ns: u64,
}

impl Came {
    fn first(at_ns: u64) -> Self {
        Self {
            first_ns: at_ns,
            last_ns: at_ns,
        }
    }

    /// Whether nothing more is to be expected: a circuit that is away for a while comes back.
    fn is_over(self, plan: &FlowPlan, now_ns: u64) -> bool {
        let quiet_ns = now_ns.saturating_sub(self.last_ns);
        let is_sent = now_ns.saturating_sub(self.first_ns) >= plan.duration_ns();
        is_sent && quiet_ns > QUIET_NS + plan.gap_ns
    }
}

/// Receives a whole flow from one address.
pub(crate) fn receive_flow(
    plan: &FlowPlan,
    token: Token,
    socket: &DatagramSocket,
    from: IpAddr,
    stop: &AtomicBool,
) -> io::Result<FlowCount> {
    socket.set_patience(Duration::from_millis(100))?;
    let until_ns = now_ns() + plan.duration_max_ns() + LATE_NS;
    let mut buffer = vec![0; 65_535];
    let mut arrivals = Arrivals::of(plan);
    let mut came = None::<Came>;
    let start_ns = now_ns();
    let mut is_cut_off = false;
    while !arrivals.is_whole() && !is_cut_off && !stop.load(Ordering::Relaxed) {
        let now = now_ns();
        // Whatever comes, and also where nothing of it belongs to the flow.
        is_cut_off = now > until_ns;
        let Some((arrival, sender)) = socket.receive(&mut buffer)? else {
            // Only an empty socket is quiet; a reader that was held up is not.
            let is_over = came.is_some_and(|came| came.is_over(plan, now));
            match is_over || is_cut_off {
                true => {
                    is_cut_off = false;
                    break;
                }
                false => continue,
            }
        };
        let datagram = buffer.get(..arrival.length).unwrap_or_default();
        let Some(header) = Header::read(datagram, &token) else {
            continue;
        };
        if header.kind != Kind::Flow || sender.ip() != from {
            continue;
        }
        let at_ns = now_ns();
        came.get_or_insert(Came::first(at_ns)).last_ns = at_ns;
        arrivals.take(Got {
            sequence: header.sequence,
            dropped: arrival.dropped,
            sent_ns: header.sent_ns,
            at_ns: arrival.at_ns.max(start_ns),
        });
    }
    let firsts = arrivals.firsts();
    let dropped = match (is_cut_off, firsts.last()) {
        (true, Some(last)) => last.dropped,
        _ => socket.dropped()?,
    };
    Ok(FlowCount {
        duplicates: arrivals.duplicates,
        ..FlowCount::of(plan, firsts, u64::from(dropped), is_cut_off)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_strangers_do_not_count() {
        for kind in [Kind::Open, Kind::Flow, Kind::Echo, Kind::Reply] {
            let header = Header {
                token: [9; 16],
                kind,
                tos: 0xb8,
                bytes: 1472,
                sequence: 70_000,
                sent_ns: 1 << 40,
            };
            let mut datagram = [0; 64];
            header.write(&mut datagram);
            assert_eq!(Header::read(&datagram, &[9; 16]), Some(header));
            assert_eq!(Header::read(&datagram, &[8; 16]), None);
            assert_eq!(Header::read(&datagram[..35], &[9; 16]), None);
        }
    }

    /// What a receiver makes of datagrams that were sent to it as `send` says, or still are.
    fn received(plan: FlowPlan, send: impl FnOnce(&DatagramSocket, SocketAddr)) -> FlowCount {
        let local = IpAddr::from([127, 0, 0, 1]);
        let any = SocketAddr::new(local, 0);
        let bind = || DatagramSocket::bind(any, Duration::from_millis(100)).unwrap();
        let (near, far) = (bind(), bind());
        let to = SocketAddr::new(local, far.port().unwrap());
        // They wait in its buffer: neither end's pace matters.
        send(&near, to);
        receive_flow(&plan, TOKEN, &far, local, &AtomicBool::new(false)).unwrap()
    }

    const TOKEN: Token = [9; 16];

    fn flow_of(datagrams: u32) -> FlowPlan {
        FlowPlan {
            direction: Direction::Up,
            payload_bytes: 100,
            trains: datagrams,
            train_datagrams: 1,
            gap_ns: 1_000_000,
            catch_up_ns: FlowPlan::CATCH_UP_ALL_NS,
        }
    }

    fn send_one(from: &DatagramSocket, to: SocketAddr, sequence: u32) {
        let mut datagram = [0; 100];
        let header = Header {
            token: TOKEN,
            kind: Kind::Flow,
            tos: 0,
            bytes: 0,
            sequence,
            sent_ns: now_ns(),
        };
        header.write(&mut datagram);
        from.send_to(&datagram, to).unwrap();
    }

    #[test]
    fn a_flow_goes_on_behind_an_outage_and_ends_when_all_should_have_come() {
        const MS: u64 = 1_000_000;
        // 5 s.
        let plan = flow_of(5000);
        let came = |last_ms: u64| Came {
            last_ns: last_ms * MS,
            ..Came::first(0)
        };
        assert!(!came(1000).is_over(&plan, 4999 * MS));
        assert!(came(1000).is_over(&plan, 5000 * MS));
        assert!(!came(4990).is_over(&plan, 5500 * MS));
        assert!(came(4990).is_over(&plan, 5600 * MS));
        // A sender that is held up sends on.
        assert!(!came(6000).is_over(&plan, 6500 * MS));
    }

    #[test]
    fn datagrams_that_come_twice_take_nobodys_place() {
        let count = received(flow_of(50), |near, to| {
            for sequence in 0..50 {
                send_one(near, to, sequence);
                send_one(near, to, sequence);
            }
        });
        assert_eq!(count.received, 50, "{count:?}");
        // The last one's copy is not waited for.
        assert_eq!(count.duplicates, 49, "{count:?}");
        let way = crate::probe::observe::FlowWay::from((50, count));
        assert_eq!(way.lost, 0);
    }

    #[test]
    fn what_does_not_belong_to_a_flow_does_not_prolong_it() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let over = AtomicBool::new(false);
            let count = std::thread::scope(|scope| {
                let count = received(flow_of(50), |near, to| {
                    send_one(near, to, 3);
                    send_one(near, to, 70);
                    let over = &over;
                    scope.spawn(move || {
                        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                        while !over.load(Ordering::Relaxed) {
                            let _ = stranger.send_to(b"what is this?", to);
                        }
                    });
                });
                over.store(true, Ordering::Relaxed);
                count
            });
            done.send(count).unwrap();
        });
        // It has 2.2 s.
        let count = is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(count.received, 1, "{count:?}");
    }

    /// How many datagrams leave, and how long that takes, where the test is over soon.
    fn sent_until_stopped(plan: FlowPlan) -> (u64, Duration) {
        let local = IpAddr::from([127, 0, 0, 1]);
        let any = SocketAddr::new(local, 0);
        let bind = || DatagramSocket::bind(any, Duration::from_millis(100)).unwrap();
        let (near, far) = (bind(), bind());
        let to = SocketAddr::new(local, far.port().unwrap());
        let (stop, begin) = (AtomicBool::new(false), std::time::Instant::now());
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| send_flow(&plan, TOKEN, &near, to, &stop).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Relaxed);
            sending.join().unwrap()
        });
        (sent, begin.elapsed())
    }

    #[test]
    fn a_sender_is_stopped_within_a_gap_and_within_a_train() {
        const GAP_NS: u64 = 300_000_000_000;
        let plan_of = |trains, train_datagrams| FlowPlan {
            trains,
            train_datagrams,
            gap_ns: GAP_NS,
            ..flow_of(1)
        };
        // Minutes, both, if nobody ended them.
        for (plan, most) in [(plan_of(2, 1), 1), (plan_of(1, u32::MAX), u32::MAX.into())] {
            let (sent, took) = sent_until_stopped(plan);
            assert!(sent <= most, "{sent}");
            assert!(took < Duration::from_secs(20), "{took:?}");
        }
    }

    #[test]
    fn trains_have_a_bound() {
        let mut plan = flow_of(1);
        plan.train_datagrams = TRAIN_DATAGRAMS_MAX;
        assert_eq!(plan.check(), Ok(()));
        plan.train_datagrams += 1;
        assert!(plan.check().unwrap_err().contains("1025"));
        // The fastest there is.
        let fast = FlowPlan::even(Direction::Down, 36, 1e12, 0.0001);
        assert_eq!((fast.train_datagrams, fast.check()), (1024, Ok(())));
    }

    #[test]
    fn an_even_flow_has_the_rate_asked_for() {
        for (bit_per_s, payload, duration_s) in [
            (1e6, 1000, 1.0),
            (1e9, 1472, 1.0),
            (50e6, 36, 1.0),
            (100.0, 36, 3.0),
            (1000.0, 1400, 30.0),
        ] {
            let plan = FlowPlan::at_rate(Direction::Up, payload, bit_per_s, duration_s).unwrap();
            let share = plan.bit_per_s() / bit_per_s;
            assert!((0.99..1.01).contains(&share), "{bit_per_s}: {plan:?}");
            assert!(plan.check().is_ok(), "{plan:?}");
            let begun_ns = u64::from(plan.trains - 1) * plan.gap_ns;
            assert!(begun_ns < (duration_s * 1e9) as u64, "{plan:?}");
        }
    }

    #[test]
    fn a_rate_that_cannot_be_kept_is_refused_with_the_least_one() {
        let of_rate = |bit_per_s| FlowPlan::at_rate(Direction::Up, 1400, bit_per_s, 5.0);
        for bit_per_s in [1e-294, 1000.0, 2240.0] {
            let why = of_rate(bit_per_s).unwrap_err();
            assert!(why.contains("at least 0.002241 Mbit/s"), "{why}");
        }
        assert_eq!(of_rate(2241.0).unwrap().datagrams(), 2);
    }

    #[test]
    fn flows_have_bounds() {
        let mut plan = FlowPlan::even(Direction::Up, 1472, 1e9, 1.0);
        plan.trains = u32::MAX;
        assert!(plan.check().is_err());
        let long = FlowPlan::even(Direction::Up, 1000, 80e6, 300.0);
        assert_eq!(long.datagrams(), 3_000_000);
        assert!(long.check().unwrap_err().contains("shorter"));
        // No whole number of gaps.
        let longest = |duration_s| FlowPlan::even(Direction::Up, 1400, 1e6, duration_s).check();
        assert_eq!(longest(600.0), Ok(()));
        assert!(longest(600.1).unwrap_err().contains("600 s"));
        let endless = FlowPlan {
            gap_ns: u64::MAX,
            ..flow_of(1)
        };
        assert!(endless.check().unwrap_err().contains("600 s"));
        plan.trains = 0;
        assert!(plan.check().is_err());
        plan.payload_bytes = 3;
        assert!(plan.check().is_err());
    }
}
