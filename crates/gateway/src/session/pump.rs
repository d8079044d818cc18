//! Writes the machine's frames to the wire, one short stream each.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Session, SessionEnd};

/// Frames wait in the gateway, where they can still be scheduled, and not in
/// the QUIC stack. It is given three windows: one on the wire, one being
/// acknowledged, one for what a lossy round trip retransmits.
const WINDOWS_IN_FLIGHT: u64 = 3;
/// Before the window has grown.
const IN_FLIGHT_BYTES_MIN: u64 = 256 << 10;

pub(super) async fn run(session: Arc<Session>) {
    while !session.is_over() {
        let now = session.now_ns();
        let room = has_room(&session);
        let next = session.operate(|mux, _| match room {
            true => mux.poll_transmit(now),
            // Credit that waits behind data would stop the other direction.
            false => mux.poll_control(now),
        });
        match next {
            Some(frame) => {
                if let Err(end) = send(&session, frame).await {
                    return session.finish(end);
                }
            }
            None => tokio::select! {
                () = session.work.notified() => {}
                () = session.acknowledged.notified() => {}
            },
        }
    }
}

async fn send(
    session: &Arc<Session>,
    mut frame: farhaul_tunnel::Transmit,
) -> Result<(), SessionEnd> {
    let lost = |error: noq::WriteError| match error {
        noq::WriteError::ConnectionLost(error) => super::intake::end_of(error),
        other => SessionEnd::Protocol(other.to_string()),
    };
    let mut stream = session
        .connection
        .open_uni()
        .await
        .map_err(super::intake::end_of)?;
    // Frames of one connection differ in priority only: their order is the
    // machine's, retransmissions included.
    let _ = stream.set_priority(frame.priority);
    if frame.flow.is_some() {
        session.mark.store(frame.dscp, Ordering::Relaxed);
    }
    let len = frame.frame_bytes();
    stream
        .write_all_chunks(&mut frame.chunks)
        .await
        .map_err(lost)?;
    if stream.finish().is_err() {
        return Err(SessionEnd::Protocol("peer refused a frame".to_owned()));
    }
    session.in_flight_bytes.fetch_add(len, Ordering::Relaxed);
    let session = session.clone();
    let acknowledged = stream.stopped();
    tokio::spawn(async move {
        let _ = acknowledged.await;
        session.in_flight_bytes.fetch_sub(len, Ordering::Relaxed);
        session.acknowledged.notify_one();
    });
    Ok(())
}

fn has_room(session: &Session) -> bool {
    (session.in_flight_bytes.load(Ordering::Relaxed) as u64) < in_flight_bytes_max(session)
}

fn in_flight_bytes_max(session: &Session) -> u64 {
    let window = session
        .connection
        .path_stats(noq::PathId::ZERO)
        .map_or(0, |path| path.cwnd);
    (window * WINDOWS_IN_FLIGHT).max(IN_FLIGHT_BYTES_MIN)
}
