//! What was compared with the log of what had passed, and where it was found.

use farhaul_reduce::EncoderStats;

/// Applications' bytes towards a peer that were compared, and what of them was known, by where it was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// All of them.
    pub bytes: u64,
    /// Known from memory, where they had been since they passed.
    pub memory_bytes: u64,
    /// Known from what was read from disk: after a restart, or because it had left the memory.
    pub disk_bytes: u64,
    /// Runs of one byte: nothing need have passed for them.
    pub run_bytes: u64,
}

impl Compared {
    /// What need not be sent.
    pub fn known_bytes(&self) -> u64 {
        self.memory_bytes + self.disk_bytes + self.run_bytes
    }

    /// This, and what an encoder says.
    pub(super) fn and(self, stats: &EncoderStats) -> Self {
        let disk_bytes = stats.returned_bytes.min(stats.known_bytes);
        Self {
            bytes: self.bytes + stats.input_bytes,
            memory_bytes: self.memory_bytes + (stats.known_bytes - disk_bytes),
            disk_bytes: self.disk_bytes + disk_bytes,
            run_bytes: self.run_bytes + stats.run_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_add_up_to_what_is_known() {
        let stats = EncoderStats {
            input_bytes: 100,
            known_bytes: 50,
            returned_bytes: 20,
            run_bytes: 7,
            ..EncoderStats::default()
        };
        let twice = Compared::default().and(&stats).and(&stats);
        let expected = Compared {
            bytes: 200,
            memory_bytes: 60,
            disk_bytes: 40,
            run_bytes: 14,
        };
        assert_eq!(twice, expected);
        assert_eq!(twice.known_bytes(), 114);
    }
}
