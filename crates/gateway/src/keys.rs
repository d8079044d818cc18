//! Keys of gateways: Ed25519, pinned by both sides (raw public keys, RFC 7250).

/// A gateway's public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);
