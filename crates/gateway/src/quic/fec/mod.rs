//! Error correction beneath QUIC: repairs for what should not wait for a
//! retransmission ([`farhaul_tunnel::fec`] is the code and its wire format).
//!
//! [`FecSocket`] lies between the QUIC stack and the guarded socket. What QUIC
//! sends passes unchanged; where the session has said that the next bytes are
//! to be protected, it is remembered, and repairs follow. What arrives passes
//! too; repairs are taken out, and what they recover is handed to QUIC as if
//! it had arrived.
//!
//! A [`Channel`] is one tunnel's error correction. It exists once both sides
//! have offered [`FEATURE_FEC`](farhaul_tunnel::FEATURE_FEC), has a number and
//! a key for each direction that only the two ends of the TLS connection can
//! derive (RFC 5705, RFC 8446 section 7.5), and drops unanswered what bears
//! another tag: strangers meet the same silence as at the door.

mod channel;
mod copies;
mod socket;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, RwLock};

use farhaul_tunnel::Side;
use noq::UdpSender;
use noq::udp::Transmit;
use tokio::sync::Mutex;

pub use self::channel::{Channel, Figures, PAUSE, Wire};
pub use self::socket::FecSocket;
use super::socket::canonical;
pub use farhaul_tunnel::fec::CorrectionState;

type Sender = Mutex<Pin<Box<dyn UdpSender>>>;

/// The channels of one endpoint, found by number for what arrives, and by the
/// peer's address for what QUIC sends and receives.
#[derive(Default)]
pub struct Channels {
    by_address: RwLock<HashMap<SocketAddr, Arc<Channel>>>,
    by_number: RwLock<HashMap<u32, Arc<Channel>>>,
    sender: OnceLock<Sender>,
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}

impl Channels {
    /// Opens the channel of a connection. Both ends must do so; what only one
    /// end does is dropped by the other. `None` where TLS derives no keys.
    pub fn open(
        &self,
        connection: &noq::Connection,
        side: Side,
        remote: SocketAddr,
    ) -> Option<Arc<Channel>> {
        let channel = Arc::new(Channel::of(connection, side)?);
        let mut numbers = write(&self.by_number);
        numbers.insert(channel.number(), channel.clone());
        drop(numbers);
        self.attach(&channel, remote);
        Some(channel)
    }

    /// The peer's datagrams come from, and go to, this address from now on. The
    /// newest tunnel has the address to itself.
    pub fn attach(&self, channel: &Arc<Channel>, remote: SocketAddr) {
        let mut addresses = write(&self.by_address);
        addresses.retain(|_, other| !Arc::ptr_eq(other, channel));
        addresses.insert(canonical(remote), channel.clone());
    }

    /// Forgets a channel.
    pub fn close(&self, channel: &Arc<Channel>) {
        write(&self.by_number).remove(&channel.number());
        write(&self.by_address).retain(|_, other| !Arc::ptr_eq(other, channel));
    }

    /// Sends a message that belongs to no datagram.
    pub async fn send(&self, destination: SocketAddr, message: &[u8]) {
        let Some(sender) = self.sender.get() else {
            return;
        };
        let transmit = Transmit {
            destination,
            ecn: None,
            contents: message,
            segment_size: None,
            src_ip: None,
        };
        let mut sender = sender.lock().await;
        // Lost or refused, it is made up for by the next one.
        let _ = std::future::poll_fn(|cx| sender.as_mut().poll_send(&transmit, cx)).await;
    }

    fn at(&self, address: SocketAddr) -> Option<Arc<Channel>> {
        let addresses = read(&self.by_address);
        if addresses.is_empty() {
            return None;
        }
        addresses.get(&canonical(address)).cloned()
    }

    fn numbered(&self, number: u32) -> Option<Arc<Channel>> {
        read(&self.by_number).get(&number).cloned()
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poison| poison.into_inner())
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poison| poison.into_inner())
}
