//! Keeps the error correction of a tunnel informed: of the loss that QUIC still
//! sees, of the round trip, of the peer's address; and sends its reports.

use std::sync::Arc;
use std::time::Duration;

use super::Session;
use crate::quic::fec::{Channel, Channels, Wire};

const INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(session: Arc<Session>, channels: Arc<Channels>, channel: Arc<Channel>) {
    let mut tick = tokio::time::interval(INTERVAL);
    let mut known = None;
    while !session.is_over() {
        tick.tick().await;
        let address = session.address();
        let Some(remote) = address else {
            continue;
        };
        // A peer behind a translator may appear elsewhere (RFC 9000 section 9).
        if known.is_some() && known != address {
            channels.attach(&channel, remote);
        }
        known = address;
        if let Some(report) = channel.tick(wire(&session)) {
            channels.send(remote, &report).await;
        }
    }
    channels.close(&channel);
}

fn wire(session: &Session) -> Wire {
    let path = session.connection.path_stats(noq::PathId::ZERO);
    let path = path.unwrap_or_default();
    Wire {
        now_ns: session.now_ns(),
        sent: path.sent_packets,
        lost: path.lost_packets,
        rtt_ns: u64::try_from(path.rtt.as_nanos()).unwrap_or(u64::MAX),
        mtu_bytes: usize::from(path.current_mtu),
    }
}
