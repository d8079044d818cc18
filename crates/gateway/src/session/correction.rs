//! Keeps the error correction of a tunnel informed: of the loss that QUIC still
//! sees, of the round trip, of the peer's address; sends its reports, and its
//! copies of what goes again at the end of a transfer; and takes what repairs
//! need from QUIC's rate.

use std::sync::Arc;
use std::time::Duration;

use super::Session;
use crate::quic::fec::{Channel, Channels, PAUSE, Wire};
use crate::quic::flight::Flight;

const INTERVAL: Duration = Duration::from_millis(100);
/// Nothing new for so long, and what is sent was lost before, but for what the stack has not sent yet. Where copies are sent this is
/// looked at as often: what goes again before a rest is noticed goes once only.
const REST: Duration = Duration::from_millis(5);
/// Of QUIC's rate at most this share is kept for repairs. More of them there
/// are only where there is no bulk, and then the rate is not used up.
const RESERVED_MAX: f64 = 0.1;

pub(super) async fn run(session: Arc<Session>, channels: Arc<Channels>, channel: Arc<Channel>) {
    // In this order when they wake at one instant, as they do in virtual time, where a run shall be the same each time.
    tokio::select! {
        biased;
        () = inform(&session, &channels, &channel) => {}
        () = copy(&session, &channels, &channel) => {}
        () = watch_rest(&session, &channel) => {}
    }
    channels.close(&channel);
}

async fn inform(session: &Session, channels: &Channels, channel: &Arc<Channel>) {
    let mut tick = tokio::time::interval(INTERVAL);
    let mut known = None;
    let mut flight = Flight::of(&session.connection);
    channel.watch(flight.clone());
    while !session.is_over() {
        tick.tick().await;
        let address = session.address();
        let Some(remote) = address else {
            continue;
        };
        // A peer behind a translator may appear elsewhere (RFC 9000 section 9).
        if known.is_some() && known != address {
            channels.attach(channel, remote);
            flight = Flight::of(&session.connection);
            channel.watch(flight.clone());
        }
        known = address;
        if let Some(report) = channel.tick(wire(session, flight.as_deref())) {
            channels.send(remote, &report).await;
        }
        if let Some(flight) = &flight {
            flight.reserve(channel.figures().share.min(RESERVED_MAX));
        }
    }
}

/// Finds out when there is nothing new.
async fn watch_rest(session: &Session, channel: &Channel) {
    let mut frames = 0;
    loop {
        let interval = if channel.is_copying() { REST } else { INTERVAL };
        tokio::time::sleep(interval).await;
        let before = std::mem::replace(&mut frames, session.held.frames());
        channel.repeat_rest(before == frames && session.held.is_rest());
    }
}

/// Sends copies as they fall due.
async fn copy(session: &Session, channels: &Channels, channel: &Channel) {
    let sent_bytes = |flight: &Option<Arc<Flight>>| flight.as_ref().map_or(0, |it| it.sent_bytes());
    loop {
        channel.copied().await;
        let flight = Flight::of(&session.connection);
        let before_bytes = sent_bytes(&flight);
        tokio::time::sleep(PAUSE).await;
        let else_bytes = sent_bytes(&flight).saturating_sub(before_bytes);
        let rate_bytes_s = flight.map_or(0, |flight| flight.pacing_bytes_s());
        let Some(remote) = session.address() else {
            continue;
        };
        for datagram in channel.due_copies(rate_bytes_s, else_bytes) {
            channels.send(remote, &datagram).await;
        }
    }
}

fn wire(session: &Session, flight: Option<&Flight>) -> Wire {
    let path = session.connection.path_stats(noq::PathId::ZERO);
    let path = path.unwrap_or_default();
    Wire {
        now_ns: session.now_ns(),
        sent: path.sent_packets,
        lost: super::packets_lost(&path),
        acknowledged: flight.map_or(0, Flight::acknowledged_packets),
        in_flight_bytes: flight.map_or(0, Flight::in_flight_bytes),
        rtt_ns: u64::try_from(path.rtt.as_nanos()).unwrap_or(u64::MAX),
        mtu_bytes: usize::from(path.current_mtu),
    }
}
