//! Shows a long path's controller that it is a fast one, before anybody needs it.
//!
//! The search for a rate takes a few trains of packets, a round trip each, and whoever comes first waits for that: half a second of
//! round trip costs a file .7 s. The first train is as short as a T1 must have it, and tells no more than that the second one can be
//! long. So a tunnel that has just come up, and that is not used yet, sends the first one itself, of nothing: 56 KB, .3 s of a T1.
//! Later trains are left to whoever has something to send: one that nothing follows is acknowledged late and in lumps, and real
//! gateways found 12 to 66 Mbit/s by it where there were 52. Where something is known of the path, or what carries it is told, there
//! is nothing to find; and over a short round trip the search is short.

use std::sync::Arc;
use std::time::Duration;

use super::Session;

/// So many packets behind the train make its receiver acknowledge all of it at once.
const BEHIND_PACKETS: u64 = 14;
/// The receiver may acknowledge what was said first so late, and either machine may have been held up.
const LATE: Duration = Duration::from_millis(50);

pub(super) async fn run(session: Arc<Session>) {
    let known = &session.path_settings;
    if known.remembered.is_some() || known.link_bits_per_s.is_some() {
        return;
    }
    if session.greeted().await.is_err() {
        return;
    }
    // What was said first is acknowledged by then, and the round trip known.
    tokio::time::sleep(session.rtt() * 5 / 4 + LATE).await;
    let train = session.path().and_then(|path| path.train_bytes);
    let is_unused = session.flow_count() == 0 && !session.is_over();
    if let Some(bytes) = train.filter(|_| is_unused) {
        let bytes = bytes + BEHIND_PACKETS * u64::from(session.stats().mtu_bytes);
        session.drive(|mux, _| mux.fill(usize::try_from(bytes).unwrap_or(usize::MAX)));
    }
}
