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
/// At most so many bytes of writes are answered early.
const BEHIND_BYTES_MAX: u128 = 16 << 20;
/// Nothing is done ahead of others beyond what the link carries in this time: somebody may wait for the file to be let go.
const QUEUE_S_MAX: u128 = 3;
/// But a block of a client's at least is answered early.
const BEHIND_BYTES_MIN: u128 = 64 << 10;

/// One per flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Round trip of the link.
    pub rtt_ns: u64,
    /// With less nothing is gained: [`Reason::NoGain`](crate::Reason::NoGain).
    pub rtt_ns_min: u64,
    /// What the link carries while a block is fetched: what it holds in one round trip, or more. Where reading ahead begins.
    pub bdp_bytes: u64,
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
        let turn_ns = rtt_ns.max(TURN_NS_MIN);
        let bdp_bytes = u128::from(rate_bytes_s) * u128::from(turn_ns) / 1_000_000_000;
        Self {
            rtt_ns,
            rtt_ns_min: match rate_bytes_s < FAST_BYTES_S {
                true => RTT_NS_MIN,
                false => FAST_RTT_NS_MIN,
            },
            bdp_bytes: u64::try_from(bdp_bytes).unwrap_or(u64::MAX),
            ahead_bytes_max: 16 << 20,
            queue_bytes_max: u64::try_from(queue_bytes(rate_bytes_s)).unwrap_or(u64::MAX),
            behind_bytes_max: behind_bytes(rate_bytes_s, rtt_ns),
            detect_ns_max: 200 * MS,
        }
    }

    /// Whether the round trip is worth the work at this rate.
    #[must_use]
    pub fn can_gain(&self) -> bool {
        self.rtt_ns >= self.rtt_ns_min
    }
}

/// What keeps the link full: what it holds, once more for the way through both gateways, and some blocks.
fn behind_bytes(rate_bytes_s: u64, rtt_ns: u64) -> u64 {
    let bdp_bytes = u128::from(rate_bytes_s) * u128::from(rtt_ns) / 1_000_000_000;
    let wanted_bytes = 2 * bdp_bytes + (1 << 20);
    let most_bytes = queue_bytes(rate_bytes_s).min(BEHIND_BYTES_MAX);
    // At most 16 MiB.
    wanted_bytes.min(most_bytes).max(BEHIND_BYTES_MIN) as u64
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
