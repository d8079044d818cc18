//! Where fuzzers come in: what must hold for any bytes from a peer or from a disk. The tests below do it with true bytes that were
//! changed.

pub use crate::reduction::fuzz::{messages, records};
pub use crate::store::fuzz::{footer, label};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::fuzz::true_messages;
    use crate::store::fuzz::{true_footer, true_label};

    /// Numbers that can be repeated.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }

        /// One to four changes.
        fn change(&mut self, bytes: &[u8]) -> Vec<u8> {
            let mut bytes = bytes.to_vec();
            for _ in 0..=self.below(4) {
                let at = self.below(bytes.len().max(1));
                match self.below(8) {
                    0 => bytes.truncate(at + 1),
                    1 => bytes.insert(at.min(bytes.len()), self.below(256) as u8),
                    2 if !bytes.is_empty() => drop(bytes.remove(at)),
                    _ if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                    _ => bytes.push(0),
                }
            }
            bytes
        }
    }

    #[test]
    fn invariant_6_a_hundred_thousand_changed_footers_are_read_or_refused() {
        let right = true_footer();
        assert!(footer(&right));
        let mut dice = Dice(1);
        let read = (0..100_000)
            .filter(|_| footer(&dice.change(&right)))
            .count();
        println!("{read} of 100000 are footers when their hash is put right");
        assert!((10_000..90_000).contains(&read), "{read}");
        let right = true_label();
        assert!(label(&right));
        let read = (0..10_000).filter(|_| label(&dice.change(&right))).count();
        assert!((1000..9000).contains(&read), "{read} labels");
    }

    #[test]
    fn invariant_6_changed_messages_and_records_are_read_alike_however_they_are_cut() {
        let right = true_messages();
        assert!(messages(&right) > 10);
        let mut dice = Dice(2);
        let (mut most, mut of_records) = (0, 0);
        for _ in 0..30_000 {
            let changed = dice.change(&right);
            most = most.max(messages(&changed));
            of_records += records(&changed);
        }
        assert!(most > 10 && of_records > 0, "{most} {of_records}");
    }
}
