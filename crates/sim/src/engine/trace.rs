//! A hash of everything that happened, in order: two runs with the same hash
//! are the same run.

use super::random::mix;

/// The hash so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0x6661_7268_6175_6c31)
    }
}

impl Trace {
    /// Adds what happened.
    pub fn record<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            self.0 = mix(self.0 ^ word);
        }
    }

    /// The hash as 16 hexadecimal digits.
    pub fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_matter() {
        let hash = |words: [u64; 3]| {
            let mut trace = Trace::default();
            trace.record(words);
            trace.hex()
        };
        assert_eq!(hash([1, 2, 3]), hash([1, 2, 3]));
        assert_ne!(hash([1, 2, 3]), hash([1, 3, 2]));
        assert_ne!(hash([1, 2, 3]), hash([1, 2, 4]));
        assert_eq!(hash([0, 0, 0]).len(), 16);
    }
}
