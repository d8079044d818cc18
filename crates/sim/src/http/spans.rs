//! Which bytes of a connection belong to whom: a byte stream carries bytes of
//! several exchanges one after the other, and TCP delivers it in pieces of its
//! own.

use std::collections::VecDeque;

/// Bytes under way, by exchange, in the order they were written.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    spans: VecDeque<(u32, u64)>,
}

impl Spans {
    /// Bytes of an exchange were written.
    pub(super) fn push(&mut self, exchange: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.spans.back_mut() {
            Some((last, span)) if *last == exchange => *span += bytes,
            _ => self.spans.push_back((exchange, bytes)),
        }
    }

    /// So many bytes arrived: of whom? Call until it says `None`.
    pub(super) fn take(&mut self, bytes: &mut u64) -> Option<(u32, u64)> {
        if *bytes == 0 {
            return None;
        }
        let (exchange, span) = self.spans.front_mut()?;
        let taken = (*span).min(*bytes);
        *bytes -= taken;
        *span -= taken;
        let owner = *exchange;
        if *span == 0 {
            self.spans.pop_front();
        }
        Some((owner, taken))
    }

    /// Whose bytes are under way.
    pub(super) fn owners(&self) -> impl Iterator<Item = u32> + '_ {
        self.spans.iter().map(|(exchange, _)| *exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_find_their_owners_however_they_are_cut() {
        let mut spans = Spans::default();
        for (exchange, bytes) in [(1, 5), (1, 5), (2, 3), (1, 4), (3, 0)] {
            spans.push(exchange, bytes);
        }
        assert_eq!(spans.owners().collect::<Vec<_>>(), [1, 2, 1]);
        let mut take = |mut bytes| {
            let mut taken = Vec::new();
            while let Some(piece) = spans.take(&mut bytes) {
                taken.push(piece);
            }
            taken
        };
        assert_eq!(take(4), [(1, 4)]);
        assert_eq!(take(8), [(1, 6), (2, 2)]);
        assert_eq!(take(99), [(2, 1), (1, 4)]);
    }
}
