//! Makes repairs over the datagrams sent last.

use super::gf256::add_multiple;
use super::wire::{Repair, X_MAX};
use super::{DATAGRAM_BYTES_MAX, Name, ROW_BYTES, WINDOW_DATAGRAMS_MAX, coefficient, row_of};
use std::collections::VecDeque;

#[derive(Debug)]
struct Source {
    name: Name,
    bytes: Vec<u8>,
}

/// The sender's side: remembers what was sent and makes repairs over the newest of it.
#[derive(Debug, Default)]
pub struct Encoder {
    sources: VecDeque<Source>,
    /// Number of the next datagram.
    next_number: u16,
    next_x: u8,
    /// Buffers of datagrams that left the window.
    spare: Vec<Vec<u8>>,
}

impl Encoder {
    /// Remembers a datagram that is sent. Returns how many rows it has; 0 for one that is too
    /// short or too long to be covered.
    pub fn push(&mut self, datagram: &[u8]) -> usize {
        let Some(name) = Name::of(datagram) else {
            return 0;
        };
        if self.sources.len() >= WINDOW_DATAGRAMS_MAX {
            let oldest = self.sources.pop_front();
            self.spare.extend(oldest.map(|source| source.bytes));
        }
        let mut bytes = self
            .spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(DATAGRAM_BYTES_MAX));
        bytes.clear();
        bytes.extend_from_slice(datagram);
        self.sources.push_back(Source { name, bytes });
        self.next_number = self.next_number.wrapping_add(1);
        usize::from(name.rows())
    }

    /// How many datagrams can be covered.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.sources.len()
    }

    /// How long the message with a repair over the `newest` datagrams will be.
    pub(super) fn repair_bytes(&self, newest: usize) -> usize {
        let covered = newest.min(self.sources.len());
        let newest = self.sources.iter().rev().take(covered);
        let longest = newest.map(|source| source.bytes.len().min(ROW_BYTES)).max();
        Repair::bytes(covered, longest.unwrap_or(0))
    }

    /// A repair over the `newest` datagrams, or as many as there are; none without any.
    pub fn repair(&mut self, newest: usize) -> Option<Repair> {
        let covered = newest.min(self.sources.len());
        if covered == 0 {
            return None;
        }
        let x = self.next_x;
        self.next_x = (x + 1) & X_MAX;
        let first = self.next_number.wrapping_sub(covered as u16);
        let mut sum = vec![0; ROW_BYTES];
        // As long as the longest row: a length that followed from what is
        // summed up, which is encrypted, would be another one in every run.
        let mut used = 1;
        let mut names = Vec::with_capacity(covered);
        let mut number = first;
        for source in self.sources.iter().skip(self.sources.len() - covered) {
            for row in 0..source.name.rows() {
                let factor = coefficient(x, number, row);
                let bytes = row_of(&source.bytes, row);
                add_multiple(&mut sum, bytes, factor);
                used = used.max(bytes.len());
            }
            names.push(source.name);
            number = number.wrapping_add(1);
        }
        sum.truncate(used);
        Some(Repair {
            x,
            first,
            names,
            sum,
        })
    }
}
