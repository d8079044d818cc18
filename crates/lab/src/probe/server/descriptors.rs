//! File descriptors: a server that has none left accepts nobody, and tells
//! nobody why.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for everything that is not a connection: listeners, sessions' UDP
/// sockets.
const RESERVED: u64 = 128;
/// Of a connection: some have a second one for the way back.
const EACH: u64 = 2;

/// Raises the soft limit to the hard one; returns how many connections there
/// are descriptors for.
pub(super) fn room() -> u32 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused only where the limit is what it was: then that holds.
    let _ = setrlimit(Resource::Nofile, raised);
    connections(getrlimit(Resource::Nofile).current)
}

/// There is no limit without a number.
fn connections(descriptors: Option<u64>) -> u32 {
    let room = descriptors.map(|count| count.saturating_sub(RESERVED) / EACH);
    let room = room.and_then(|room| u32::try_from(room).ok());
    room.unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_what_else_there_is() {
        assert_eq!(connections(Some(1024)), 448);
        assert_eq!(connections(Some(4096)), 1984);
        assert_eq!(connections(Some(10)), 1);
        assert_eq!(connections(None), u32::MAX);
    }

    #[test]
    fn the_soft_limit_is_raised_as_far_as_it_may() {
        let most = getrlimit(Resource::Nofile).maximum;
        assert_eq!(room(), connections(most));
    }
}
