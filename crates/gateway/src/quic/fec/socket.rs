//! The socket handed to the QUIC stack where error correction is spoken.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use farhaul_tunnel::fec::{Header, is_fec};
use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};
use tokio::sync::Mutex;

use super::super::socket::Turned;
use super::{Channel, Channels};

/// Passes QUIC's datagrams on, takes out what is ours.
#[derive(Debug)]
pub struct FecSocket {
    inner: Box<dyn AsyncUdpSocket>,
    channels: Arc<Channels>,
    turned: Arc<Turned>,
    /// Recovered datagrams and what they arrived with.
    recovered: VecDeque<(RecvMeta, Vec<u8>)>,
}

impl FecSocket {
    /// Lies above `inner`, which has turned strangers away.
    pub fn new(
        inner: Box<dyn AsyncUdpSocket>,
        channels: Arc<Channels>,
        turned: Arc<Turned>,
    ) -> Self {
        // One endpoint, one socket: a second one would be a mistake of ours
        // and only share the first one's sender.
        let _ = channels.sender.set(Mutex::new(inner.create_sender()));
        Self {
            inner,
            channels,
            turned,
            recovered: VecDeque::new(),
        }
    }

    /// Moves QUIC's datagrams to the front of the buffer and takes in ours.
    fn sort(&mut self, buffer: &mut [u8], meta: &mut RecvMeta) {
        let sender = self.channels.at(meta.addr);
        let stride = meta.stride.max(1);
        let arrival = *meta;
        let (mut from, mut kept) = (0, 0);
        while from < arrival.len {
            let end = (from + stride).min(arrival.len);
            let Some(datagram) = buffer.get(from..end) else {
                break;
            };
            if is_fec(datagram) {
                self.take(datagram, &arrival);
            } else {
                if let Some(channel) = &sender
                    && channel.handle_datagram(datagram)
                {
                    self.collect(channel, &arrival);
                }
                buffer.copy_within(from..end, kept);
                kept += end - from;
            }
            from = end;
        }
        meta.len = kept;
    }

    fn take(&mut self, message: &[u8], arrival: &RecvMeta) {
        let header = Header::read(message).ok();
        let known =
            header.and_then(|header| Some((header, self.channels.numbered(header.channel)?)));
        match known.and_then(|(header, channel)| Some((channel.handle_message(&header)?, channel)))
        {
            Some((true, channel)) => self.collect(&channel, arrival),
            Some((false, _)) => {}
            None => self.turned.add(),
        }
    }

    fn collect(&mut self, channel: &Channel, arrival: &RecvMeta) {
        while let Some(datagram) = channel.poll_recovered() {
            let mut meta = *arrival;
            (meta.len, meta.stride) = (datagram.len(), datagram.len());
            self.recovered.push_back((meta, datagram));
        }
    }

    /// Hands recovered datagrams over in the buffers from `used` on.
    fn hand_over(
        &mut self,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
        used: usize,
    ) -> usize {
        let free = bufs.iter_mut().zip(metas.iter_mut()).skip(used);
        let mut count = used;
        for (buffer, meta) in free {
            let Some((arrival, datagram)) = self.recovered.pop_front() else {
                break;
            };
            // QUIC's buffers hold the largest datagram it accepts.
            let Some(place) = buffer.get_mut(..datagram.len()) else {
                break;
            };
            place.copy_from_slice(&datagram);
            *meta = arrival;
            count += 1;
        }
        count
    }
}

impl AsyncUdpSocket for FecSocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(FecSender {
            inner: self.inner.create_sender(),
            channels: self.channels.clone(),
            waiting: None,
            message: Vec::new(),
        })
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let left_over = self.hand_over(bufs, meta, 0);
        if left_over > 0 {
            return Poll::Ready(Ok(left_over));
        }
        let received = ready!(self.inner.poll_recv(cx, bufs, meta))?;
        for (buffer, meta) in bufs.iter_mut().zip(meta.iter_mut()).take(received) {
            self.sort(buffer, meta);
        }
        Poll::Ready(Ok(self.hand_over(bufs, meta, received)))
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
struct FecSender {
    inner: Pin<Box<dyn UdpSender>>,
    channels: Arc<Channels>,
    /// A repair the socket had no room for.
    waiting: Option<Vec<u8>>,
    message: Vec<u8>,
}

impl FecSender {
    /// Sends the repairs that are due behind the datagrams of `sent`, as far
    /// as the socket takes them: QUIC need not wait for them.
    fn send_repairs(&mut self, channel: &Channel, sent: &Transmit<'_>, cx: &mut Context<'_>) {
        loop {
            match self.waiting.take() {
                Some(message) => self.message = message,
                None if channel.poll_repair(&mut self.message) => {}
                None => return,
            }
            let transmit = Transmit {
                destination: sent.destination,
                ecn: sent.ecn,
                contents: &self.message,
                segment_size: None,
                src_ip: sent.src_ip,
            };
            if self.inner.as_mut().poll_send(&transmit, cx).is_pending() {
                self.waiting = Some(std::mem::take(&mut self.message));
                return;
            }
        }
    }
}

impl UdpSender for FecSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.inner.as_mut().poll_send(transmit, cx))?;
        if let Some(channel) = this.channels.at(transmit.destination) {
            let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
            for datagram in transmit.contents.chunks(segment.max(1)) {
                channel.handle_sent(datagram);
            }
            this.send_repairs(&channel, transmit, cx);
        }
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.inner.max_transmit_segments()
    }
}
