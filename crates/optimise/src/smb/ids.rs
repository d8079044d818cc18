//! Message ids: as the client numbers its requests until the far half has to number them itself.

use std::collections::BTreeSet;

use super::smb2::header::Header;

/// Ids that the client may have skipped; the window of a server is not larger (MS-SMB2 3.3.1.1).
const AHEAD_MAX: usize = 8192;

/// Which ids the server has seen, or will see next.
#[derive(Debug)]
pub enum Ids {
    /// The client's own. All below `next` are used, and those in `ahead`.
    Client { next: u64, ahead: BTreeSet<u64> },
    /// Ours, one after the other.
    Ours { next: u64 },
}

/// The client uses ids in no order that can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl Ids {
    /// Of a connection without messages.
    #[must_use]
    pub fn new() -> Self {
        Self::Client {
            next: 0,
            ahead: BTreeSet::new(),
        }
    }

    /// Whether the server sees the client's ids.
    #[must_use]
    pub fn is_clients(&self) -> bool {
        matches!(self, Self::Client { .. })
    }

    /// The id by which the server will know this request.
    ///
    /// # Errors
    /// When the client skips too many.
    pub fn assign(&mut self, request: &Header) -> Result<u64, TooMany> {
        match self {
            Self::Ours { .. } => Ok(self.take(request.ids_taken())),
            Self::Client { next, ahead } => {
                let last = request.message_id.saturating_add(request.ids_taken());
                ahead.extend((request.message_id..last).take(AHEAD_MAX));
                while ahead.remove(next) {
                    *next += 1;
                }
                match ahead.len() > AHEAD_MAX {
                    true => Err(TooMany),
                    false => Ok(request.message_id),
                }
            }
        }
    }

    /// From here on the ids are ours. False while the client has left out ids, which it may still use.
    pub fn begin(&mut self) -> bool {
        match self {
            Self::Client { next, ahead } if ahead.is_empty() => {
                *self = Self::Ours { next: *next };
                true
            }
            Self::Client { .. } => false,
            Self::Ours { .. } => true,
        }
    }

    /// Ids for a request of ours.
    pub fn take(&mut self, count: u64) -> u64 {
        match self {
            Self::Ours { next } => {
                let first = *next;
                *next = next.saturating_add(count);
                first
            }
            Self::Client { next, .. } => *next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb::smb2::header::Command;

    fn request(message_id: u64, credit_charge: u16) -> Header {
        Header {
            credit_charge,
            ..Header::request(Command::Read, message_id, 1, 1)
        }
    }

    #[test]
    fn ids_are_the_clients_until_we_begin() {
        let mut ids = Ids::new();
        assert_eq!(ids.assign(&request(0, 0)), Ok(0));
        assert_eq!(ids.assign(&request(2, 1)), Ok(2));
        assert!(!ids.begin(), "1 may still come");
        assert_eq!(ids.assign(&request(1, 1)), Ok(1));
        assert_eq!(ids.assign(&request(3, 4)), Ok(3));
        assert!(ids.begin());
        assert_eq!(ids.take(1), 7);
        assert_eq!(ids.assign(&request(7, 2)), Ok(8));
        assert_eq!(ids.assign(&request(9, 1)), Ok(10));
    }

    #[test]
    fn a_client_that_skips_without_end_is_noticed() {
        let mut ids = Ids::new();
        let mut results = (0..10_000).map(|nth| ids.assign(&request(1 + 2 * nth, 1)));
        assert!(results.any(|result| result == Err(TooMany)));
    }
}
