//! The flows alive in this gateway: what `farhaul flows` shows and `farhaul
//! reset` cuts, and the bound on their number.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use farhaul_optimise::{Protocol, Reason as NotOptimised, Stats};
use farhaul_tunnel::{Class, FlowId};
use tokio::sync::Notify;

use crate::event::Reason;
use crate::flow::Facing;
use crate::lock::lock;
use crate::session::{FlowHandle, Session};

/// What is known of a flow when it starts.
#[derive(Debug, Clone)]
pub struct FlowInfo {
    /// Peer's name.
    pub peer: String,
    /// Client's address.
    pub client: SocketAddr,
    /// Server, as address or `host:port`.
    pub destination: String,
    /// Rule that matched; `far side` where the other gateway decided.
    pub rule: String,
    /// Scheduling class.
    pub class: Class,
    /// Why it goes the way it goes.
    pub reason: Reason,
    /// Which application is in front of this gateway.
    pub facing: Facing,
    /// Its writes may be answered before the server has them.
    pub writes_behind: bool,
}

/// What an optimiser made of a flow so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Optimised {
    /// What it was found to speak.
    pub protocol: Option<Protocol>,
    /// Why it is not, or no longer, optimised.
    pub gave_up: Option<NotOptimised>,
    /// What was done.
    pub stats: Stats,
}

/// A flow alive, or just ended.
#[derive(Debug)]
pub struct FlowRecord {
    /// Unique in this process.
    pub id: u64,
    /// What it is.
    pub info: FlowInfo,
    started: Instant,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    moved_ms: AtomicU64,
    carrier: OnceLock<(Weak<Session>, FlowId)>,
    optimised: Mutex<Optimised>,
    cut: Notify,
}

impl FlowRecord {
    /// Payload went from the application into the tunnel.
    pub fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.touch();
    }

    /// Payload went from the tunnel to the application.
    pub fn received(&self, bytes: usize) {
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.touch();
    }

    fn touch(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(now, Ordering::Relaxed);
    }

    /// Payload bytes into and out of the tunnel.
    pub fn bytes(&self) -> (u64, u64) {
        (
            self.sent_bytes.load(Ordering::Relaxed),
            self.received_bytes.load(Ordering::Relaxed),
        )
    }

    /// The flow of a tunnel that carries it.
    pub fn carried_by(&self, flow: &FlowHandle) {
        let carrier = (Arc::downgrade(flow.session()), flow.id());
        let _ = self.carrier.set(carrier);
    }

    /// What it counts as at present in the direction this gateway sends, while
    /// a tunnel carries it.
    pub fn class_now(&self) -> Option<Class> {
        let (session, flow) = self.carrier.get()?;
        session.upgrade()?.class_of(*flow)
    }

    /// Its optimiser knows what it speaks.
    pub fn recognised(&self, protocol: Protocol) {
        lock(&self.optimised).protocol = Some(protocol);
    }

    /// Its optimiser gave up.
    pub fn gave_up(&self, why: NotOptimised) {
        lock(&self.optimised).gave_up = Some(why);
    }

    /// What its optimiser did since the flow began.
    pub fn optimised(&self, stats: Stats) {
        lock(&self.optimised).stats = stats;
    }

    /// What its optimiser made of it.
    pub fn optimiser(&self) -> Optimised {
        *lock(&self.optimised)
    }

    /// Why it gets what it gets.
    pub fn reason(&self) -> Reason {
        let gave_up = self.optimiser().gave_up.and_then(Reason::of_optimiser);
        gave_up.unwrap_or(self.info.reason)
    }

    /// Since it started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Since payload last moved.
    pub fn idle(&self) -> Duration {
        self.age()
            .saturating_sub(Duration::from_millis(self.moved_ms.load(Ordering::Relaxed)))
    }

    /// Returns when an operator wants the flow gone.
    pub async fn cut_requested(&self) {
        self.cut.notified().await;
    }
}

/// All flows alive.
#[derive(Debug)]
pub struct FlowTable {
    alive: Mutex<BTreeMap<u64, Arc<FlowRecord>>>,
    next: AtomicU64,
    flows_max: AtomicU64,
}

/// The bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl FlowTable {
    /// An empty table for at most `flows_max` flows.
    pub fn new(flows_max: usize) -> Self {
        Self {
            alive: Mutex::default(),
            next: AtomicU64::new(1),
            flows_max: AtomicU64::new(flows_max as u64),
        }
    }

    /// Changes the bound; flows beyond it live on.
    pub fn set_max(&self, flows_max: usize) {
        self.flows_max.store(flows_max as u64, Ordering::Relaxed);
    }

    /// Whether another flow would be too many.
    pub fn is_full(&self) -> bool {
        self.len() as u64 >= self.flows_max.load(Ordering::Relaxed)
    }

    /// Registers a flow until the entry is dropped.
    pub fn enter(self: &Arc<Self>, info: FlowInfo) -> Result<Entry, Full> {
        if self.is_full() {
            return Err(Full);
        }
        let record = Arc::new(FlowRecord {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            info,
            started: Instant::now(),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            moved_ms: AtomicU64::new(0),
            carrier: OnceLock::new(),
            optimised: Mutex::default(),
            cut: Notify::new(),
        });
        self.alive().insert(record.id, record.clone());
        Ok(Entry {
            table: self.clone(),
            record,
        })
    }

    /// Flows alive.
    pub fn len(&self) -> usize {
        self.alive().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All flows, oldest first.
    pub fn list(&self) -> Vec<Arc<FlowRecord>> {
        self.alive().values().cloned().collect()
    }

    /// Cuts a flow; false when there is none of that number.
    pub fn cut(&self, id: u64) -> bool {
        let found = self.alive().get(&id).cloned();
        if let Some(record) = &found {
            record.cut.notify_one();
        }
        found.is_some()
    }

    fn alive(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<FlowRecord>>> {
        self.alive
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

/// Keeps a flow in the table.
#[derive(Debug)]
pub struct Entry {
    table: Arc<FlowTable>,
    record: Arc<FlowRecord>,
}

impl std::ops::Deref for Entry {
    type Target = FlowRecord;

    fn deref(&self) -> &FlowRecord {
        &self.record
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.table.alive().remove(&self.record.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> FlowInfo {
        FlowInfo {
            peer: "hq".to_owned(),
            client: SocketAddr::from(([10, 1, 0, 5], 40_000)),
            destination: "10.2.0.5:80".to_owned(),
            rule: "default".to_owned(),
            class: Class::Auto,
            reason: Reason::Optimised,
            facing: Facing::Client,
            writes_behind: true,
        }
    }

    #[test]
    fn invariant_5_the_table_is_bounded_and_entries_leave_it() {
        let table = Arc::new(FlowTable::new(2));
        let first = table.enter(info()).unwrap();
        let second = table.enter(info()).unwrap();
        assert_ne!(first.id, second.id);
        assert_eq!(table.enter(info()).unwrap_err(), Full);
        drop(first);
        assert_eq!(table.len(), 1);
        assert!(table.enter(info()).is_ok());
    }

    #[tokio::test]
    async fn an_operator_cuts_one_flow() {
        let table = Arc::new(FlowTable::new(2));
        let entry = table.enter(info()).unwrap();
        assert!(!table.cut(entry.id + 1));
        assert!(table.cut(entry.id));
        entry.cut_requested().await;
    }
}
