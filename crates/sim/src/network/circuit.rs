//! A circuit of the simulated world: two `link::Emulator`s, the same model
//! that carries real packets in `farhaul link`.

use farhaul_link::{Emulator, LinkProfile, Output, Stats};

use super::{Frame, Side};

/// Both directions between a client side and a server side.
#[derive(Debug)]
pub struct Circuit {
    to_server: Direction,
    to_client: Direction,
    header_bytes: u32,
}

#[derive(Debug)]
struct Direction {
    emulator: Emulator<Frame>,
    /// The earliest event that waits for it.
    wake_ns: u64,
}

/// Counters of one direction.
pub type CircuitStats = Stats;

/// What a circuit has for the network.
#[derive(Debug)]
pub(super) enum Received {
    Frame(Frame),
    /// Nothing before this time, and no event waits for it yet.
    Later(u64),
    Nothing,
}

impl Direction {
    fn new(emulator: Emulator<Frame>) -> Self {
        Self {
            emulator,
            wake_ns: u64::MAX,
        }
    }

    /// Remembers that something is due at `at_ns`; whether that needs an event.
    fn is_earlier(&mut self, at_ns: u64) -> bool {
        let is_earlier = at_ns < self.wake_ns;
        if is_earlier {
            self.wake_ns = at_ns;
        }
        is_earlier
    }
}

impl Circuit {
    /// Forward is from the client's side. `header_bytes` is what a frame has
    /// before the IP packet: 14 where the rate counts Ethernet frames.
    pub fn new(profile: &LinkProfile, header_bytes: u32, seed: u64) -> Self {
        let direction = |profile, seed| Direction::new(Emulator::new(profile, seed));
        Self {
            to_server: direction(profile.forward.clone(), seed),
            // Another stream for each direction, as `farhaul link` has it.
            to_client: direction(profile.backward.clone(), !seed),
            header_bytes,
        }
    }

    pub(super) fn header_bytes(&self) -> u32 {
        self.header_bytes
    }

    pub(super) fn stats(&self, to: Side) -> CircuitStats {
        match to {
            Side::Server => *self.to_server.emulator.stats(),
            Side::Client => *self.to_client.emulator.stats(),
        }
    }

    fn direction_mut(&mut self, to: Side) -> &mut Direction {
        match to {
            Side::Server => &mut self.to_server,
            Side::Client => &mut self.to_client,
        }
    }

    /// A packet enters. Says when to look for what comes out, if no event
    /// waits for that yet.
    pub(super) fn send(&mut self, now_ns: u64, to: Side, frame: Frame) -> Option<u64> {
        let direction = self.direction_mut(to);
        let delay_ns = direction.emulator.profile().delay_min_ns();
        direction.emulator.handle_packet(now_ns, frame);
        // Nothing comes out before its delay has passed; when exactly, the
        // event itself will ask.
        let at_ns = now_ns.saturating_add(delay_ns);
        direction.is_earlier(at_ns).then_some(at_ns)
    }

    /// What comes out now, in answer to the event of `event_ns`.
    pub(super) fn receive(&mut self, now_ns: u64, to: Side, event_ns: u64) -> Received {
        let direction = self.direction_mut(to);
        if direction.wake_ns == event_ns {
            direction.wake_ns = u64::MAX;
        } else if direction.wake_ns < event_ns {
            return Received::Nothing; // an earlier event serves it
        }
        match direction.emulator.poll_output(now_ns) {
            Output::Deliver { packet, .. } => {
                // The same event goes on until nothing more is due.
                direction.wake_ns = event_ns;
                Received::Frame(packet)
            }
            Output::Timeout(at_ns) if direction.is_earlier(at_ns) => Received::Later(at_ns),
            Output::Timeout(_) | Output::Idle => Received::Nothing,
        }
    }
}
