//! The datagrams received last, found by name.

use super::{DATAGRAM_BYTES_MAX, KEPT_DATAGRAMS, Name};

/// A ring of datagrams. Its memory is taken with the first one.
#[derive(Debug, Default)]
pub(super) struct Kept {
    names: Vec<Option<Name>>,
    /// Room for a datagram per name.
    bytes: Vec<u8>,
    /// Where the next one goes.
    next: usize,
    /// Datagrams that were kept so far.
    total: u64,
}

impl Kept {
    pub(super) fn push(&mut self, name: Name, datagram: &[u8]) {
        if self.names.is_empty() {
            self.names = vec![None; KEPT_DATAGRAMS];
            self.bytes = vec![0; KEPT_DATAGRAMS * DATAGRAM_BYTES_MAX];
        }
        let from = self.next * DATAGRAM_BYTES_MAX;
        let place = self.bytes.get_mut(from..from + datagram.len());
        if let (Some(slot), Some(place)) = (self.names.get_mut(self.next), place) {
            place.copy_from_slice(datagram);
            *slot = Some(name);
            self.next = (self.next + 1) % KEPT_DATAGRAMS;
            self.total += 1;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The newest datagram of this name.
    pub(super) fn get(&self, name: Name) -> Option<&[u8]> {
        let (newer, older) = self.names.split_at_checked(self.next)?;
        let find = |names: &[Option<Name>]| names.iter().rposition(|kept| *kept == Some(name));
        let index = find(newer).or_else(|| find(older).map(|index| index + self.next))?;
        let from = index * DATAGRAM_BYTES_MAX;
        self.bytes.get(from..from + name.datagram_bytes())
    }

    /// Frees the memory.
    pub(super) fn clear(&mut self) {
        *self = Kept {
            total: self.total,
            ..Kept::default()
        };
    }
}
