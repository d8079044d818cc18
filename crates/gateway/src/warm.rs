//! `farhaul cache warm`: a file is sent to a peer before anybody asks for it, so that both gateways remember it.
//!
//! It is a flow as any other, of class background and in records; the far gateway reads it and gives it to nobody. What the far
//! site has a copy of ([`crate::copies`]) is not sent: each gateway reads its own.

use std::collections::{HashSet, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farhaul_tunnel::{
    Class, Correction, FEATURE_COPIES, FEATURE_WARMING, OpenRequest, Payload, Refusal, ResetCode,
    Target,
};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;

use crate::admin::WarmRequest;
use crate::admin::status::WarmingStatus;
use crate::announced::Announced;
use crate::copies::{SEGMENT_BYTES, SEGMENTS_MAX, read_list, segment_hash};
use crate::event::{FlowEnd, Reason, refusal_code};
use crate::flow::Facing;
use crate::flow_table::FlowInfo;
use crate::gateway::Gateway;
use crate::lock::lock;
use crate::peer::Peer;
use crate::reduction::{self, CopyPlace, Inbound, Outbound, SegmentHash};
use crate::regular;
use crate::session::{FlowHandle, Incoming, OpenOutcome, Session};

/// Files that are remembered to have been sent.
const WARMINGS_MAX: usize = 64;
/// Of what the peer has a copy, so much is one batch.
const PIECE_BYTES: usize = 256 << 10;
/// What a peer may take to say that it has read a file: over slow links it says so once a second, and the word has a way to go.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// What the flow table says of where it goes.
const NOBODY: &str = "nobody: both gateways remember it";

/// Files under way, and the last ones that were.
#[derive(Default)]
pub(crate) struct Warmings(VecDeque<WarmingStatus>);

impl Warmings {
    /// All that are remembered, oldest first.
    pub(crate) fn all(&self) -> Vec<WarmingStatus> {
        self.0.iter().cloned().collect()
    }

    fn begin(&mut self, warming: WarmingStatus) {
        self.0
            .retain(|known| !(warming.is_copy && known.is_copy && known.path == warming.path));
        if self.0.len() >= WARMINGS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(warming);
    }

    fn change(&mut self, flow: u64, change: impl FnOnce(&mut WarmingStatus)) {
        let mut sent = self.0.iter_mut().filter(|warming| !warming.is_copy);
        if let Some(warming) = sent.find(|warming| warming.flow == flow) {
            change(warming);
        }
    }

    fn change_copy(&mut self, path: &str, change: impl FnOnce(&mut WarmingStatus)) {
        let mut copies = self.0.iter_mut().filter(|warming| warming.is_copy);
        if let Some(copy) = copies.find(|copy| copy.path == path) {
            change(copy);
        }
    }
}

/// Why a file could not be sent to its end.
enum Failure {
    File(io::Error),
    Flow(ResetCode),
    Refused(Refusal),
}

impl Gateway {
    /// Begins what is asked for.
    pub(crate) async fn begin_to_warm(
        self: &Arc<Self>,
        wanted: WarmRequest,
    ) -> Result<WarmingStatus, String> {
        match wanted.copy {
            true => self.begin_to_read(wanted.path).await,
            false => self.begin_warming(wanted.path, wanted.peer).await,
        }
    }

    /// Begins to read a file of which this site has a copy.
    async fn begin_to_read(self: &Arc<Self>, path: PathBuf) -> Result<WarmingStatus, String> {
        let (file, file_bytes) = open(&path).await?;
        let copy = WarmingStatus {
            is_copy: true,
            path: path.display().to_string(),
            file_bytes,
            ..WarmingStatus::default()
        };
        lock(&self.warmings).begin(copy.clone());
        tokio::spawn(self.clone().read_copy(path, file, file_bytes));
        Ok(copy)
    }

    async fn read_copy(self: Arc<Self>, path: PathBuf, mut file: File, file_bytes: u64) {
        let name = path.display().to_string();
        let hashes = self.hashes_of(&mut file, &name, file_bytes).await;
        let file = file.into_std().await;
        let added = match hashes {
            Ok(hashes) => lock(&self.copies).add(&path, file, hashes),
            Err(error) => Err(error.to_string()),
        };
        let end = added.err().unwrap_or_else(|| "ready".to_owned());
        lock(&self.warmings).change_copy(&name, |copy| copy.end = Some(end));
    }

    async fn hashes_of(
        &self,
        file: &mut File,
        name: &str,
        file_bytes: u64,
    ) -> io::Result<Vec<SegmentHash>> {
        let mut hashes = Vec::new();
        let mut rest = file_bytes;
        // One more than there may be is refused.
        while hashes.len() <= SEGMENTS_MAX {
            let segment = read_on(file, SEGMENT_BYTES, &mut rest, file_bytes).await?;
            if segment.is_empty() {
                break;
            }
            hashes.push(segment_hash(&segment));
            let bytes = segment.len() as u64;
            lock(&self.warmings).change_copy(name, |copy| copy.sent_bytes += bytes);
        }
        Ok(hashes)
    }

    /// Begins to send a file to a peer, or to the only one; says what flow it is.
    async fn begin_warming(
        self: &Arc<Self>,
        path: PathBuf,
        peer: Option<String>,
    ) -> Result<WarmingStatus, String> {
        let peer = self.peer_named(peer.as_deref(), "say which peer shall have it: --peer NAME")?;
        let name = peer.config().name;
        let session = self.session_to_warm(&peer)?;
        let figures = peer.store().figures();
        let (memory_bytes, disk_bytes) = (figures.capacity_bytes, figures.disk_capacity_bytes);
        if memory_bytes == 0 {
            return Err(format!(
                "{name} has not said yet what it remembers; try again in a moment"
            ));
        }
        let (file, file_bytes) = open(&path).await?;
        let info = FlowInfo {
            peer: name.clone(),
            client: nowhere(),
            destination: NOBODY.to_owned(),
            rule: "cache warm".to_owned(),
            class: Class::Background,
            reason: Reason::Optimised,
            facing: Facing::Client,
            writes_behind: true,
        };
        let entry = self.flows.enter(info);
        let entry = entry.map_err(|_| "there are too many flows (`tunnel.flows_max`)")?;
        let flow = session.open(request());
        let flow = flow.map_err(|_| format!("the tunnel to {name} takes no more flows"))?;
        let entry = self.announced(entry);
        entry.carried_by(&flow);
        let warming = WarmingStatus {
            flow: entry.id,
            peer: name,
            path: path.display().to_string(),
            file_bytes,
            memory_bytes,
            disk_bytes,
            ..WarmingStatus::default()
        };
        lock(&self.warmings).begin(warming.clone());
        tokio::spawn(self.clone().send_file((file, file_bytes), flow, entry));
        Ok(warming)
    }

    fn session_to_warm(&self, peer: &Peer) -> Result<Arc<Session>, String> {
        let name = peer.config().name;
        let tunnel = peer.tunnel(self.config().tunnel.dead_after);
        let session = tunnel.ok_or_else(|| format!("there is no tunnel to {name}"))?;
        if session.reduction().is_none() {
            return Err(format!(
                "there is no reduction with {name}: both gateways need `store.memory`"
            ));
        }
        match session.features() & FEATURE_WARMING != 0 {
            true => Ok(session),
            false => Err(format!(
                "{name} runs a version that cannot be warmed; update it"
            )),
        }
    }

    async fn send_file(self: Arc<Self>, file: (File, u64), flow: FlowHandle, entry: Announced) {
        let (out, mut back) = reduction::of(&flow);
        let sent = async {
            match flow.opened().await {
                OpenOutcome::Opened => (),
                OpenOutcome::Refused(why) => return Err(Failure::Refused(why)),
                OpenOutcome::Cut(code) => return Err(Failure::Flow(code)),
            }
            let theirs = their_copies(&flow, &mut back).await;
            let theirs = theirs.map_err(Failure::Flow)?;
            let out = self.send_all(file, &flow, &entry, (out, theirs)).await?;
            flow.finish();
            while back.next(&flow).await.map_err(Failure::Flow)?.is_some() {}
            let repeated_bytes = out.repeated_bytes();
            lock(&self.warmings).change(entry.id, |it| it.repeated_bytes = repeated_bytes);
            // Who is told that it is sent may fetch it at once.
            out.all_read(READ_WITHIN).await;
            out.settle();
            Ok(())
        };
        let sent = tokio::select! {
            sent = sent => sent,
            code = flow.cut() => Err(Failure::Flow(code)),
            () = entry.cut_requested() => {
                flow.reset(ResetCode::Admin);
                Err(Failure::Flow(ResetCode::Admin))
            }
        };
        let (end, text) = match sent {
            Ok(()) => (FlowEnd::Closed, "sent".to_owned()),
            Err(Failure::File(error)) => (FlowEnd::ResetByClient, error.to_string()),
            Err(Failure::Refused(why)) => (FlowEnd::Refused, refusal_code(why).to_owned()),
            Err(Failure::Flow(code)) => (end_of(code), end_of(code).to_string()),
        };
        lock(&self.warmings).change(entry.id, |warming| warming.end = Some(text));
        entry.conclude(end);
    }

    async fn send_all(
        &self,
        (mut file, file_bytes): (File, u64),
        flow: &FlowHandle,
        entry: &Announced,
        (mut out, theirs): (Outbound, HashSet<SegmentHash>),
    ) -> Result<Outbound, Failure> {
        let mut rest = file_bytes;
        loop {
            let room_bytes = flow.room().await.map_err(Failure::Flow)?;
            let batch_bytes = match theirs.is_empty() {
                true => out.batch_bytes(flow, room_bytes),
                false => SEGMENT_BYTES,
            };
            let bytes = read_on(&mut file, batch_bytes, &mut rest, file_bytes).await;
            let bytes = bytes.map_err(Failure::File)?;
            if bytes.is_empty() {
                return Ok(out);
            }
            let (length, mut copied) = (bytes.len(), 0);
            let sent = match theirs.is_empty() {
                true => out.send(flow, bytes).await,
                false => {
                    let hash = segment_hash(&bytes);
                    let hash = theirs.contains(&hash).then_some(hash);
                    copied = hash.map_or(0, |_| length);
                    send_segment(flow, &mut out, bytes, hash).await
                }
            };
            sent.map_err(Failure::Flow)?;
            entry.sent(length);
            lock(&self.warmings).change(entry.id, |warming| {
                warming.sent_bytes += length as u64;
                warming.copied_bytes += copied as u64;
            });
        }
    }

    /// Reads what a peer sends to be remembered.
    pub(crate) async fn be_warmed(self: Arc<Self>, session: Arc<Session>, incoming: Incoming) {
        if self.has_drained() {
            return incoming.refuse(&session, Refusal::Draining);
        }
        if session.reduction().is_none() {
            return incoming.refuse(&session, Refusal::Internal);
        }
        let info = FlowInfo {
            peer: session.peer.clone(),
            client: incoming.request.client,
            destination: NOBODY.to_owned(),
            rule: "cache warm".to_owned(),
            class: incoming.request.class,
            reason: Reason::Optimised,
            facing: Facing::Server,
            writes_behind: true,
        };
        let Ok(entry) = self.flows.enter(info) else {
            return incoming.refuse(&session, Refusal::Overload);
        };
        let entry = self.announced(entry);
        let flow = incoming.accept(&session);
        entry.carried_by(&flow);
        let (mut out, mut back) = reduction::of(&flow);
        back.use_copies(self.copies.clone());
        let read = async {
            if session.features() & FEATURE_COPIES != 0 {
                let list = lock(&self.copies).list();
                out.send(&flow, list).await?;
            }
            while let Some(bytes) = back.next(&flow).await? {
                entry.received(bytes.len());
            }
            flow.finish();
            Ok(())
        };
        let read = tokio::select! {
            read = read => read,
            code = flow.cut() => Err(code),
            () = entry.cut_requested() => {
                flow.reset(ResetCode::Admin);
                Err(ResetCode::Admin)
            }
        };
        let end = match read {
            Ok(()) => {
                out.settle();
                FlowEnd::Closed
            }
            Err(code) => end_of(code),
        };
        entry.conclude(end);
    }
}

/// Hashes of what the peer has copies of: it begins with them, if both sides know of copies.
async fn their_copies(
    flow: &FlowHandle,
    back: &mut Inbound,
) -> Result<HashSet<SegmentHash>, ResetCode> {
    let mut list = Vec::new();
    if flow.session().features() & FEATURE_COPIES == 0 {
        return Ok(HashSet::new());
    }
    loop {
        let bytes = back.next(flow).await?.ok_or(ResetCode::Protocol)?;
        list.extend_from_slice(&bytes);
        match read_list(&list) {
            Ok(Some(hashes)) => return Ok(hashes),
            Ok(None) => (),
            Err(_) => return Err(ResetCode::Protocol),
        }
    }
}

/// Sends a segment; of one that the peer has, all that it cannot know.
async fn send_segment(
    flow: &FlowHandle,
    out: &mut Outbound,
    mut bytes: Bytes,
    hash: Option<SegmentHash>,
) -> Result<(), ResetCode> {
    let mut offset = 0;
    while !bytes.is_empty() {
        let Some(hash) = hash else {
            let room_bytes = flow.room().await?;
            let batch_bytes = out.batch_bytes(flow, room_bytes).min(bytes.len());
            out.send(flow, bytes.split_to(batch_bytes)).await?;
            continue;
        };
        let piece = bytes.split_to(PIECE_BYTES.min(bytes.len()));
        let place = CopyPlace { hash, offset };
        offset += piece.len() as u32;
        out.send_copied(flow, piece, place).await?;
    }
    Ok(())
}

/// The next bytes of a file that was `file_bytes` long when it was begun, none after so many. What it has grown by is left: it may
/// never end.
async fn read_on(
    file: &mut File,
    bytes_max: usize,
    rest: &mut u64,
    file_bytes: u64,
) -> io::Result<Bytes> {
    let wanted = usize::try_from(*rest).map_or(bytes_max, |rest| rest.min(bytes_max));
    let mut bytes = Vec::with_capacity(wanted);
    file.take(wanted as u64).read_to_end(&mut bytes).await?;
    *rest -= bytes.len() as u64;
    if bytes.len() < wanted {
        let read = file_bytes - *rest;
        let left = file.metadata().await.map_or(read, |facts| facts.len());
        let message =
            format!("became shorter while it was read: {left} of {file_bytes} bytes are left");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Ok(bytes.into())
}

fn end_of(code: ResetCode) -> FlowEnd {
    match code {
        ResetCode::Admin => FlowEnd::ResetByOperator,
        ResetCode::TunnelLost => FlowEnd::PeerLost,
        ResetCode::PeerRestarted => FlowEnd::PeerRestarted,
        ResetCode::Overload => FlowEnd::Overload,
        ResetCode::IdleTimeout => FlowEnd::NotRepeated,
        _ => FlowEnd::Failed,
    }
}

async fn open(path: &Path) -> Result<(File, u64), String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let own_path = path.to_owned();
    let opened = spawn_blocking(move || open_with_length(&own_path)).await;
    let opened = opened.unwrap_or_else(|error| Err(io::Error::other(error)));
    let (file, bytes) = opened.map_err(failed)?;
    Ok((file.into(), bytes))
}

fn open_with_length(path: &Path) -> io::Result<(std::fs::File, u64)> {
    let mut file = regular::open(path, OpenOptions::new().read(true))?;
    let bytes = file.metadata()?.len();
    // The kernel's files say that they are empty, and some of them never end.
    if bytes == 0 && !matches!(file.read(&mut [0]), Ok(0)) {
        return Err(io::Error::other("has no length"));
    }
    Ok((file, bytes))
}

fn nowhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

fn request() -> OpenRequest {
    OpenRequest {
        client: nowhere(),
        target: Target::Address(nowhere()),
        keep_client_address: false,
        class: Class::Background,
        dscp: 0,
        correction: Correction::Off,
        items: false,
        payload: Payload::Warming,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of so many bytes.
    fn made(name: &str, bytes: usize) -> PathBuf {
        let name = format!("farhaul-warm-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![7; bytes]).unwrap();
        path
    }

    /// What is read of a file that is begun with `before` bytes and has `after` when it is read.
    async fn read(name: &str, before: usize, after: usize) -> io::Result<u64> {
        let path = made(name, before);
        let (mut file, file_bytes) = open(&path).await.unwrap();
        made(name, after);
        let (mut rest, mut read_bytes) = (file_bytes, 0);
        let end = loop {
            match read_on(&mut file, 1000, &mut rest, file_bytes).await {
                Ok(bytes) if bytes.is_empty() => break Ok(read_bytes),
                Ok(bytes) => read_bytes += bytes.len() as u64,
                Err(error) => break Err(error),
            }
        };
        std::fs::remove_file(&path).unwrap();
        end
    }

    #[tokio::test]
    async fn a_file_is_read_as_long_as_it_was() {
        assert_eq!(read("same", 2500, 2500).await.unwrap(), 2500);
        assert_eq!(read("empty", 0, 0).await.unwrap(), 0);
        assert_eq!(read("grown", 2500, 9000).await.unwrap(), 2500);
        let shorter = read("shorter", 2500, 1200).await.unwrap_err().to_string();
        let told = "became shorter while it was read: 1200 of 2500 bytes are left";
        assert_eq!(shorter, told);
    }

    #[tokio::test]
    async fn only_files_that_have_a_length_are_begun() {
        let folder = std::env::temp_dir();
        for (path, why) in [
            (Path::new("/proc/self/stat"), "has no length"),
            (Path::new("/dev/zero"), "a device, no regular file"),
            (&folder, "a folder, no regular file"),
        ] {
            let error = open(path).await.unwrap_err();
            assert!(error.ends_with(&format!(": {why}")), "{error}");
        }
    }
}
