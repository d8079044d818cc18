//! A TCP segment whose payload is a number of bytes.

/// Up to three ranges that arrived out of order, the latest first (RFC 2018).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [(u64, u64); 3],
    count: u8,
}

impl SackBlocks {
    /// Adds a range; a fourth is left out.
    pub fn push(&mut self, start: u64, end: u64) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (start, end);
            self.count += 1;
        }
    }

    /// The ranges, end exclusive.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks.iter().copied().take(usize::from(self.count))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the option, padding included.
    pub fn option_bytes(&self) -> u32 {
        match self.count {
            0 => 0,
            count => 4 + 8 * u32::from(count),
        }
    }
}

/// A segment. Sequence numbers begin at 0 with the SYN and never wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// First byte's sequence number.
    pub seq: u64,
    /// Next byte expected from the other end; `None` in the first SYN.
    pub ack: Option<u64>,
    /// Payload.
    pub payload_bytes: u32,
    /// How much the sender of this segment is ready to receive.
    pub window_bytes: u64,
    /// Synchronise: takes one sequence number.
    pub is_syn: bool,
    /// The last of its direction: takes one sequence number.
    pub is_fin: bool,
    /// Ranges received out of order.
    pub sack: SackBlocks,
    /// When it was sent (RFC 7323).
    pub timestamp_ns: u64,
    /// The timestamp it answers; 0 is none.
    pub echo_ns: u64,
}

impl Segment {
    /// Sequence numbers it takes.
    pub fn length(&self) -> u64 {
        u64::from(self.payload_bytes) + u64::from(self.is_syn) + u64::from(self.is_fin)
    }

    /// The sequence number after it.
    pub fn end(&self) -> u64 {
        self.seq + self.length()
    }
}
