//! Peer protocol.
