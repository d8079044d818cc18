//! Feeds arriving frames to the machine. Each stream is one frame and is read
//! by a task of its own: a frame with a hole in it holds up nobody else's.

use std::sync::Arc;

use bytes::Bytes;
use farhaul_tunnel::FRAME_BYTES_HARD_MAX;
use noq::{ConnectionError, TransportErrorCode, VarInt};
use tokio::task::JoinSet;

use super::{Session, SessionEnd};

/// The TLS alert (RFC 8446 section 6) of a verifier that does not know the key.
const ACCESS_DENIED: u8 = 49;

/// With this application error code a peer says that the path has become too
/// narrow; every other close is a good-bye.
pub(super) const NARROW_CODE: u32 = 1;

pub(super) async fn run(session: Arc<Session>) {
    let mut frames = JoinSet::new();
    let error = loop {
        match session.connection.accept_uni().await {
            Ok(stream) => drop(frames.spawn(receive(session.clone(), stream))),
            Err(error) => break error,
        }
        while frames.try_join_next().is_some() {}
    };
    let end = end_of(error);
    if matches!(end, SessionEnd::PeerClosed(_)) {
        // What came before the good-bye counts.
        while frames.join_next().await.is_some() {}
    }
    frames.detach_all();
    session.finish(end);
}

async fn receive(session: Arc<Session>, mut stream: noq::RecvStream) {
    let frame = match stream.read_to_end(FRAME_BYTES_HARD_MAX).await {
        Ok(bytes) => Bytes::from(bytes),
        // `run` hears of it too.
        Err(noq::ReadToEndError::Read(noq::ReadError::ConnectionLost(_))) => return,
        Err(error) => {
            return session.close(SessionEnd::Protocol(format!("unreadable frame: {error}")));
        }
    };
    let now = session.now_ns();
    if let Err(error) = session.drive(|mux, _| mux.handle_frame(now, frame)) {
        session.close(SessionEnd::Protocol(error.to_string()));
    }
}

/// What the loss of a connection means.
pub(super) fn end_of(error: ConnectionError) -> SessionEnd {
    match error {
        // The peer holds our key to its connection IDs but not the
        // connection: it is a new process (RFC 9000 section 10.3).
        ConnectionError::Reset => SessionEnd::PeerRestarted,
        ConnectionError::TimedOut => SessionEnd::Lost,
        ConnectionError::LocallyClosed => SessionEnd::Closed,
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::crypto(ACCESS_DENIED) =>
        {
            SessionEnd::KeyRefused
        }
        ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(NARROW_CODE) =>
        {
            SessionEnd::Narrow
        }
        ConnectionError::ApplicationClosed(close) => {
            SessionEnd::PeerClosed(String::from_utf8_lossy(&close.reason).into_owned())
        }
        other => SessionEnd::Protocol(other.to_string()),
    }
}
