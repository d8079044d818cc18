//! Among how many flows a tunnel is shared at present: what is done ahead of a flow is done with its share of the link.
//!
//! Flows are counted by what they send: one that sends next to nothing beside others is next to no flow. So their number is
//! that of as many equal ones, the square of the sum over the sum of the squares.

/// A second of a tunnel.
#[derive(Debug, Default, Clone, Copy)]
struct Second {
    bytes: f64,
    squares: f64,
}

impl Second {
    fn flows(self) -> f64 {
        match self.squares > 0.0 {
            true => self.bytes * self.bytes / self.squares,
            false => 0.0,
        }
    }
}

/// All flows of a tunnel.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    nth: u64,
    now: Second,
    before: Second,
}

/// What a flow has sent in a second.
#[derive(Debug, Default)]
pub(super) struct Sent {
    nth: u64,
    bytes: f64,
}

impl Sharing {
    /// A flow sends.
    pub fn note(&mut self, nth: u64, sent: &mut Sent, bytes: usize) {
        self.follow(nth);
        if sent.nth != nth {
            *sent = Sent { nth, bytes: 0.0 };
        }
        let bytes = bytes as f64;
        self.now.bytes += bytes;
        self.now.squares += (sent.bytes + bytes).powi(2) - sent.bytes.powi(2);
        sent.bytes += bytes;
    }

    /// So many flows share the tunnel; one at least, for that is who asks.
    pub fn flows(&mut self, nth: u64) -> f64 {
        self.follow(nth);
        self.now.flows().max(self.before.flows()).max(1.0)
    }

    fn follow(&mut self, nth: u64) {
        let passed = nth.saturating_sub(self.nth);
        if passed == 0 {
            return;
        }
        self.before = match passed {
            1 => self.now,
            _ => Second::default(),
        };
        self.now = Second::default();
        self.nth = nth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_flows_are_counted_and_others_hardly() {
        let mut sharing = Sharing::default();
        assert_eq!(sharing.flows(0), 1.0);
        let mut sent: Vec<Sent> = (0..24).map(|_| Sent::default()).collect();
        for round in 0..200 {
            for flow in &mut sent {
                sharing.note(round / 100, flow, 8000);
            }
        }
        assert!((sharing.flows(1) - 24.0).abs() < 0.1);
        // Ten ask for little while one is sent much.
        for (nth, flow) in sent.iter_mut().take(11).enumerate() {
            sharing.note(7, flow, if nth == 0 { 1_000_000 } else { 2000 });
        }
        assert!(sharing.flows(8) < 1.1, "in the second behind that, too");
        assert_eq!(sharing.flows(10), 1.0);
    }

    /// A second that has just begun says nothing yet.
    #[test]
    fn those_of_the_second_before_count() {
        let mut sharing = Sharing::default();
        let mut sent = [Sent::default(), Sent::default()];
        for flow in &mut sent {
            sharing.note(4, flow, 100);
        }
        sharing.note(5, &mut sent[0], 100);
        assert_eq!(sharing.flows(5), 2.0);
    }
}
