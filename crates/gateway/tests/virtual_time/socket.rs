//! A UDP socket on the [`Network`]: never full, like a gateway that is fast
//! enough.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

use super::network::{Datagram, Network};

/// What Linux sends in one call (UDP_MAX_SEGMENTS before Linux 6.9).
const SEGMENTS_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// One host's socket; the host must be attached to the network.
#[derive(Debug, Clone)]
pub struct MemorySocket {
    network: Arc<Network>,
    address: SocketAddr,
}

impl MemorySocket {
    /// The socket of the host at `address`.
    pub fn new(network: Arc<Network>, address: SocketAddr) -> Self {
        Self { network, address }
    }
}

impl AsyncUdpSocket for MemorySocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(self.clone())
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let max = bufs.len().min(meta.len());
        let received = self.network.receive(self.address, max, cx.waker());
        if received.is_empty() {
            return Poll::Pending;
        }
        for ((datagram, buf), meta) in received.iter().zip(bufs).zip(meta) {
            let len = datagram.contents.len().min(buf.len());
            buf[..len].copy_from_slice(&datagram.contents[..len]);
            *meta = RecvMeta::default();
            meta.addr = datagram.from;
            meta.len = len;
            meta.stride = len;
            meta.ecn = datagram.ecn;
            meta.dst_ip = Some(self.address.ip());
        }
        Poll::Ready(Ok(received.len()))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl UdpSender for MemorySocket {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let contents = Bytes::copy_from_slice(transmit.contents);
        let segment = transmit.segment_size.unwrap_or(contents.len()).max(1);
        for start in (0..contents.len()).step_by(segment) {
            let end = (start + segment).min(contents.len());
            self.network.send(Datagram {
                from: self.address,
                to: transmit.destination,
                ecn: transmit.ecn,
                contents: contents.slice(start..end),
            });
        }
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        SEGMENTS_MAX
    }
}
