//! Another name for a peer's address, so that the QUIC stack proves it anew.
//!
//! A peer that appears at another address must prove that it is there before
//! it is sent more than three times what came from there (RFC 9000 sections
//! 8.2 and 9.3). Where the challenge or its answer is lost for longer than
//! three retransmission times, the stack gives the proof up, keeps the
//! address, and never asks again: the tunnel carries next to nothing from then
//! on. An address it has not seen before it would ask at, so it is shown one:
//! the peer's datagrams seem to come from an address of the discard prefix
//! (RFC 6666), and what is sent there goes to where the peer is.
//!
//! Nothing outside of [`super`] sees an alias: ask [`Aliases::real`].

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, ready};

use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

use super::socket::canonical;

/// 100::/64, to which nobody sends (RFC 6666).
const DISCARD: [u16; 4] = [0x100, 0, 0, 0];

/// Which addresses go by another name at the moment.
#[derive(Debug, Default)]
pub struct Aliases {
    /// Spares the rest to nearly everybody at nearly every time.
    is_used: AtomicBool,
    names: RwLock<Names>,
}

#[derive(Debug, Default)]
struct Names {
    count: u64,
    /// From the peer's address, canonical, to what the stack is shown.
    shown: HashMap<SocketAddr, SocketAddr>,
    /// The other way round, to the address as the socket writes it.
    real: HashMap<SocketAddr, SocketAddr>,
    /// A dialled peer does not move, and would not be known by another name.
    dialled: HashSet<SocketAddr>,
}

impl Aliases {
    /// `address` was dialled: it never goes by another name.
    pub(super) fn dialled(&self, address: SocketAddr) {
        let mut names = self.write();
        self.drop_name(&mut names, canonical(address));
        names.dialled.insert(canonical(address));
    }

    /// Gives the peer at `address` a name that the stack has not seen.
    pub fn renew(&self, address: SocketAddr) {
        let mut names = self.write();
        let address = names.real.get(&address).copied().unwrap_or(address);
        let key = canonical(address);
        if names.dialled.contains(&key) {
            return;
        }
        // What it was called before is sent to until the stack has seen the new name.
        names.count = names.count.wrapping_add(1);
        let alias = alias(names.count, address.port());
        names.shown.insert(key, alias);
        names.real.insert(alias, address);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// The peer at `address` is gone.
    pub fn forget(&self, address: SocketAddr) {
        if self.is_used.load(Ordering::Relaxed) {
            let mut names = self.write();
            let address = names.real.get(&address).copied().unwrap_or(address);
            self.drop_name(&mut names, canonical(address));
        }
    }

    fn drop_name(&self, names: &mut Names, address: SocketAddr) {
        if names.shown.remove(&address).is_some() {
            names.real.retain(|_, real| canonical(*real) != address);
        }
        self.is_used
            .store(!names.shown.is_empty(), Ordering::Relaxed);
    }

    /// Where what the stack calls `address` is.
    pub fn real(&self, address: SocketAddr) -> SocketAddr {
        if !is_alias(address) {
            return address;
        }
        self.read().real.get(&address).copied().unwrap_or(address)
    }

    fn shown(&self, address: SocketAddr) -> SocketAddr {
        let shown = self.read().shown.get(&canonical(address)).copied();
        shown.unwrap_or(address)
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.names
            .read()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names
            .write()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

fn alias(number: u64, port: u16) -> SocketAddr {
    let [a, b, c, d] = DISCARD;
    let part = |shift: u32| (number >> shift) as u16;
    let address = Ipv6Addr::new(a, b, c, d, part(48), part(32), part(16), part(0));
    SocketAddr::new(address.into(), port)
}

fn is_alias(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().segments().starts_with(&DISCARD))
}

/// Shows the QUIC stack the peers by their names.
#[derive(Debug)]
pub struct AliasSocket {
    inner: Box<dyn AsyncUdpSocket>,
    aliases: Arc<Aliases>,
}

impl AliasSocket {
    /// Lies above everything that knows peers by their addresses.
    pub fn new(inner: Box<dyn AsyncUdpSocket>, aliases: Arc<Aliases>) -> Self {
        Self { inner, aliases }
    }
}

impl AsyncUdpSocket for AliasSocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(AliasSender {
            inner: self.inner.create_sender(),
            aliases: self.aliases.clone(),
        })
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.inner.poll_recv(cx, bufs, metas))?;
        if self.aliases.is_used.load(Ordering::Relaxed) {
            for meta in metas.iter_mut().take(received) {
                meta.addr = self.aliases.shown(meta.addr);
            }
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[derive(Debug)]
struct AliasSender {
    inner: Pin<Box<dyn UdpSender>>,
    aliases: Arc<Aliases>,
}

impl UdpSender for AliasSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !is_alias(transmit.destination) {
            return this.inner.as_mut().poll_send(transmit, cx);
        }
        let destination = this.aliases.real(transmit.destination);
        if is_alias(destination) {
            // Its session has ended.
            return Poll::Ready(Ok(()));
        }
        let renamed = Transmit {
            destination,
            ..transmit.clone()
        };
        this.inner.as_mut().poll_send(&renamed, cx)
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.inner.max_transmit_segments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_renewal_is_a_name_of_its_own_for_the_same_place() {
        let aliases = Aliases::default();
        let peer = address("[::ffff:192.0.2.1]:1999");
        assert_eq!(aliases.shown(peer), peer);
        aliases.renew(peer);
        let first = aliases.shown(peer);
        assert!(is_alias(first));
        assert_eq!(aliases.real(first), peer, "as the socket wrote it");
        assert_eq!(aliases.shown(address("192.0.2.1:1999")), first);
        aliases.renew(first);
        let second = aliases.shown(peer);
        assert_ne!(first, second);
        assert_eq!(aliases.real(second), peer);
        assert_eq!(aliases.real(first), peer, "until the stack has followed");
        assert_eq!(
            aliases.shown(address("192.0.2.1:2000")),
            address("192.0.2.1:2000")
        );
        aliases.forget(second);
        assert_eq!(aliases.shown(peer), peer);
        assert!(aliases.read().real.is_empty());
        assert!(!aliases.is_used.load(Ordering::Relaxed));
    }

    #[test]
    fn who_was_dialled_keeps_its_name() {
        let aliases = Aliases::default();
        let peer = address("192.0.2.1:4433");
        aliases.renew(peer);
        aliases.dialled(peer);
        assert_eq!(aliases.shown(peer), peer);
        aliases.renew(peer);
        assert_eq!(aliases.shown(peer), peer);
    }
}
