//! Which TCP: every rule in which stacks of 1997 and of today differ is a
//! field here, so that each can be switched by itself.

use crate::engine::NS_PER_MS;

/// What happens after the duplicate acknowledgements that mean loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Fast recovery ends at the first new acknowledgement (RFC 2581).
    Reno,
    /// It ends when everything outstanding at its start is acknowledged (RFC 6582).
    NewReno,
    /// It knows what arrived (RFC 6675).
    Sack,
}

/// How the congestion window grows in congestion avoidance and shrinks on loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// One segment per round trip; half on loss (RFC 5681).
    Reno,
    /// A cubic function of time; .7 on loss (RFC 9438).
    Cubic,
}

/// How finely time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Ticks of 500 ms for retransmission and 200 ms for delayed
    /// acknowledgements, at times the host decides (4.4BSD).
    Ticks,
    /// To the nanosecond (RFC 6298).
    Fine {
        /// Least variance term of the retransmission time.
        rto_min_ns: u64,
        /// How long an acknowledgement may wait.
        delayed_ack_ns: u64,
    },
}

/// From when a connection counts as idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// From the last segment received, so that a request that arrives ends the
    /// idleness of the server that is to answer it (4.4BSD; RFC 2581, 4.1).
    SinceReceived,
    /// From the last segment sent (RFC 5681, 4.1).
    SinceSent,
}

/// One TCP implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Timers.
    pub clock: Clock,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Congestion avoidance.
    pub growth: Growth,
    /// Congestion window at the start and after idleness.
    pub initial_window_segments: u32,
    /// Slow-start threshold at the start.
    pub initial_ssthresh_bytes: u64,
    /// Most that the window may grow to: 65,535 without window scaling.
    pub window_bytes_max: u64,
    /// Slow start counts acknowledged bytes, at most this many segments for
    /// one acknowledgement (RFC 3465); 0: one segment for each acknowledgement.
    pub byte_counting_segments: u32,
    /// Two duplicate acknowledgements release a new segment each (RFC 3042).
    pub limited_transmit: bool,
    /// Fewer duplicates suffice when less than four segments are outstanding
    /// (RFC 5827).
    pub early_retransmit: bool,
    /// A short segment waits while anything is outstanding (RFC 896).
    pub nagle: bool,
    /// What is halved when a loss is seen is what is believed to be under way, as
    /// in ns-3, and not all that is unacknowledged (RFC 5681, 2: flight size).
    pub halves_pipe: bool,
    /// When the window starts anew.
    pub idle: Idle,
    /// The window grows only while it is what limits the sender (RFC 7661).
    pub grows_only_when_full: bool,
    /// So many first segments are acknowledged one by one.
    pub quick_acks: u32,
    /// Round trips are measured by timestamps (RFC 7323): 12 bytes in every
    /// segment, a sample with every acknowledgement.
    pub timestamps: bool,
}

impl Profile {
    /// 4.4BSD: coarse ticks, Reno, one segment to start with.
    pub const BSD44: Self = Self {
        clock: Clock::Ticks,
        recovery: Recovery::Reno,
        growth: Growth::Reno,
        initial_window_segments: 1,
        initial_ssthresh_bytes: 65_535,
        window_bytes_max: 65_535,
        byte_counting_segments: 0,
        limited_transmit: false,
        early_retransmit: false,
        nagle: true,
        halves_pipe: false,
        idle: Idle::SinceReceived,
        grows_only_when_full: false,
        quick_acks: 0,
        timestamps: false,
    };

    /// What a host of today does, every enhancement switched on.
    pub const MODERN: Self = Self {
        clock: Clock::Fine {
            rto_min_ns: 200 * NS_PER_MS,
            delayed_ack_ns: 40 * NS_PER_MS,
        },
        recovery: Recovery::Sack,
        growth: Growth::Cubic,
        initial_window_segments: 10,
        initial_ssthresh_bytes: u64::MAX,
        window_bytes_max: u64::MAX,
        byte_counting_segments: 2,
        limited_transmit: true,
        early_retransmit: true,
        nagle: false,
        halves_pipe: false,
        idle: Idle::SinceSent,
        grows_only_when_full: true,
        quick_acks: 16,
        timestamps: true,
    };

    /// Linux with `reno`, SACK off and an initial window of one segment, to be
    /// held against the real one.
    pub const LINUX_RENO: Self = Self {
        recovery: Recovery::NewReno,
        growth: Growth::Reno,
        initial_window_segments: 1,
        // Linux counts every acknowledged segment.
        byte_counting_segments: u32::MAX,
        // Taken out of Linux when RACK came.
        early_retransmit: false,
        ..Self::MODERN
    };

    /// Bytes of IP and TCP headers in a segment with data.
    pub fn header_bytes(&self) -> u32 {
        if self.timestamps { 52 } else { 40 }
    }

    /// Payload of a full segment where the hosts agreed on `mss_bytes`.
    pub fn payload_bytes(&self, mss_bytes: u32) -> u32 {
        mss_bytes.saturating_sub(self.header_bytes() - 40).max(1)
    }
}
