//! The life of a byte inside one gateway.
//!
//! ```text
//! application TCP -> outbound -> tunnel ~~ WAN ~~> tunnel -> inbound -> application TCP
//! ```
//! Both gateways run the same [`carry`] for a flow, one with the client's
//! connection, the other with the server's. Where both have optimisers,
//! [`Optimising`] stands between application and tunnel. Back-pressure is the absence of a
//! read: `outbound` reads the application only when the flow has room, and
//! what `inbound` has not yet written is not yet credited to the peer.
//!
//! A connection ends as its other half did: FIN gives FIN, RST gives RST, and
//! anything that goes wrong in between gives RST, never a clean end.

use std::io;
use std::net::Shutdown;

use bytes::{Buf, BufMut, Bytes};
use farhaul_tunnel::ResetCode;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::event::FlowEnd;
use crate::events::Events;
use crate::flow_table::FlowRecord;
use crate::intercept::{disarm_reset, prepare};
use crate::optimising::Optimising;
use crate::reduction::{self, Inbound, Outbound};
use crate::session::FlowHandle;

/// Which application a gateway has in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Facing {
    /// The one that opened the connection.
    Client,
    /// The one that accepted it.
    Server,
}

/// Why a flow did not end well.
pub(crate) enum Failure {
    /// The application's connection broke.
    Application(ResetCode),
    /// The flow was cut: by the far application, an operator or with the tunnel.
    Flow(ResetCode),
}

/// Moves bytes between an application and a flow until both directions have
/// ended or one has failed. `leftover` are bytes already read from the
/// application.
pub async fn carry(
    stream: TcpStream,
    facing: Facing,
    leftover: Bytes,
    flow: &FlowHandle,
    record: &FlowRecord,
    events: &Events,
) -> FlowEnd {
    record.carried_by(flow);
    if let Err(error) = prepare(&stream) {
        return conclude(application(error), facing, flow);
    }
    let (out, back) = reduction::of(flow);
    let optimising = flow
        .has_items()
        .then(|| Optimising::new(flow, facing, record, events));
    let both = async {
        if let Some(optimising) = &optimising {
            return optimising.carry(&stream, leftover, out, back).await;
        }
        let (out, ()) = tokio::try_join!(
            outbound(&stream, leftover, flow, record, out),
            inbound(&stream, flow, record, back),
        )?;
        Ok(out)
    };
    let result = tokio::select! {
        result = both => result.map(Outbound::settle),
        failure = broken(&stream, optimising.as_ref()) => Err(failure),
        code = flow.cut() => Err(Failure::Flow(code)),
        () = record.cut_requested() => Err(Failure::Flow(ResetCode::Admin)),
    };
    match result {
        Ok(()) => match disarm_reset(&stream) {
            Ok(()) => FlowEnd::Closed,
            Err(_) => FlowEnd::Failed,
        },
        // `prepare` has armed the reset: dropping `stream` sends RST.
        Err(failure) => {
            let is_ours = matches!(
                failure,
                Failure::Flow(ResetCode::Admin | ResetCode::Protocol | ResetCode::IdleTimeout)
            );
            let end = conclude(failure, facing, flow);
            if let Some(optimising) = optimising {
                optimising.tell_lost();
                optimising.take_leave(&stream, is_ours).await;
            }
            end
        }
    }
}

async fn outbound(
    app: &TcpStream,
    leftover: Bytes,
    flow: &FlowHandle,
    record: &FlowRecord,
    mut out: Outbound,
) -> Result<Outbound, Failure> {
    record.sent(leftover.len());
    out.send(flow, leftover).await.map_err(Failure::Flow)?;
    loop {
        let room = flow.room().await.map_err(Failure::Flow)?;
        let batch_bytes = out.batch_bytes(flow, room);
        let bytes = read(app, batch_bytes).await.map_err(application)?;
        if bytes.is_empty() {
            break;
        }
        record.sent(bytes.len());
        out.send(flow, bytes).await.map_err(Failure::Flow)?;
    }
    flow.finish();
    Ok(out)
}

async fn inbound(
    app: &TcpStream,
    flow: &FlowHandle,
    record: &FlowRecord,
    mut back: Inbound,
) -> Result<(), Failure> {
    while let Some(bytes) = back.next(flow).await.map_err(Failure::Flow)? {
        record.received(bytes.len());
        write(app, bytes).await?;
    }
    SockRef::from(app)
        .shutdown(Shutdown::Write)
        .map_err(application)
}

/// Writes all of `bytes` to the application.
pub(crate) async fn write(app: &TcpStream, mut bytes: Bytes) -> Result<(), Failure> {
    while !bytes.is_empty() {
        app.writable().await.map_err(application)?;
        match app.try_write(&bytes) {
            Ok(len) => bytes.advance(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(application(error)),
        }
    }
    Ok(())
}

/// Waits for the next bytes; empty is the application's FIN. No buffer is
/// held while an idle connection waits.
pub(crate) async fn read(app: &TcpStream, bytes_max: usize) -> io::Result<Bytes> {
    loop {
        app.readable().await?;
        let mut buffer = Vec::with_capacity(bytes_max);
        match app.try_read_buf(&mut (&mut buffer).limit(bytes_max)) {
            Ok(_) => return Ok(fitted(buffer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The bytes in no more memory than they need: what waits for a reader, or may be asked for again, is counted by its length.
pub(crate) fn fitted(mut buffer: Vec<u8>) -> Bytes {
    // A small part is copied; the rest of a large part is given back where it lies.
    match buffer.len() < buffer.capacity() / 2 {
        true => Bytes::copy_from_slice(&buffer),
        false => {
            buffer.shrink_to_fit();
            buffer.into()
        }
    }
}

/// Notices RST or a time-out even while back-pressure keeps us from reading. What the application was told is there, is there before
/// the flow is cut.
async fn broken(app: &TcpStream, optimising: Option<&Optimising<'_>>) -> Failure {
    let failure = failed(app).await;
    if let Some(optimising) = optimising {
        optimising.settled().await;
    }
    failure
}

async fn failed(app: &TcpStream) -> Failure {
    match app.ready(Interest::ERROR).await {
        Err(error) => application(error),
        Ok(_) => application(
            app.take_error()
                .ok()
                .flatten()
                .unwrap_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset)),
        ),
    }
}

/// The application's connection broke.
pub(crate) fn application(error: io::Error) -> Failure {
    Failure::Application(match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => ResetCode::Unreachable,
        _ => ResetCode::Application,
    })
}

fn conclude(failure: Failure, facing: Facing, flow: &FlowHandle) -> FlowEnd {
    let (near, far) = match facing {
        Facing::Client => (FlowEnd::ResetByClient, FlowEnd::ResetByServer),
        Facing::Server => (FlowEnd::ResetByServer, FlowEnd::ResetByClient),
    };
    match failure {
        Failure::Application(code) => {
            flow.reset(code);
            near
        }
        Failure::Flow(ResetCode::Admin) => {
            flow.reset(ResetCode::Admin);
            FlowEnd::ResetByOperator
        }
        Failure::Flow(ResetCode::Application | ResetCode::Unreachable) => far,
        Failure::Flow(ResetCode::TunnelLost) => FlowEnd::PeerLost,
        Failure::Flow(ResetCode::PeerRestarted) => FlowEnd::PeerRestarted,
        Failure::Flow(ResetCode::Overload) => FlowEnd::Overload,
        Failure::Flow(ResetCode::IdleTimeout) => {
            flow.reset(ResetCode::IdleTimeout);
            FlowEnd::NotRepeated
        }
        Failure::Flow(_) => FlowEnd::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_takes_no_more_memory_than_it_is_long() {
        for len in [0, 1, 100, 4096, 5000, 8191, 8192] {
            let mut buffer = Vec::with_capacity(8192);
            buffer.resize(len, 7);
            let bytes = fitted(buffer);
            assert_eq!(bytes.len(), len);
            // Nobody else has it, so it is the buffer itself.
            let taken = Vec::from(bytes);
            assert!(taken.capacity() <= len, "{len}: {}", taken.capacity());
        }
    }
}
