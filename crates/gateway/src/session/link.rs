//! What a session knows of its link.

use std::time::Duration;

use farhaul_tunnel::PathView;

use super::Session;
use crate::lock::lock;
use crate::quic::controller::Reach;
use crate::quic::flight::Flight;

/// What is lost without having been seen counts in between.
const UNSEEN_MIN: f64 = 1e-4;
const UNSEEN_MAX: f64 = 0.01;

impl Session {
    /// Smoothed round trip.
    pub fn rtt(&self) -> Duration {
        let path = self.connection.path_stats(noq::PathId::ZERO);
        path.map_or(Duration::ZERO, |path| path.rtt)
    }

    /// What the path is thought to carry, bytes per second: before anything was sent what was told of it; 0 while not known.
    pub fn rate_bytes_s(&self) -> u64 {
        let told_bits_s = self.path_settings.link_bits_per_s.unwrap_or(0);
        match self.path().map_or(0, |view| view.rate as u64) {
            0 => told_bits_s / 8,
            found => found,
        }
    }

    /// How far ahead the path must be fed, as far as is known.
    pub fn reach(&self) -> Reach {
        Reach {
            rate_bytes_s: self.rate_bytes_s(),
            loss: self.path().and_then(|path| path.loss_seen).unwrap_or(0.0),
        }
    }

    /// The share of packets that may be lost although none was seen to be: of n that were sent, as good as never more than 3 in n.
    /// Nothing where that is little, and no more than many links lose.
    pub fn loss_unseen(&self) -> f64 {
        let path = self.connection.path_stats(noq::PathId::ZERO);
        unseen(path.map_or(0, |path| path.sent_packets))
    }

    /// Waits until that is more than this, by enough to matter.
    pub async fn reach_exceeded(&self, known: Reach) {
        let path = lock(&self.path).clone();
        match path {
            Some(path) => path.exceeded(known).await,
            None => std::future::pending().await,
        }
    }

    /// What the stack has taken and not sent, bytes, about: of frames that are acknowledged in part all counts.
    pub fn unsent_bytes(&self) -> u64 {
        let in_flight_bytes =
            Flight::of(&self.connection).map_or(0, |flight| flight.in_flight_bytes());
        self.held.bytes().saturating_sub(in_flight_bytes)
    }

    /// Whether something waits until the link has room for it; what is of class control never does.
    pub fn is_link_wanted(&self) -> bool {
        self.held.is_waiting()
    }

    /// Among how many flows that is shared.
    pub fn sharers(&self) -> f64 {
        lock(&self.sharing).flows(self.started.elapsed().as_secs())
    }

    /// What the congestion controller has found out about the path.
    pub fn path(&self) -> Option<PathView> {
        lock(&self.path).as_ref()?.view()
    }
}

/// What may be lost where none of so many packets was seen to be.
fn unseen(sent: u64) -> f64 {
    match 3.0 / sent.max(1) as f64 {
        most if most < UNSEEN_MIN => 0.0,
        most => most.min(UNSEEN_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_has_come_the_less_may_be_lost_unseen() {
        let found = [0, 100, 1000, 10_000, 100_000].map(unseen);
        assert_eq!(found, [0.01, 0.01, 0.003, 0.0003, 0.0]);
    }
}
