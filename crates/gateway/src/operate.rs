//! What operators see of the gateway and may do to it: the [`Operator`] that
//! the admin API serves.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_optimise::{Settings, Stats};
use farhaul_tunnel::{Class, PROTOCOL_VERSIONS, PathView};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::admin::status::{
    DiskStatus, FlowCounts, FlowSide, FlowState, FlowStatus, Flows, InterceptStatus,
    MeasuredStatus, OptimiserStatus, PathStatus, PeerState, PeerStatus, ReductionStatus, Status,
    StrangerStatus, WarmingStatus,
};
use crate::admin::{MeasureRequest, Operator, WarmRequest, advice};
use crate::config::meaning::{InterceptMode, Listen};
use crate::event::{Event, Reason};
use crate::flow::Facing;
use crate::flow_table::FlowRecord;
use crate::gateway::Gateway;
use crate::keys::PublicKey;
use crate::lock::lock;
use crate::peer::{Peer, State};
use crate::reduction::{Figures, Store};
use crate::session::{Session, SessionStats};
use crate::shares::folder_on_disk;
use crate::store::clear_unused;
use crate::upkeep::unguarded;

/// Asked of the gateway's main loop, which owns the files and the rules.
pub struct ReloadRequest(pub oneshot::Sender<Result<(), String>>);

impl Operator for Gateway {
    fn status(&self) -> Status {
        let config = self.config();
        let mut status = Status {
            site: config.site.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSIONS.to_string(),
            pid: std::process::id(),
            key: self.own_key.to_string(),
            tunnel_address: self
                .endpoint
                .local_address()
                .map(|address| address.to_string())
                .unwrap_or_default(),
            datagrams_turned_away: self.endpoint.turned.count(),
            strangers: self.strangers().into_iter().map(stranger_status).collect(),
            uptime_s: self.started.elapsed().as_secs(),
            bypass: self.is_bypassed(),
            draining: self.is_draining(),
            intercept: self.intercept_status(),
            peers: self
                .peers()
                .iter()
                .map(|peer| self.peer_status(peer))
                .collect(),
            flows: self.flow_counts(),
            asymmetric_returns: lock(&self.asymmetric_returns).count(Instant::now()),
            recent: self.events.recent(),
            next: None,
        };
        status.next = advice::next(&status);
        status
    }

    fn flows(&self) -> Flows {
        Flows {
            flows: self
                .flows
                .list()
                .iter()
                .map(|record| flow_status(record))
                .collect(),
            recent_direct: self.events.recent_direct(),
        }
    }

    fn set_bypass(&self, on: bool) {
        if self.bypass.swap(on, Ordering::Relaxed) != on {
            self.events.emit(Event::BypassSet { on });
        }
    }

    fn reset_flow(&self, id: u64) -> bool {
        self.flows.cut(id)
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async {
            let gone = || "the gateway is stopping".to_owned();
            let (answer, result) = oneshot::channel();
            self.reloads
                .send(ReloadRequest(answer))
                .await
                .map_err(|_| gone())?;
            result.await.map_err(|_| gone())?
        })
    }

    fn clear_cache(
        &self,
        peer: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            let wanted = |known: &Arc<Peer>| {
                peer.as_ref()
                    .is_none_or(|peer| known.config().name == *peer)
            };
            let peers: Vec<_> = self.peers().into_iter().filter(wanted).collect();
            if let (true, Some(peer)) = (peers.is_empty(), &peer) {
                return Err(format!("there is no peer {peer}"));
            }
            for peer in peers {
                let folder = folder_on_disk(&self.config(), &peer.config());
                clear_cache_of(peer, folder).await?;
            }
            Ok(())
        })
    }

    fn warm_cache(
        &self,
        wanted: WarmRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WarmingStatus, String>> + Send + '_>> {
        Box::pin(async move {
            // Whoever asks has a reference.
            let me = self.me.upgrade().ok_or("the gateway is stopping")?;
            me.begin_to_warm(wanted).await
        })
    }

    fn warmings(&self) -> Vec<WarmingStatus> {
        lock(&self.warmings).all()
    }

    fn measure_peer(
        &self,
        wanted: MeasureRequest,
    ) -> Pin<Box<dyn Future<Output = Result<MeasuredStatus, String>> + Send + '_>> {
        Box::pin(async move {
            let me = self.me.upgrade().ok_or("the gateway is stopping")?;
            me.begin_measuring(&wanted)
        })
    }

    fn config_toml(&self) -> String {
        crate::config::print::full(&self.config())
    }
}

impl Gateway {
    fn intercept_status(&self) -> InterceptStatus {
        let config = self.config();
        let health = self.health();
        let transparent = config.intercept.mode == InterceptMode::Transparent;
        InterceptStatus {
            mode: if transparent {
                "transparent"
            } else {
                "explicit"
            }
            .to_owned(),
            interfaces: config.intercept.interfaces.clone(),
            active: transparent && !self.is_draining() && health.off.is_none(),
            problem: health.off,
            unguarded: health.unguarded.as_deref().map(unguarded),
            listeners: config.listens.iter().map(listener).collect(),
        }
    }

    fn peer_status(&self, peer: &Arc<Peer>) -> PeerStatus {
        let config = peer.config();
        let tunnels = peer.tunnels();
        let current = tunnels.last();
        let figures: Vec<SessionStats> =
            tunnels.iter().map(|(session, _)| session.stats()).collect();
        let newest = figures.last();
        let alive = self.flows.list();
        let of_peer = |record: &&Arc<FlowRecord>| record.info.peer == config.name;
        let own = alive.iter().filter(of_peer);
        let payload = own.fold(peer.payload_bytes(), |(sent, received), record| {
            let bytes = record.bytes();
            (sent + bytes.0, received + bytes.1)
        });
        let mut optimised = peer.optimised();
        alive
            .iter()
            .filter(of_peer)
            .for_each(|record| optimised.add(&record.optimiser().stats));
        let wire = peer.wire_bytes();
        let repairs = peer.repairs();
        let correction = newest.and_then(|stats| stats.correction);
        PeerStatus {
            name: config.name.clone(),
            state: state_of_peer(peer, config.address.is_some()),
            since_s: peer.since().as_secs(),
            address: current
                .and_then(|(session, _)| session.shown_address())
                .map(|address| address.to_string())
                .or(config.address.map(|address| address.to_string()))
                .unwrap_or_default(),
            key: config.key.to_string(),
            version: current.map(|(_, negotiated)| format!("protocol {}", negotiated.version)),
            networks: config.networks.iter().map(ToString::to_string).collect(),
            rtt_ms: newest.map(|stats| stats.rtt.as_secs_f64() * 1e3),
            path: current
                .and_then(|(session, _)| session.path())
                .map(|view| path_status(&view)),
            lost_ratio: peer.lost_ratio(),
            datagram_bytes: newest.map(|stats| stats.mtu_bytes),
            path_too_narrow: peer.is_narrow(),
            clock_ahead_ms: None,
            payload_sent_bytes: payload.0,
            payload_received_bytes: payload.1,
            wire_sent_bytes: wire.0,
            wire_received_bytes: wire.1,
            repairs_sent: repairs.0,
            datagrams_recovered: repairs.1,
            loss_before_repair_ratio: correction.map(|figures| figures.loss),
            error_correction: correction.map(|figures| figures.state.code().to_owned()),
            repair_ratio: correction.map(|figures| figures.share),
            reduction: current
                .and_then(|(session, _)| session.reduction())
                .map(|_| reduction_status(peer.store().figures())),
            optimiser: current
                .filter(|(session, _)| session.has_optimisers())
                .map(|(session, _)| optimiser_status(&optimised, can_gain(session))),
            measured: lock(&self.measurements).of(&config.name),
            flows: figures.iter().map(|stats| stats.flows as u64).sum(),
            last_error: peer.last_error(),
            key_shared_by: peer
                .key_shared_by()
                .map(|both| both.map(|address| address.to_string()).to_vec())
                .unwrap_or_default(),
            own_key_shared: peer.is_own_key_shared(),
        }
    }

    fn flow_counts(&self) -> FlowCounts {
        let all = self.flows.list();
        let is_whole = |record: &&Arc<FlowRecord>| state_of(record) == FlowState::Optimised;
        let optimised = all.iter().filter(is_whole).count() as u64;
        FlowCounts {
            optimised,
            partly: all.len() as u64 - optimised,
            direct: self.relayed.load(Ordering::Relaxed),
            direct_since_start: self.direct_since_start.load(Ordering::Relaxed),
        }
    }
}

fn stranger_status((address, key): (SocketAddr, PublicKey)) -> StrangerStatus {
    StrangerStatus {
        address: address.to_string(),
        key: key.to_string(),
    }
}

fn path_status(view: &PathView) -> PathStatus {
    PathStatus {
        phase: view.phase.to_owned(),
        bit_per_s: view.rate * 8.0,
        least_rtt_ms: view.base_rtt_ns as f64 / 1e6,
        queue_ms: view.queue * 1e3,
        jitter_ms: view.jitter * 1e3,
        loss_ratio: view.loss,
    }
}

fn state_of_peer(peer: &Peer, is_dialled: bool) -> PeerState {
    match peer.state() {
        State::Up => PeerState::Up,
        State::Draining => PeerState::Draining,
        // The first attempt tells; until a peer dials us there is none.
        State::Connecting if peer.last_error().is_none() && is_dialled => PeerState::Connecting,
        State::Down | State::Connecting => PeerState::Down,
    }
}

fn reduction_status(figures: Figures) -> ReductionStatus {
    ReductionStatus {
        in_bytes: figures.input_bytes,
        out_bytes: figures.records_bytes,
        compared_bytes: figures.compared.bytes,
        known_bytes: figures.compared.known_bytes(),
        known_memory_bytes: figures.compared.memory_bytes,
        known_disk_bytes: figures.compared.disk_bytes,
        run_bytes: figures.compared.run_bytes,
        new_bytes: figures.new_bytes,
        packed_bytes: figures.packed_bytes,
        level: figures.level,
        restored_bytes: figures.output_bytes,
        received_bytes: figures.received_bytes,
        asked_again: figures.asked,
        missed: figures.missed,
        store_bytes: figures.log_bytes,
        index_bytes: figures.index_bytes,
        epoch: figures.begun,
        warmed_bytes: figures.warmed_bytes,
        disk: figures.disk.map(|disk| DiskStatus {
            size_bytes: disk.size_bytes,
            used_bytes: disk.used_bytes,
            saved_bytes: disk.saved_bytes,
            loaded_segments: disk.loaded,
            evicted_segments: disk.evicted,
            bad_blocks: disk.bad_blocks,
            unusable_files: disk.unusable_files,
            barred_files: disk.barred_files,
            failed: disk.failed,
            unsynced_segments: disk.unsynced,
            syncing: disk.is_syncing,
            synced_groups: disk.synced,
            problem: disk.problem,
        }),
    }
}

/// Forgets what has passed with a peer, in memory and on disk.
async fn clear_cache_of(peer: Arc<Peer>, folder: Option<PathBuf>) -> Result<(), String> {
    let tunnels = peer.tunnels();
    match tunnels.last().and_then(|(session, _)| session.reduction()) {
        Some(reduction) => reduction.clear(),
        None => peer.store().forget(),
    }
    let name = peer.config().name;
    let cleared = spawn_blocking(move || clear_disk_of(peer.store(), folder.as_deref())).await;
    let cleared = cleared.unwrap_or_else(|error| Err(error.to_string()));
    cleared.map_err(|error| format!("peer {name}: {error}"))
}

/// Forgets what is on disk, also where an earlier start has left it and this one has no memory to use it.
fn clear_disk_of(store: &Store, folder: Option<&Path>) -> Result<(), String> {
    let is_used = store.figures().disk.is_some();
    match folder.filter(|_| !is_used) {
        Some(folder) => clear_unused(folder).map_err(|error| error.to_string()),
        None => store.clear_disk(),
    }
}

/// Whether optimisers are worth their work over this round trip.
fn can_gain(session: &Session) -> bool {
    let rtt_ns = u64::try_from(session.rtt().as_nanos()).unwrap_or(u64::MAX);
    Settings::of_link(session.rate_bytes_s(), rtt_ns).can_gain()
}

fn optimiser_status(stats: &Stats, can_gain: bool) -> OptimiserStatus {
    OptimiserStatus {
        reads_forwarded: stats.reads_forwarded,
        reads_answered: stats.reads_answered,
        answered_bytes: stats.answered_bytes,
        reads_made: stats.reads_made,
        ahead_bytes: stats.ahead_bytes,
        wasted_bytes: stats.wasted_bytes,
        breaks: stats.breaks,
        opens_answered: stats.opens_answered,
        opens_made: stats.opens_made,
        opens_wasted: stats.opens_wasted,
        writes_answered: stats.writes_answered,
        behind_bytes: stats.behind_bytes,
        writes_failed: stats.writes_failed,
        no_gain: !can_gain,
    }
}

fn listener(listen: &Listen) -> String {
    match listen {
        Listen::Socks(address) => format!("socks {address}"),
        Listen::Connect(address) => format!("connect {address}"),
        Listen::Forward { listen, target } => format!("forward {listen} -> {target}"),
    }
}

fn flow_status(record: &FlowRecord) -> FlowStatus {
    let (sent_bytes, received_bytes) = record.bytes();
    let info = &record.info;
    let optimised = record.optimiser();
    let protocol = optimised.protocol.map_or("", |protocol| protocol.name());
    let opaque_reason = optimised.gave_up.map_or("", |why| why.code());
    FlowStatus {
        id: record.id,
        peer: info.peer.clone(),
        client: info.client.to_string(),
        destination: info.destination.clone(),
        side: match info.facing {
            Facing::Client => FlowSide::Near,
            Facing::Server => FlowSide::Far,
        },
        rule: info.rule.clone(),
        class: class_name(info.class).to_owned(),
        class_now: record.class_now().map_or("", class_name).to_owned(),
        state: state_of(record),
        reason: record.reason(),
        protocol: protocol.to_owned(),
        opaque_reason: opaque_reason.to_owned(),
        age_s: record.age().as_secs(),
        idle_s: record.idle().as_secs(),
        sent_bytes,
        received_bytes,
    }
}

fn state_of(record: &FlowRecord) -> FlowState {
    match record.reason() {
        Reason::Optimised => FlowState::Optimised,
        _ => FlowState::Partly,
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Auto => "auto",
        Class::Control => "control",
        Class::Interactive => "interactive",
        Class::Bulk => "bulk",
        Class::Background => "background",
    }
}

#[cfg(test)]
mod tests {
    use farhaul_reduce::{SEGMENT_BLOCKS, SEGMENT_BYTES};

    use super::*;
    use crate::reduction::Disk;
    use crate::store::{Embedded, Folder, Key, Options, Store as _, verify};

    #[test]
    fn a_gateway_without_memory_clears_what_an_earlier_start_has_left_on_disk() {
        let place = std::env::temp_dir().join(format!("farhaul-unused-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        let folder = place.join("peer");
        let disk = Disk {
            path: folder.clone(),
            size_bytes: 64 << 20,
            read_within: Disk::READ_WITHIN,
        };
        let store = Store::with_disk(0, Some(disk));
        let clear = || clear_disk_of(&store, Some(&folder));
        assert_eq!(clear(), Ok(()), "nothing is there");
        for direction in ["sent", "received"] {
            let files = Folder::open(&folder.join(direction)).unwrap();
            let options = Options {
                size_bytes: 32 << 20,
                place: [1; 32],
            };
            let mut left = Embedded::open(files, options).unwrap();
            let key = Key { log: 1, number: 0 };
            let bytes = vec![7; SEGMENT_BYTES];
            left.save(key, 1, &bytes, &[100; SEGMENT_BLOCKS]).unwrap();
            left.sync().unwrap();
            let in_use = clear().unwrap_err();
            assert!(in_use.contains("in use by another gateway"), "{in_use}");
        }
        let segments = || -> u64 {
            let stores = verify(&place).unwrap();
            stores.iter().map(|store| store.segments).sum()
        };
        // Of what is in use nothing goes; the other direction went with the second try.
        assert_eq!(segments(), 1);
        assert_eq!(clear(), Ok(()));
        assert_eq!(segments(), 0);
        let _ = std::fs::remove_dir_all(&place);
    }
}
