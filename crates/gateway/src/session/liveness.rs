//! Listens for silence. Both sides send keep-alives, so any datagram counts,
//! acknowledgements included; the QUIC stack's own idle time-out is as long
//! as flows are kept and says nothing about the moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Session;

/// How often the receive counter is read; adds at most this to detection.
const INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn run(session: Arc<Session>) {
    let mut tick = tokio::time::interval(INTERVAL);
    let mut datagrams = 0;
    while !session.is_over() {
        tick.tick().await;
        let received = session.connection.stats().udp_rx.datagrams;
        if received != datagrams {
            datagrams = received;
            let now = u64::try_from(session.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            session.heard_ms.store(now, Ordering::Relaxed);
        }
    }
}
