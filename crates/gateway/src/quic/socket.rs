//! The UDP socket under QUIC: drops what strangers send before the stack sees
//! it, and marks outgoing datagrams with the DSCP of the flows they carry.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, Runtime, TokioRuntime, UdpSender};
use tokio::io::Interest;
use tokio::time::Instant;

use super::knock::Doorkeeper;
use super::pause::Pauses;

/// DSCP of what is being sent to each peer address at the moment.
///
/// One QUIC connection carries many flows, so a datagram takes the mark of
/// the frame that was queued last; frames are short, so a flow that has the
/// link to itself is marked throughout.
#[derive(Debug, Default)]
pub struct Marking(RwLock<HashMap<SocketAddr, Arc<AtomicU8>>>);

impl Marking {
    /// The mark for `remote`, shared between its tunnel and the socket.
    pub fn of(&self, remote: SocketAddr) -> Arc<AtomicU8> {
        let mut marks = self.0.write().unwrap_or_else(|poison| poison.into_inner());
        marks.entry(canonical(remote)).or_default().clone()
    }

    /// Forgets `remote`; its datagrams are unmarked from now on.
    pub fn forget(&self, remote: SocketAddr) {
        let mut marks = self.0.write().unwrap_or_else(|poison| poison.into_inner());
        marks.remove(&canonical(remote));
    }

    fn current(&self, remote: SocketAddr) -> u8 {
        let marks = self.0.read().unwrap_or_else(|poison| poison.into_inner());
        marks
            .get(&canonical(remote))
            .map_or(0, |mark| mark.load(Ordering::Relaxed))
    }
}

pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Datagrams turned away, for `farhaul status`.
#[derive(Debug, Default)]
pub struct Turned(AtomicU64);

impl Turned {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many datagrams were dropped unanswered.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What carries the datagrams: the system's socket, or one in memory.
#[derive(Debug)]
pub struct Carrier {
    socket: Box<dyn AsyncUdpSocket>,
    /// The system's socket once more, for datagrams with a DSCP; another
    /// kind of socket carries no marks.
    marked: Option<Arc<tokio::net::UdpSocket>>,
}

impl Carrier {
    /// Takes a bound socket over. Must run inside a tokio runtime.
    pub fn system(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let marked = tokio::net::UdpSocket::from_std(socket.try_clone()?)?;
        Ok(Self {
            socket: TokioRuntime.wrap_udp_socket(socket)?,
            marked: Some(Arc::new(marked)),
        })
    }
}

impl From<Box<dyn AsyncUdpSocket>> for Carrier {
    fn from(socket: Box<dyn AsyncUdpSocket>) -> Self {
        Self {
            socket,
            marked: None,
        }
    }
}

/// The socket handed to the QUIC endpoint.
#[derive(Debug)]
pub struct TunnelSocket {
    carrier: Carrier,
    marking: Arc<Marking>,
    doorkeeper: Doorkeeper,
    turned: Arc<Turned>,
    pauses: Arc<Pauses>,
}

impl TunnelSocket {
    /// Guards `carrier`.
    pub fn new(
        carrier: Carrier,
        doorkeeper: Doorkeeper,
        marking: Arc<Marking>,
        turned: Arc<Turned>,
        pauses: Arc<Pauses>,
    ) -> Self {
        Self {
            carrier,
            marking,
            doorkeeper,
            turned,
            pauses,
        }
    }

    /// Moves the datagrams that may pass to the front of the buffer; a
    /// receive offload batch may hold several of `meta.stride` bytes.
    fn admit(&self, buffer: &mut [u8], meta: &mut RecvMeta) {
        let stride = meta.stride.max(1);
        let (mut from, mut kept) = (0, 0);
        while from < meta.len {
            let end = (from + stride).min(meta.len);
            let admitted = buffer
                .get(from..end)
                .is_some_and(|d| self.doorkeeper.admits(d));
            if admitted {
                buffer.copy_within(from..end, kept);
                kept += end - from;
            } else {
                self.turned.add();
            }
            from = end;
        }
        meta.len = kept;
    }
}

impl AsyncUdpSocket for TunnelSocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(MarkingSender {
            plain: self.carrier.socket.create_sender(),
            marked: self.carrier.marked.clone(),
            marking: self.marking.clone(),
        })
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = loop {
            let Poll::Ready(result) = self.carrier.socket.poll_recv(cx, bufs, meta) else {
                self.pauses.emptied(Instant::now());
                return Poll::Pending;
            };
            let received = result?;
            let bytes = meta.iter().take(received).map(|meta| meta.len).sum();
            if !self.pauses.is_stale(Instant::now(), bytes) {
                break received;
            }
        };
        for (buffer, meta) in bufs.iter_mut().zip(meta.iter_mut()).take(received) {
            self.admit(buffer, meta);
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.carrier.socket.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.carrier.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.carrier.socket.may_fragment()
    }
}

#[derive(Debug)]
struct MarkingSender {
    plain: Pin<Box<dyn UdpSender>>,
    marked: Option<Arc<tokio::net::UdpSocket>>,
    marking: Arc<Marking>,
}

impl UdpSender for MarkingSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let dscp = this.marking.current(transmit.destination);
        let Some(marked) = this.marked.as_ref().filter(|_| dscp != 0) else {
            return this.plain.as_mut().poll_send(transmit, cx);
        };
        loop {
            ready!(marked.poll_send_ready(cx))?;
            let sent = marked.try_io(Interest::WRITABLE, || send_marked(marked, transmit, dscp));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.plain.max_transmit_segments()
    }
}

fn send_marked(
    socket: &tokio::net::UdpSocket,
    transmit: &Transmit<'_>,
    dscp: u8,
) -> io::Result<()> {
    let tos = (dscp << 2) | transmit.ecn.map_or(0, |ecn| ecn as u8);
    let class = i32::from(tos);
    let to_v4 = matches!(transmit.destination.ip().to_canonical(), IpAddr::V4(_));
    let segment = transmit
        .segment_size
        .filter(|size| *size < transmit.contents.len());
    let segment = segment.map(|size| u16::try_from(size).unwrap_or(u16::MAX));
    let mut control = Vec::with_capacity(2);
    control.push(if to_v4 {
        ControlMessage::Ipv4Tos(&tos)
    } else {
        ControlMessage::Ipv6TClass(&class)
    });
    if let Some(size) = &segment {
        control.push(ControlMessage::UdpGsoSegments(size));
    }
    let to = SockaddrStorage::from(transmit.destination);
    let contents = [IoSlice::new(transmit.contents)];
    sendmsg(
        socket.as_raw_fd(),
        &contents,
        &control,
        MsgFlags::empty(),
        Some(&to),
    )?;
    Ok(())
}
