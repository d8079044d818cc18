//! Those who dial with a key that nobody here has: most often a peer whose key was copied wrongly, or has changed.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::event::Event;
use crate::gateway::Gateway;
use crate::keys::PublicKey;
use crate::lock::lock;
use crate::quic::EndpointError;

/// Keys named at most in one line of log.
const EXPECTED_KEYS_MAX: usize = 4;
/// Strangers remembered at most; whoever knows our key can be one.
const STRANGERS_MAX: usize = 8;
/// For so long: a gateway dials again each second.
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Stranger {
    at: Instant,
    address: SocketAddr,
    key: PublicKey,
}

/// Who was turned away lately, latest first.
#[derive(Debug, Default)]
pub(crate) struct Strangers(VecDeque<Stranger>);

impl Strangers {
    fn came(&mut self, at: Instant, address: SocketAddr, key: PublicKey) {
        self.0.retain(|stranger| stranger.key != key);
        self.0.truncate(STRANGERS_MAX - 1);
        self.0.push_front(Stranger { at, address, key });
    }

    fn lately(&self, now: Instant) -> impl Iterator<Item = (SocketAddr, PublicKey)> {
        let is_recent =
            move |stranger: &&Stranger| now.saturating_duration_since(stranger.at) < REMEMBERED;
        let recent = self.0.iter().filter(is_recent);
        recent.map(|stranger| (stranger.address, stranger.key))
    }
}

impl Gateway {
    /// A handshake has failed. A dialer whose key nobody here has pinned is named by it.
    pub(crate) fn turn_away(&self, address: SocketAddr, error: &EndpointError) {
        // What our own side ended; a dialer that went away was not refused.
        let ended_here = matches!(
            error,
            EndpointError::Handshake(_, noq::ConnectionError::TransportError(_))
        );
        let refused = self.endpoint.pinned.take_refused();
        let why = match refused.filter(|_| ended_here) {
            Some(key) => {
                lock(&self.strangers).came(Instant::now(), address, key);
                self.unknown(&key)
            }
            None => error.to_string(),
        };
        self.events.emit(Event::PeerRejected { address, why });
    }

    fn unknown(&self, key: &PublicKey) -> String {
        let expected: Vec<_> = self
            .peers()
            .iter()
            .map(|peer| peer.config())
            .take(EXPECTED_KEYS_MAX)
            .map(|peer| format!("{} of {}", peer.key, peer.name))
            .collect();
        format!(
            "it presented the key {key}, which no [[peer]] has here; expected: {}",
            expected.join(", ")
        )
    }

    /// Whose key is still unknown, latest first.
    pub(crate) fn strangers(&self) -> Vec<(SocketAddr, PublicKey)> {
        let known: Vec<_> = self.peers().iter().map(|peer| peer.config().key).collect();
        lock(&self.strangers)
            .lately(Instant::now())
            .filter(|(_, key)| !known.contains(key))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_come_first_and_are_forgotten() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut strangers = Strangers::default();
        for number in 0..20 {
            strangers.came(start, address(u16::from(number)), PublicKey([number; 32]));
        }
        assert_eq!(strangers.lately(start).count(), STRANGERS_MAX);
        // Who comes again, from another port, is still one.
        strangers.came(after(30), address(99), PublicKey([15; 32]));
        let lately: Vec<_> = strangers.lately(after(30)).collect();
        assert_eq!(lately.len(), STRANGERS_MAX);
        assert_eq!(lately[0], (address(99), PublicKey([15; 32])));
        assert_eq!(strangers.lately(after(60)).count(), 1);
        assert_eq!(strangers.lately(after(90)).count(), 0);
    }
}
