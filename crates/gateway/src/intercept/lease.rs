//! The heartbeat lease: SYNs are held only while it is alive.
//!
//! A beat is one empty datagram to the loopback interface, carrying our mark
//! (which takes CAP_NET_ADMIN or CAP_NET_RAW to set). An nftables rule on its
//! way renews an element of the set `lease`, whose time-out is the kernel's, so
//! a stopped or wedged process loses interception without any help from user
//! space. The same rule drops the datagram, which the sender sees as EPERM:
//! proof that the table is in place. Policy rule and route are looked up before
//! each beat (`delivery`); without them no beat is sent.
//!
//! Each beat is told to the guard as well, which lets held SYNs go when beats
//! fail to come: their clients need not wait for a retransmission.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::sync::Notify;

use super::delivery::Delivery;
use super::guard;
use super::rules::{Family, Identity};

/// How long one beat lasts.
pub(super) const LEASE: Duration = Duration::from_millis(700);
/// How often to call [`Lease::beat`].
pub const BEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Port of the datagram (discard, RFC 863): it never arrives there.
pub(super) const BEAT_PORT: u16 = 9;
/// A queue loop that has not turned for this long holds back the beat.
/// With [`LEASE`] this stays below the promised second.
const LOOP_AGE_MAX: Duration = Duration::from_millis(250);
/// A pause after which SYNs may have passed by unseen: the guard's patience
/// less a margin.
pub(super) const LAPSE: Duration = Duration::from_millis(450);

/// Renews the right to intercept; clones share it.
#[derive(Debug, Clone)]
pub struct Lease(Arc<State>);

#[derive(Debug)]
struct State {
    socket: UdpSocket,
    start: Instant,
    /// Milliseconds since `start` of the queue loop's last turn and the last beat.
    turned_ms: AtomicU64,
    beaten_ms: AtomicU64,
    lapses: AtomicU64,
    revoked: AtomicBool,
    delivery: Delivery,
    /// Whether IPv6 connections are taken, too.
    with_v6: AtomicBool,
    table_missing: AtomicBool,
    rules_missing: Notify,
    guard: Mutex<Option<UnixStream>>,
}

impl Lease {
    pub(super) fn new(identity: Identity, with_v6: bool) -> io::Result<Lease> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        SockRef::from(&socket).set_mark(identity.mark)?;
        Ok(Lease(Arc::new(State {
            socket,
            start: Instant::now(),
            turned_ms: AtomicU64::new(0),
            beaten_ms: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
            delivery: Delivery::open(identity)?,
            with_v6: AtomicBool::new(with_v6),
            table_missing: AtomicBool::new(false),
            rules_missing: Notify::new(),
            guard: Mutex::new(None),
        })))
    }

    /// Renews the lease, to be called every [`BEAT_INTERVAL`] from the loop
    /// whose health interception shall depend on. Held back while the queue
    /// loop does not turn, and while what is taken would not be delivered here.
    pub fn beat(&self) {
        let state = &self.0;
        let now_ms = self.now_ms();
        let loop_age_ms = now_ms.saturating_sub(state.turned_ms.load(Ordering::Acquire));
        if u128::from(loop_age_ms) > LOOP_AGE_MAX.as_millis()
            || state.revoked.load(Ordering::Acquire)
        {
            return;
        }
        if self.undelivered().next().is_some() {
            return state.rules_missing.notify_one();
        }
        let earlier_ms = state.beaten_ms.swap(now_ms, Ordering::AcqRel);
        if u128::from(now_ms.saturating_sub(earlier_ms)) > LAPSE.as_millis() {
            // Before the datagram: no SYN of the new lease counts as stale.
            state.lapses.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(mut guard) = self.guard().as_ref() {
            // A guard that is gone or stuck is the keeper's concern.
            let _ = guard.write(&[guard::BEAT]);
        }
        let sent = state.socket.send_to(&[], (Ipv4Addr::LOCALHOST, BEAT_PORT));
        state.table_missing.store(sent.is_ok(), Ordering::Release);
        if sent.is_ok() {
            state.rules_missing.notify_one();
        }
    }

    /// Beats until dropped, for callers without a health loop of their own.
    pub async fn keep(self) {
        let mut interval = tokio::time::interval(BEAT_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.beat();
        }
    }

    /// The queue loop has turned; how long ago was the turn before?
    pub(super) fn turned(&self) -> Duration {
        let now_ms = self.now_ms();
        let earlier_ms = self.0.turned_ms.swap(now_ms, Ordering::AcqRel);
        Duration::from_millis(now_ms.saturating_sub(earlier_ms))
    }

    /// How often the lease may have run out so far.
    pub(super) fn lapses(&self) -> u64 {
        self.0.lapses.load(Ordering::Acquire)
    }

    /// No beat from now on.
    pub(super) fn revoke(&self) {
        self.0.revoked.store(true, Ordering::Release);
    }

    /// Families whose marked packets are not delivered here.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = Family> {
        let state = &self.0;
        let wanted =
            |family: &Family| *family == Family::V4 || state.with_v6.load(Ordering::Acquire);
        let families = Family::ALL.into_iter().filter(wanted);
        families.filter(|family| !state.delivery.works(*family))
    }

    /// Beats no longer depend on the delivery of IPv6.
    pub(super) fn without_v6(&self) {
        self.0.with_v6.store(false, Ordering::Release);
    }

    /// Whether the last beat found its rule gone.
    pub(super) fn is_table_missing(&self) -> bool {
        self.0.table_missing.load(Ordering::Acquire)
    }

    /// Waits until a beat finds its rule gone, or the policy rule or the route.
    pub(super) async fn rules_missing(&self) {
        self.0.rules_missing.notified().await;
    }

    /// Forgets what beats have found so far; the next one tells again.
    pub(super) async fn forget_missing(&self) {
        let _ = tokio::time::timeout(Duration::ZERO, self.rules_missing()).await;
    }

    /// The guard that beats are told to; not blocking.
    pub(super) fn set_guard(&self, control: Option<UnixStream>) {
        *self.guard() = control;
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Option<UnixStream>> {
        self.0.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
