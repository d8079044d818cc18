//! What one direction of a circuit has done: every packet is in one count.

/// Packets that did not arrive, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// Longer than the MTU allows.
    pub mtu: u64,
    /// Over the policer's rate and burst.
    pub policer: u64,
    /// The router's queue was full.
    pub queue: u64,
    /// Lost on the wire, as the profile asks.
    pub loss: u64,
    /// The propagation line was full: the emulator's own limit, not the
    /// circuit's. With a rate it is zero unless packets that are due are taken
    /// more than half a second late.
    pub line: u64,
}

impl Drops {
    /// All causes together.
    pub fn total(&self) -> u64 {
        self.mtu + self.policer + self.queue + self.loss + self.line
    }
}

/// Counters of one direction since its start.
///
/// `packets_in + duplicated` equals `packets_out + drops.total()` plus what is
/// still held: `queue_packets`, `sending_packets` and `line_packets`.
/// Byte counts are of frames, without framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets handed in.
    pub packets_in: u64,
    /// Bytes handed in.
    pub bytes_in: u64,
    /// Packets delivered, copies included.
    pub packets_out: u64,
    /// Bytes delivered, copies included.
    pub bytes_out: u64,
    /// Packets that did not arrive, by cause.
    pub drops: Drops,
    /// Copies made.
    pub duplicated: u64,
    /// Packets with a flipped bit, copies not counted.
    pub corrupted: u64,
    /// Packets sent out of their turn by the reorder setting.
    pub reordered: u64,
    /// Packets waiting in the router's queue.
    pub queue_packets: u64,
    /// Bytes waiting in the router's queue.
    pub queue_bytes: u64,
    /// Most bytes that ever waited.
    pub queue_bytes_max: u64,
    /// How long a packet that arrives now would wait.
    pub queue_ns: u64,
    /// Longest wait of any packet accepted so far.
    pub queue_ns_max: u64,
    /// Packets on the transmitter: 0 or 1.
    pub sending_packets: u64,
    /// Packets propagating.
    pub line_packets: u64,
    /// Most packets that ever propagated at once.
    pub line_packets_max: u64,
}
