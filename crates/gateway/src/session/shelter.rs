//! What of the protected frames is repaired while the path is full.
//!
//! Repairs are for whoever waits for a lost packet. Where the protected classes themselves fill the
//! path, everybody waits for the path, and repairs make that longer: then a part of the frames is
//! repaired and no more.

use farhaul_tunnel::{Correction, Transmit};

/// Part of what a full path carries that is repaired when lost.
const SHARE: f64 = 0.15;
/// Bytes that are repaired at once, whatever the share: some answers, one after the other.
const AT_ONCE_BYTES: f64 = (256 << 10) as f64;

/// Counts what is handed over.
#[derive(Debug)]
pub(super) struct Shelter {
    free_bytes: f64,
}

impl Default for Shelter {
    fn default() -> Self {
        Self {
            free_bytes: AT_ONCE_BYTES,
        }
    }
}

impl Shelter {
    /// Nothing waits to be sent: the path is not full.
    pub(super) fn handle_idle(&mut self) {
        self.free_bytes = AT_ONCE_BYTES;
    }

    /// A frame goes. Whether it is to be repaired; what a rule wants repaired is.
    pub(super) fn takes(&mut self, frame: &Transmit) -> bool {
        let is_wanted = frame.is_protected && frame.correction == Correction::On;
        self.has_room(frame.frame_bytes(), frame.is_protected) || is_wanted
    }

    fn has_room(&mut self, frame_bytes: usize, is_protected: bool) -> bool {
        let bytes = frame_bytes as f64;
        self.free_bytes = (self.free_bytes + SHARE * bytes).min(AT_ONCE_BYTES);
        let is_taken = is_protected && self.free_bytes >= bytes;
        if is_taken {
            self.free_bytes -= bytes;
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES: usize = 16_000;

    /// Part of the protected frames that is repaired, every `nth` frame being one.
    fn repaired(shelter: &mut Shelter, frames: usize, nth: usize) -> f64 {
        let protected: Vec<bool> = (0..frames)
            .filter_map(|frame| {
                let is_protected = frame % nth == 0;
                let is_taken = shelter.has_room(FRAME_BYTES, is_protected);
                is_protected.then_some(is_taken)
            })
            .collect();
        let taken = protected.iter().filter(|taken| **taken).count();
        taken as f64 / protected.len() as f64
    }

    #[test]
    fn a_flood_is_repaired_in_part() {
        let share = repaired(&mut Shelter::default(), 10_000, 1);
        assert!((0.14..0.16).contains(&share), "{share}");
    }

    #[test]
    fn the_tenth_part_of_a_full_path_is_repaired_whole() {
        let share = repaired(&mut Shelter::default(), 10_000, 10);
        assert!(share == 1.0, "{share}");
    }

    #[test]
    fn whoever_leaves_the_path_idle_is_repaired_whole() {
        let mut shelter = Shelter::default();
        for _ in 0..100 {
            let share = repaired(&mut shelter, 16, 1);
            assert!(share == 1.0, "{share}");
            shelter.handle_idle();
        }
    }
}
