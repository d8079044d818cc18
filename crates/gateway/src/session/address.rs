//! Where the peer is, for us, for people, and for the QUIC stack.

use std::net::SocketAddr;

use super::Session;
use crate::quic::plain;

impl Session {
    /// The peer's UDP address at the moment.
    pub fn address(&self) -> Option<SocketAddr> {
        let address = self.known_address()?;
        Some(
            self.aliases
                .as_ref()
                .map_or(address, |aliases| aliases.real(address)),
        )
    }

    /// What the QUIC stack calls it.
    pub(super) fn known_address(&self) -> Option<SocketAddr> {
        let path = self.connection.path(noq::PathId::ZERO)?;
        path.remote_address().ok()
    }

    /// The same as people write it: an IPv4 address is none of IPv6.
    pub fn shown_address(&self) -> Option<SocketAddr> {
        Some(plain(self.address()?))
    }
}
