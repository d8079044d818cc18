//! The two halves of a measurement: sending whatever the tunnel takes, and watching what arrives.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use farhaul_tunnel::ResetCode;
use tokio::time::{Instant, sleep_until};

use super::wire::{Arrived, Phase, Seen};
use crate::announced::Announced;
use crate::peer::header_bytes;
use crate::session::{FlowHandle, Session};

static FILLER: [u8; 65_536] = [0; 65_536];
/// How often a sender that is held to a rate looks at the clock.
const PACE: Duration = Duration::from_millis(5);

/// Writes filler for a time, as fast as the tunnel takes it and the bound allows.
pub(super) async fn fill(
    flow: &FlowHandle,
    entry: &Announced,
    length: Duration,
    bytes_s_max: Option<u64>,
) -> Result<(), ResetCode> {
    let begin = Instant::now();
    let end = begin + length;
    let mut sent: u64 = 0;
    while Instant::now() < end {
        let allowed = match bytes_s_max {
            None => FILLER.len() as u64,
            Some(most) => (begin.elapsed().as_secs_f64() * most as f64) as u64,
        };
        let Some(due) = allowed.checked_sub(sent).filter(|due| *due > 0) else {
            if bytes_s_max.is_some() {
                sleep_until(end.min(Instant::now() + PACE)).await;
            }
            continue;
        };
        let room = tokio::select! {
            room = flow.room() => room?,
            () = sleep_until(end) => break,
        };
        let piece = room.min(FILLER.len()).min(due as usize);
        let filler = FILLER.get(..piece).unwrap_or_default();
        flow.write(Bytes::from_static(filler)).await?;
        entry.sent(piece);
        // Without a bound nothing is ever overdue.
        sent += bytes_s_max.map_or(0, |_| piece as u64);
    }
    Ok(())
}

/// What this end's controller makes of the path.
pub(super) fn seen(session: &Session) -> Option<Seen> {
    let view = session.path()?;
    Some(Seen {
        rtt_ns: view.base_rtt_ns,
        queue_ns: (view.queue.max(0.0) * 1e9) as u64,
        loss_ppb: (view.loss.clamp(0.0, 1.0) * 1e9) as u32,
        phase: match view.phase {
            "climb" => Phase::Climb,
            "compete" => Phase::Compete,
            _ => Phase::Steady,
        },
    })
}

/// Reads a measuring flow.
pub(super) struct Reader<'a> {
    flow: &'a FlowHandle,
    entry: &'a Announced,
    held: BytesMut,
}

impl<'a> Reader<'a> {
    pub(super) fn new(flow: &'a FlowHandle, entry: &'a Announced) -> Self {
        Self {
            flow,
            entry,
            held: BytesMut::new(),
        }
    }

    /// The next bytes of the flow.
    pub(super) async fn block<const N: usize>(&mut self) -> Result<[u8; N], ResetCode> {
        loop {
            if let Some(block) = self.held.first_chunk::<N>() {
                let block = *block;
                let _ = self.held.split_to(N);
                return Ok(block);
            }
            match self.next().await? {
                Some(bytes) => self.held.extend_from_slice(&bytes),
                None => return Err(ResetCode::Protocol),
            }
        }
    }

    /// Reads and forgets filler for a time. What all flows of the tunnel bring in its second half is counted, so that
    /// users who are served first do not make the path look slower.
    pub(super) async fn watch(&mut self, length: Duration) -> Result<Arrived, ResetCode> {
        let begin = Instant::now();
        self.forget_until(begin + length / 2).await?;
        let half = self.gauge(begin);
        self.forget_until(begin + length).await?;
        let whole = self.gauge(begin);
        Ok(Arrived {
            bytes: whole.bytes.saturating_sub(half.bytes),
            ns: whole.ns.saturating_sub(half.ns),
        })
    }

    /// The flow's last bytes.
    pub(super) async fn tail<const N: usize>(&mut self) -> Result<[u8; N], ResetCode> {
        while let Some(bytes) = self.next().await? {
            self.hold(&bytes);
        }
        let tail = self.held.last_chunk::<N>();
        tail.copied().ok_or(ResetCode::Protocol)
    }

    /// Reads what is left until the flow's end.
    pub(super) async fn drain(&mut self) -> Result<(), ResetCode> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    async fn forget_until(&mut self, end: Instant) -> Result<(), ResetCode> {
        while Instant::now() < end {
            let read = tokio::select! {
                read = self.next() => read?,
                () = sleep_until(end) => return Ok(()),
            };
            match read {
                Some(bytes) => self.hold(&bytes),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The last of what was read may be the block at the flow's end.
    fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let beyond = self.held.len().saturating_sub(Seen::BYTES);
        let _ = self.held.split_to(beyond);
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ResetCode> {
        let read = self.flow.read(FILLER.len()).await?;
        if let Some(bytes) = &read {
            self.entry.received(bytes.len());
        }
        Ok(read)
    }

    /// Ethernet frames that the tunnel has received so far, and the time since `begin`.
    fn gauge(&self, begin: Instant) -> Arrived {
        let session = self.flow.session();
        let stats = session.stats();
        let datagrams = stats.wire_received_bytes / u64::from(stats.mtu_bytes.max(1));
        let headers = datagrams * u64::from(header_bytes(session.address()));
        Arrived {
            bytes: stats.wire_received_bytes + headers,
            ns: u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}
