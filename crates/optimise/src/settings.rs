//! What an optimiser is told about its link and its bounds.

/// Milliseconds as nanoseconds.
const MS: u64 = 1_000_000;

/// Two gateways, a server and a client take so long for a block, however short the link between them.
const TURN_NS_MIN: u64 = 5 * MS;
/// A switch or two between the gateways: what is read ahead comes no earlier than what is asked for.
const RTT_NS_MIN: u64 = 300_000;
/// On a link so fast, bytes per second, a block is there before it matters that somebody waits for it,
const FAST_BYTES_S: u64 = 25_000_000;
/// unless the round trip is longer.
const FAST_RTT_NS_MIN: u64 = 2 * MS;
/// At most so many bytes are read ahead of a connection, and so many of its writes answered early,
const AHEAD_BYTES_MAX: u64 = 16 << 20;
const BEHIND_BYTES_MAX: u128 = 16 << 20;
/// and so many more where what is lost has to be sent again.
const REPAIR_BYTES_MAX: u64 = 24 << 20;
/// So much of what was read ahead is kept, whatever is known of the link here: the far half may know of a loss earlier.
pub(crate) const KEPT_BYTES_MAX: u64 = AHEAD_BYTES_MAX + REPAIR_BYTES_MAX;
/// A packet of which one of so many is lost needs a repair, which may be lost as well. Round trips for each: it is missed, sent
/// again, and what comes behind it waits at the other end.
const TRIPS_OF_REPAIR: f64 = 2.0;
const PACKET_BYTES: u64 = 1_400;
/// Round trips until what is missing has been sent again: so long after it was sent the tunnel takes a packet for lost (RFC 9002
/// section 6.1.2, with a factor of the gateway's).
const TRIPS_OF_ONE_REPAIR: f64 = 1.25;
/// A repair that is lost, too, takes another one. It is reckoned with where it is likelier than this: of who reads a file from its
/// beginning most read on, and a link that stands still costs them as much as what is in vain costs it.
const LOST_AGAIN_MIN: f64 = 0.25;
const BLOCK_BYTES: u64 = 64 << 10;
/// With less that the link carries in 3 s, two blocks of 60 KB take longer than a server waits for an oplock.
const QUICK_BYTES_MIN: u128 = 24_000;
/// Nothing is done ahead of others beyond what the link carries in this time: somebody may wait for the file to be let go.
const QUEUE_S_MAX: u128 = 3;
/// But a block of a client's at least is answered early.
const BEHIND_BYTES_MIN: u128 = 64 << 10;
/// The tunnel looks for a new link's rate by trains, and the second one may be of so much,
const TRAIN_BYTES: u64 = 512 << 10;
/// where a round trip takes so long; the rate of a shorter link is found sooner, by what is read ahead anyway.
const TRAIN_RTT_NS: u64 = 150 * MS;

/// One per flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Round trip of the link.
    pub rtt_ns: u64,
    /// With less nothing is gained: [`Reason::NoGain`](crate::Reason::NoGain).
    pub rtt_ns_min: u64,
    /// What the link carries while a block is fetched: what it holds in one round trip, or more. Where reading ahead begins.
    pub bdp_bytes: u64,
    /// What the link carries in one round trip: so much saves who need not wait for an answer from beyond it.
    pub trip_bytes: u64,
    /// Where it begins for who reads a file from the beginning: as much, and what the link carries while the first block is
    /// waited for, if a part of that is likely to be lost; once more while the link is being found.
    pub start_bytes: u64,
    /// Whether a part of what is sent is likely to be lost.
    pub is_lossy: bool,
    /// Where reading ahead ends, but for blocks that are on their way: the tunnel learns a higher rate only from who has more to send
    /// than the rate it knows, and what waits for a repair is ahead, too.
    pub full_bytes: u64,
    /// Whether a file that others want could be let go in time: the near half hears of that behind a block of the client's or
    /// two. Believed until the rate is known ([`with_least_rate`](Self::with_least_rate)).
    pub is_quick: bool,
    /// The most that is read ahead of a connection's client, all its files together.
    pub ahead_bytes_max: u64,
    /// What the link carries of the connection while somebody waits for a file.
    pub queue_bytes_max: u64,
    /// The most of a connection's writes that are answered before the server has.
    pub behind_bytes_max: u64,
    /// How long the first bytes are waited for when some have come.
    pub detect_ns_max: u64,
}

impl Settings {
    /// For a link of this rate, or a share of one, and round trip.
    #[must_use]
    pub fn of_link(rate_bytes_s: u64, rtt_ns: u64) -> Self {
        let bdp_bytes = bytes_in(rate_bytes_s, rtt_ns.max(TURN_NS_MIN));
        Self {
            rtt_ns,
            rtt_ns_min: match rate_bytes_s < FAST_BYTES_S {
                true => RTT_NS_MIN,
                false => FAST_RTT_NS_MIN,
            },
            bdp_bytes,
            trip_bytes: bytes_in(rate_bytes_s, rtt_ns),
            start_bytes: bdp_bytes,
            is_lossy: false,
            full_bytes: bdp_bytes.saturating_mul(2),
            is_quick: queue_bytes(rate_bytes_s) >= QUICK_BYTES_MIN,
            ahead_bytes_max: AHEAD_BYTES_MAX,
            queue_bytes_max: u64::try_from(queue_bytes(rate_bytes_s)).unwrap_or(u64::MAX),
            behind_bytes_max: behind_bytes(rate_bytes_s, rtt_ns),
            detect_ns_max: 200 * MS,
        }
    }

    /// The same link, whose round trip is so long while nothing waits in front of it. What is read ahead in vain lengthens the other one,
    /// and would count as a reason for more.
    #[must_use]
    pub fn with_idle_rtt(mut self, rate_bytes_s: u64, idle_rtt_ns: u64) -> Self {
        self.trip_bytes = bytes_in(rate_bytes_s, idle_rtt_ns.min(self.rtt_ns));
        self
    }

    /// The same link where this share of packets is lost: what comes behind one that is missing waits at the other end, and the
    /// link is full only as long as there is more.
    #[must_use]
    pub fn with_loss(mut self, loss: f64) -> Self {
        let loss = loss.min(0.5);
        // Until nothing of a product is missing any more, as a rule.
        let packets = (self.bdp_bytes / PACKET_BYTES).max(1) as f64;
        let repairs = match loss > 0.0 {
            true => packets.ln() / -loss.ln(),
            false => 0.0,
        };
        let waited_bytes = trips_to_a_block(loss) * self.bdp_bytes as f64;
        self.start_bytes = self.start_bytes.saturating_add(waited_bytes as u64);
        self.is_lossy = waited_bytes >= 1.0;
        let repair_bytes = TRIPS_OF_REPAIR * repairs * self.bdp_bytes as f64;
        let repair_bytes = (repair_bytes as u64).min(REPAIR_BYTES_MAX);
        for bytes in [
            &mut self.full_bytes,
            &mut self.ahead_bytes_max,
            &mut self.queue_bytes_max,
            &mut self.behind_bytes_max,
        ] {
            *bytes = bytes.saturating_add(repair_bytes);
        }
        self
    }

    /// The same link while its rate, or what it loses, is being found: that needs more to send than the rate that is known.
    #[must_use]
    pub fn while_new(mut self) -> Self {
        let train_bytes = u128::from(TRAIN_BYTES) * u128::from(self.rtt_ns.min(TRAIN_RTT_NS));
        // At most as long as a train.
        let train_bytes = (train_bytes / u128::from(TRAIN_RTT_NS)) as u64;
        let most_bytes = self.queue_bytes_max.min(train_bytes);
        let more_bytes = self.bdp_bytes.max(most_bytes);
        self.start_bytes = self.start_bytes.saturating_add(more_bytes);
        self.full_bytes = self.full_bytes.max(self.start_bytes);
        self
    }

    /// The same link while its rate is being found: what has arrived is the least that it carries, after a few messages next to
    /// nothing, and no sign of a slow one. A file that is opened then would be read without us to its end.
    #[must_use]
    pub fn with_least_rate(mut self) -> Self {
        self.is_quick = true;
        self
    }

    /// Whether the round trip is worth the work at this rate.
    #[must_use]
    pub fn can_gain(&self) -> bool {
        self.rtt_ns >= self.rtt_ns_min
    }
}

/// Round trips for which the first block of a file is waited for longer than where nothing is lost.
fn trips_to_a_block(loss: f64) -> f64 {
    let packets = (BLOCK_BYTES / PACKET_BYTES) as f64;
    // How likely a part of it is missing still when each packet has been sent so often.
    let missing_after = |sent: i32| 1.0 - (1.0 - loss.powi(sent)).powf(packets);
    let again = (2..).take_while(|&sent| missing_after(sent) >= LOST_AGAIN_MIN);
    TRIPS_OF_ONE_REPAIR * (missing_after(1) + again.count() as f64)
}

/// What keeps the link full: what it holds, once more for the way through both gateways, and some blocks.
fn behind_bytes(rate_bytes_s: u64, rtt_ns: u64) -> u64 {
    let wanted_bytes = 2 * u128::from(bytes_in(rate_bytes_s, rtt_ns)) + (1 << 20);
    let most_bytes = queue_bytes(rate_bytes_s).min(BEHIND_BYTES_MAX);
    // At most 16 MiB.
    wanted_bytes.min(most_bytes).max(BEHIND_BYTES_MIN) as u64
}

/// What is carried in this time.
fn bytes_in(rate_bytes_s: u64, time_ns: u64) -> u64 {
    let bytes = u128::from(rate_bytes_s) * u128::from(time_ns) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn queue_bytes(rate_bytes_s: u64) -> u128 {
    u128::from(rate_bytes_s) * QUEUE_S_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_round_trips_are_worth_the_work_where_a_block_takes_longer_than_they_do() {
        let gains = |rate, rtt_ns| Settings::of_link(rate, rtt_ns).can_gain();
        assert!(gains(6_480_000, MS / 2) && gains(125_000_000, 2 * MS));
        assert!(!gains(125_000_000, MS / 2) && !gains(6_480_000, MS / 5));
    }

    /// What was known of 51.84 Mbit/s, 250 ms one way and 10 % loss when a client opened its first file.
    #[test]
    fn a_link_is_slow_only_where_its_rate_is_known() {
        let link = Settings::of_link(4_260, 500 * MS).with_loss(0.1);
        assert!(!link.is_quick && !link.while_new().is_quick);
        assert!(link.with_least_rate().is_quick);
    }

    #[test]
    fn the_more_is_lost_the_more_waits_for_a_repair() {
        let link = Settings::of_link(6_480_000, 500 * MS);
        assert_eq!(link.with_loss(0.0), link);
        let products = |loss| link.with_loss(loss).full_bytes as f64 / link.bdp_bytes as f64;
        let found = [0.001, 0.01, 0.05].map(products);
        let expected = [4.2, 5.4, 7.2];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 0.1, "{found} {expected}");
        }
        assert!(link.with_loss(0.5).ahead_bytes_max <= KEPT_BYTES_MAX);
        let start = |loss| link.with_loss(loss).start_bytes as f64 / link.bdp_bytes as f64;
        let found = [0.001, 0.01, 0.05, 0.1].map(start);
        for (found, expected) in found.into_iter().zip([1.05, 1.45, 2.15, 3.5]) {
            assert!((found - expected).abs() < 0.05, "{found} {expected}");
        }
        let slow = Settings::of_link(8_000, 500 * MS).with_loss(0.1);
        assert!(slow.queue_bytes_max < 8_000 * 4, "{slow:?}");
    }

    /// 24 who write over a T1: what lies before the last of each is written within seconds.
    #[test]
    fn many_who_share_a_link_are_answered_little_early() {
        let rate = 193_000;
        for flows in [1, 3, 8, 24] {
            let share = Settings::of_link(rate / flows, 500_000_000);
            assert!(share.behind_bytes_max * flows < rate * 9, "{flows}");
        }
    }
}
