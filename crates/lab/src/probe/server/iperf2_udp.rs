//! iperf 2 clients over UDP: all flows of a port, told apart by their address.
//!
//! It is a sink only. A first datagram proves nothing about who sent it: a
//! source of datagrams could be pointed at anybody.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::Shared;
use super::clients::{Iperf2Client, Transport};
use crate::probe::clock::now_ns;
use crate::probe::iperf2::{DatagramHead, Report};
use crate::probe::iperf3::udp::{Tally, is_passing};

/// Most flows at once.
const FLOWS_MAX: usize = 256;
/// A flow of which nothing more comes.
const IDLE_PATIENCE: Duration = Duration::from_secs(10);

/// Until stopped.
pub(super) fn serve(shared: &Shared, socket: &UdpSocket) {
    let mut flows: HashMap<SocketAddr, Flow<'_>> = HashMap::new();
    let mut buffer = vec![0; 65_535];
    let mut swept = Instant::now();
    while !shared.is_stopping() {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                let datagram = buffer.get(..length).unwrap_or_default();
                if let Some(answer) = take(shared, &mut flows, datagram, from) {
                    // What our own interface refuses is lost, as on the way.
                    let _ = socket.send_to(&answer, from);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(_) => return,
        }
        if swept.elapsed() > Duration::from_secs(1) {
            swept = Instant::now();
            flows.retain(|_, flow| flow.last.elapsed() < IDLE_PATIENCE);
        }
    }
}

/// Counts a datagram; returns what its sender shall hear.
fn take<'a>(
    shared: &'a Shared,
    flows: &mut HashMap<SocketAddr, Flow<'a>>,
    datagram: &[u8],
    from: SocketAddr,
) -> Option<Vec<u8>> {
    let head = DatagramHead::read(datagram)?;
    if !flows.contains_key(&from) {
        // The end of a flow that is unknown, or has been forgotten.
        if head.is_last || flows.len() >= FLOWS_MAX {
            return None;
        }
        let client = shared.enlist_iperf2(from.ip(), Transport::Udp)?;
        flows.insert(from, Flow::new(client));
    }
    flows.get_mut(&from)?.take(head, datagram.len())
}

/// One client's datagrams.
struct Flow<'a> {
    _client: Iperf2Client<'a>,
    tally: Tally,
    first_us: Option<u64>,
    last: Instant,
    /// What the client was told; it may ask again.
    report: Option<Report>,
    /// So many more bytes may be answered: nobody is sent more than he sent.
    answerable_bytes: usize,
}

impl<'a> Flow<'a> {
    fn new(client: Iperf2Client<'a>) -> Self {
        Self {
            _client: client,
            tally: Tally::default(),
            first_us: None,
            last: Instant::now(),
            report: None,
            answerable_bytes: 0,
        }
    }

    fn take(&mut self, head: DatagramHead, bytes: usize) -> Option<Vec<u8>> {
        let now_us = now_ns() / 1000;
        let first_us = *self.first_us.get_or_insert(now_us);
        self.last = Instant::now();
        self.answerable_bytes = self.answerable_bytes.saturating_add(bytes);
        let ended = self.report.is_some();
        if !ended {
            self.tally.take(head.number, head.sent_us, now_us, bytes);
        }
        if !head.is_last {
            return None;
        }
        let (tally, duration_us) = (&self.tally, now_us.saturating_sub(first_us));
        let report = *self.report.get_or_insert_with(|| Report {
            bytes: tally.bytes,
            duration_us,
            lost: u64::try_from(tally.missing).unwrap_or(0),
            out_of_order: tally.late,
            datagrams: tally.highest,
            jitter_us: tally.jitter_us,
        });
        let answer = report.to_bytes(head.is_wide);
        self.answerable_bytes = self.answerable_bytes.checked_sub(answer.len())?;
        Some(answer)
    }
}
