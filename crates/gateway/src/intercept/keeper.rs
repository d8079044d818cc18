//! Looks after what others may break: the rules (`nft flush ruleset`, `ip rule
//! flush`, a loopback interface that was down) and the guard (killed by hand or
//! for memory). Takes both away at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::sleep;

use super::InterceptError;
use super::guard::{Guard, GuardProgram};
use super::lease::Lease;
use super::nfqueue::NfQueue;
use super::rules::{self, Family, Rules};
use super::start::has_ipv6;
use super::stats::Counters;

/// Pause between attempts to put rules or the guard back.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);

/// How interception fares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why no connection can be taken at the moment; tried again every second.
    pub off: Option<String>,
    /// Why nobody would tidy up if this process were killed now; tried again as well.
    pub unguarded: Option<String>,
    /// IPv6 connections are no longer taken.
    pub without_v6: bool,
    /// How often rules were found removed by somebody else and put back.
    pub restored: u64,
}

/// What the keeper needs to know.
pub(super) struct Charge {
    pub program: GuardProgram,
    pub queue: Arc<NfQueue>,
    pub rules: Arc<Mutex<Rules>>,
    pub lease: Lease,
    pub counters: Arc<Counters>,
    pub health: watch::Sender<Health>,
}

/// Rules and guard in place.
pub(super) struct Keeper {
    charge: Charge,
    guard: Guard,
}

impl Keeper {
    /// Starts the guard, then installs the rules. After an error the guard, no
    /// longer held, tidies up.
    pub async fn start(charge: Charge) -> Result<Keeper, InterceptError> {
        let guard = charge.start_guard().await?;
        charge.rules.lock().await.install().await?;
        Ok(Keeper { charge, guard })
    }

    /// Runs until told to stop, or until nobody can tell any more.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                _ = &mut stop => break,
                () = self.guard.died() => self.restart_guard().await,
                () = self.charge.is_due() => self.charge.restore_rules().await,
            }
        }
        let identity = self.charge.rules.lock().await.identity;
        // The guard is dismissed only when nothing is left for it to remove.
        if rules::remove(identity).await.is_ok() {
            self.guard.dismiss().await;
        }
    }

    async fn restart_guard(&mut self) {
        sleep(REPAIR_PAUSE).await;
        let error = match self.charge.start_guard().await {
            Ok(guard) => {
                self.guard = guard;
                self.charge.counters.guard_restarts.add();
                None
            }
            Err(error) => Some(error.to_string()),
        };
        self.charge.tell(|health| health.unguarded = error);
    }
}

impl Charge {
    async fn start_guard(&self) -> Result<Guard, InterceptError> {
        let failed = |error: std::io::Error| InterceptError::Guard {
            why: error.to_string(),
        };
        let identity = self.rules.lock().await.identity;
        let queue = self.queue.share().map_err(failed)?;
        let guard = Guard::start(&self.program, identity, queue).await?;
        self.lease.set_guard(Some(guard.control().map_err(failed)?));
        Ok(guard)
    }

    /// Waits for something to put back. After a failure it is tried again also
    /// where no beat complains: others may have put it right.
    async fn is_due(&self) {
        let is_off = self.health.borrow().off.is_some();
        if !is_off {
            self.lease.rules_missing().await;
        }
    }

    async fn restore_rules(&self) {
        match self.put_back().await {
            Ok(loses_v6) => {
                // A new table knows no lease yet.
                self.lease.beat();
                self.counters.rules_restored.add();
                self.tell(|health| {
                    health.off = None;
                    health.without_v6 |= loses_v6;
                    health.restored += 1;
                });
            }
            Err(error) => self.tell(|health| health.off = Some(error.to_string())),
        }
        sleep(REPAIR_PAUSE).await;
        // A beat sent before the rules came back would start this again.
        self.lease.forget_missing().await;
    }

    /// Installs what is missing and leaves the rest alone, which may be in use.
    /// True where that is IPv4 only.
    async fn put_back(&self) -> Result<bool, InterceptError> {
        let mut rules = self.rules.lock().await;
        let mut loses_v6 = false;
        for family in self.lease.undelivered() {
            match rules.restore_routing(family).await {
                Ok(()) => {}
                // As at the start of a gateway: IPv4 is taken all the same.
                Err(_) if family == Family::V6 && !has_ipv6() => {
                    rules.port_v6 = None;
                    loses_v6 = true;
                    self.lease.without_v6();
                }
                Err(error) => return Err(error),
            }
        }
        if loses_v6 || self.lease.is_table_missing() {
            rules.install_table().await?;
        }
        match self.lease.undelivered().next() {
            Some(_) => Err(InterceptError::Undelivered),
            None => Ok(loses_v6),
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Health)) {
        self.health.send_if_modified(|health| {
            let before = health.clone();
            change(health);
            *health != before
        });
    }
}
