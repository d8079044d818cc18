//! Whether it is of use to open files ahead of the client. A server may give no oplock that protects them, or refuse to open
//! them; the client may want them otherwise. Each costs the server an open file that is in others' way for a moment.

use std::collections::BTreeMap;

/// So many in a row come to nothing at the server before that is more than chance: somebody else has a file open.
const FAILURES_MAX: u32 = 4;
/// Times that a share protects nothing, without one that it does, before it is left alone.
const UNPROTECTED_MAX: u32 = 4;
/// Shares of which that is remembered.
const SHARES_MAX: usize = 64;

/// Session and tree.
type Place = (u64, u32);

/// All of a connection.
#[derive(Debug, Default)]
pub struct Doubts {
    /// Opens in a row that came to nothing at the server.
    failures: u32,
    /// One at a time, until the client has taken one.
    is_wary: bool,
    unprotected: BTreeMap<Place, u32>,
}

impl Doubts {
    /// The server gave a file with what protects it.
    pub fn handle_granted(&mut self, place: Place) {
        self.failures = 0;
        self.unprotected.remove(&place);
    }

    /// It did not. Whether that is in vain.
    pub fn handle_failed(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.is_wary |= self.failures >= FAILURES_MAX;
        self.is_wary
    }

    /// It was in vain because there was no oplock.
    pub fn handle_unprotected(&mut self, place: Place) {
        if self.unprotected.len() < SHARES_MAX || self.unprotected.contains_key(&place) {
            let times = self.unprotected.entry(place).or_default();
            *times = times.saturating_add(1);
        }
    }

    /// The client wants a file otherwise than it was opened.
    pub fn handle_released(&mut self) {
        self.is_wary = true;
    }

    /// The client was given one.
    pub fn handle_taken(&mut self) {
        self.is_wary = false;
    }

    /// These shares are gone.
    pub fn handle_gone(&mut self, is_gone: impl Fn(Place) -> bool) {
        self.unprotected.retain(|place, _| !is_gone(*place));
    }

    /// Whether it is to be seen first what becomes of one.
    #[must_use]
    pub fn is_wary(&self) -> bool {
        self.is_wary
    }

    /// Whether nothing is opened ahead in this share any more.
    #[must_use]
    pub fn forbids(&self, place: Place) -> bool {
        let times = self.unprotected.get(&place);
        times.is_some_and(|times| *times >= UNPROTECTED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_here_and_there_is_no_reason_to_doubt() {
        let mut doubts = Doubts::default();
        for _ in 0..20 {
            assert!(!doubts.handle_failed() && !doubts.is_wary());
            doubts.handle_granted((1, 2));
        }
        let failed = [(); 4].map(|()| doubts.handle_failed());
        assert_eq!(failed, [false, false, false, true]);
        // Until the client has one, whatever the server gives.
        doubts.handle_granted((1, 2));
        assert!(doubts.handle_failed() && doubts.is_wary());
        doubts.handle_granted((1, 2));
        doubts.handle_taken();
        assert!(!doubts.handle_failed() && !doubts.is_wary());
    }

    #[test]
    fn a_share_without_oplocks_is_left_alone_and_no_other() {
        let mut doubts = Doubts::default();
        let (without, with) = ((1, 2), (1, 3));
        for _ in 0..3 {
            doubts.handle_unprotected(without);
            doubts.handle_unprotected(with);
        }
        doubts.handle_granted(with);
        doubts.handle_unprotected(without);
        doubts.handle_unprotected(with);
        assert!(doubts.forbids(without) && !doubts.forbids(with));
        doubts.handle_gone(|place| place == without);
        assert!(!doubts.forbids(without), "the number is another's");
    }
}
