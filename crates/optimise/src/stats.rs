//! What an optimiser did.

/// Counts since the flow began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reads that crossed the link.
    pub reads_forwarded: u64,
    /// Reads that were answered by the near half.
    pub reads_answered: u64,
    /// Bytes of those.
    pub answered_bytes: u64,
    /// Reads that the far half made.
    pub reads_made: u64,
    /// Bytes of those.
    pub ahead_bytes: u64,
    /// Of those, bytes that nobody asked for before they were dropped.
    pub wasted_bytes: u64,
    /// Times that something read ahead was dropped because it may have changed.
    pub breaks: u64,
    /// Files that the near half opened out of those opened ahead.
    pub opens_answered: u64,
    /// Files that the far half opened ahead.
    pub opens_made: u64,
    /// Of those, files that nobody opened before they were closed.
    pub opens_wasted: u64,
    /// Writes that were answered by the near half.
    pub writes_answered: u64,
    /// Bytes of those.
    pub behind_bytes: u64,
    /// Writes that were answered and then refused by the server.
    pub writes_failed: u64,
}

impl Stats {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.reads_forwarded += other.reads_forwarded;
        self.reads_answered += other.reads_answered;
        self.answered_bytes += other.answered_bytes;
        self.reads_made += other.reads_made;
        self.ahead_bytes += other.ahead_bytes;
        self.wasted_bytes += other.wasted_bytes;
        self.breaks += other.breaks;
        self.opens_answered += other.opens_answered;
        self.opens_made += other.opens_made;
        self.opens_wasted += other.opens_wasted;
        self.writes_answered += other.writes_answered;
        self.behind_bytes += other.behind_bytes;
        self.writes_failed += other.writes_failed;
    }
}
