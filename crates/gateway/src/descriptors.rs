//! File descriptors: a flow holds one, and a process that has none left
//! accepts connections and lets them starve.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for everything that is not a connection: tunnel, rules, admin, logs.
const RESERVED: usize = 64;
/// At most this part of the rest is kept for handshakes of explicit listeners.
const HANDSHAKES_PART: usize = 4;
/// Most handshakes under way at one listener.
const HANDSHAKES_MAX: usize = 512;

/// What a process has descriptors for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Flows at once.
    pub flows: usize,
    /// Handshakes at once, at each explicit listener: clients that have not
    /// said where they want to go cannot take the descriptors of flows.
    pub handshakes: usize,
}

/// Raises the soft limit to the hard one and divides what there is.
pub fn room(listeners: usize) -> Room {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused only where the limit is what it was: then that holds.
    let _ = setrlimit(Resource::Nofile, raised);
    let descriptors = getrlimit(Resource::Nofile).current;
    divided(
        descriptors.map_or(usize::MAX, |count| {
            usize::try_from(count).unwrap_or(usize::MAX)
        }),
        listeners,
    )
}

fn divided(descriptors: usize, listeners: usize) -> Room {
    let free = descriptors.saturating_sub(RESERVED);
    let each = free / HANDSHAKES_PART / listeners.max(1);
    let handshakes = each.clamp(1, HANDSHAKES_MAX);
    Room {
        flows: free.saturating_sub(handshakes.saturating_mul(listeners)),
        handshakes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_have_descriptors_that_flows_do_not_count_on() {
        for (descriptors, listeners) in [(1024, 0), (1024, 1), (1024, 3), (65_536, 2), (100, 9)] {
            let room = divided(descriptors, listeners);
            let taken = room.flows + room.handshakes * listeners + RESERVED;
            assert_eq!(taken, descriptors, "{room:?}");
            assert!(room.flows >= (descriptors - RESERVED) / 2, "{room:?}");
            assert!((1..=HANDSHAKES_MAX).contains(&room.handshakes), "{room:?}");
        }
        assert_eq!(divided(1 << 20, 2).handshakes, HANDSHAKES_MAX);
        assert_eq!(divided(64, 0).flows, 0);
    }
}
