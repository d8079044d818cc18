//! Silence towards strangers.
//!
//! A QUIC server answers anybody's first packet. Ours answers only packets
//! whose destination connection ID proves that the sender knows our public
//! key, which is pinned at our peers and published nowhere (the idea of
//! WireGuard's `mac1`). Everything else is dropped before the QUIC stack sees
//! it: no version negotiation, no handshake, no reset.
//!
//! | packet (RFC 9000 section 17) | connection ID | passes when |
//! |---|---|---|
//! | first Initial of a dialer | 8 random bytes, 12 bytes HMAC(knock key, random) | HMAC matches |
//! | later long headers | 4 random bytes, 4 bytes HMAC(own key, random) | we issued it |
//! | short headers | the same, or noise in a stateless reset | always |
//!
//! Short headers cannot be judged here: a stateless reset (RFC 9000 section
//! 10.3) looks like noise on purpose. The stack drops what belongs to no
//! connection, matches no reset token and carries no ID of ours, unanswered.
//! An observer can replay a knock; he then gets a handshake he cannot finish.

use noq::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use ring::hmac;

use crate::keys::PublicKey;

const QUIC_V1: u32 = 1;
const ISSUED_RANDOM: usize = 4;
/// In every packet, so no longer than needed: who guesses a tag has the stack look for a connection that is not there.
const ISSUED_LEN: usize = 8;
const KNOCK_RANDOM: usize = 8;
const KNOCK_LEN: usize = 20;

/// Issues and recognises our connection IDs. The same private key gives the
/// same IDs after a restart, so a peer's packets for a lost connection are
/// answered by a stateless reset (RFC 9000 section 10.3) and not by silence.
#[derive(Debug, Clone)]
pub struct IssuedIds {
    key: hmac::Key,
}

impl IssuedIds {
    /// `secret` must stay the same across restarts and be known to nobody else.
    pub fn new(secret: &[u8]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    fn recognises(&self, id: &[u8]) -> bool {
        matches_tag(&self.key, id, ISSUED_RANDOM, ISSUED_LEN)
    }
}

impl ConnectionIdGenerator for IssuedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&tagged::<ISSUED_LEN>(&self.key, ISSUED_RANDOM))
    }

    fn validate(&self, cid: ConnectionId) -> Result<(), InvalidCid> {
        if self.recognises(&cid) {
            Ok(())
        } else {
            Err(InvalidCid)
        }
    }

    fn cid_len(&self) -> usize {
        ISSUED_LEN
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Makes the first connection ID a dialer sends to the gateway with this key.
#[derive(Debug, Clone)]
pub struct Knock {
    key: hmac::Key,
}

impl Knock {
    /// A knock at the gateway that holds `answering`'s private key.
    pub fn new(answering: &PublicKey) -> Self {
        let mut secret = b"farhaul knock 1".to_vec();
        secret.extend_from_slice(&answering.0);
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
        }
    }

    /// A fresh connection ID, unlinkable to earlier ones.
    pub fn connection_id(&self) -> ConnectionId {
        ConnectionId::new(&tagged::<KNOCK_LEN>(&self.key, KNOCK_RANDOM))
    }

    fn recognises(&self, id: &[u8]) -> bool {
        matches_tag(&self.key, id, KNOCK_RANDOM, KNOCK_LEN)
    }
}

/// Decides which datagrams the QUIC stack may see.
#[derive(Debug, Clone)]
pub struct Doorkeeper {
    issued: IssuedIds,
    knock: Knock,
}

impl Doorkeeper {
    /// `issued` must be what the endpoint generates connection IDs with.
    pub fn new(issued: IssuedIds, own_key: &PublicKey) -> Self {
        Self {
            issued,
            knock: Knock::new(own_key),
        }
    }

    /// Whether a datagram may pass. Never panics, never allocates.
    pub fn admits(&self, datagram: &[u8]) -> bool {
        self.examine(datagram).unwrap_or(false)
    }

    fn examine(&self, datagram: &[u8]) -> Option<bool> {
        let first = *datagram.first()?;
        if first & 0x80 == 0 {
            return Some(true);
        }
        let version = u32::from_be_bytes(datagram.get(1..5)?.try_into().ok()?);
        let id_len = usize::from(*datagram.get(5)?);
        let id = datagram.get(6..6 + id_len)?;
        Some(version == QUIC_V1 && (self.issued.recognises(id) || self.knock.recognises(id)))
    }
}

fn tagged<const LEN: usize>(key: &hmac::Key, random: usize) -> [u8; LEN] {
    let mut id = [0; LEN];
    let (nonce, tag) = id.split_at_mut(random);
    // A failing system random source leaves zeros: still a valid, if
    // linkable, ID, and the TLS handshake that follows fails on its own.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), nonce);
    let full = hmac::sign(key, nonce);
    tag.iter_mut()
        .zip(full.as_ref())
        .for_each(|(to, from)| *to = *from);
    id
}

fn matches_tag(key: &hmac::Key, id: &[u8], random: usize, len: usize) -> bool {
    if id.len() != len {
        return false;
    }
    let (nonce, tag) = id.split_at(random);
    let full = hmac::sign(key, nonce);
    full.as_ref()
        .iter()
        .zip(tag)
        .fold(0, |differ, (a, b)| differ | (a ^ b))
        == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keeper() -> (Doorkeeper, IssuedIds, Knock) {
        let issued = IssuedIds::new(b"secret");
        let own = PublicKey([7; 32]);
        (
            Doorkeeper::new(issued.clone(), &own),
            issued,
            Knock::new(&own),
        )
    }

    fn long_header(version: u32, id: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0xc0];
        datagram.extend_from_slice(&version.to_be_bytes());
        datagram.push(id.len() as u8);
        datagram.extend_from_slice(id);
        datagram.extend_from_slice(&[0; 1200]);
        datagram
    }

    fn short_header(id: &[u8]) -> Vec<u8> {
        [&[0x40], id, &[0; 30][..]].concat()
    }

    #[test]
    fn a_knock_and_issued_ids_pass() {
        let (keeper, mut issued, knock) = keeper();
        assert!(keeper.admits(&long_header(1, &knock.connection_id())));
        assert!(keeper.admits(&long_header(1, &issued.generate_cid())));
        assert!(keeper.admits(&short_header(&issued.generate_cid())));
    }

    #[test]
    fn other_versions_and_other_keys_do_not_pass() {
        let (keeper, _, knock) = keeper();
        assert!(!keeper.admits(&long_header(0x0a0a_0a0a, &knock.connection_id())));
        let stranger = Knock::new(&PublicKey([8; 32]));
        assert!(!keeper.admits(&long_header(1, &stranger.connection_id())));
        assert!(
            IssuedIds::new(b"other")
                .validate(keeper.issued.clone().generate_cid())
                .is_err()
        );
    }

    #[test]
    fn issued_ids_survive_a_restart() {
        let before = IssuedIds::new(b"secret").generate_cid();
        assert!(IssuedIds::new(b"secret").validate(before).is_ok());
    }

    proptest! {
        #[test]
        fn garbage_with_a_long_header_never_passes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let is_long = bytes.first().is_some_and(|first| first & 0x80 != 0);
            prop_assert!(!(is_long && keeper().0.admits(&bytes)));
        }
    }
}
