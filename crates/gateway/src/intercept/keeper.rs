//! Looks after what others may break: the rules (`nft flush ruleset`) and the
//! guard (killed by hand or for memory). Takes both away at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::time::sleep;

use super::InterceptError;
use super::guard::{Guard, GuardProgram};
use super::lease::Lease;
use super::nfqueue::NfQueue;
use super::rules::{self, Rules};
use super::stats::Counters;

/// Pause between attempts to put rules or the guard back.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);

/// What the keeper needs to know.
pub(super) struct Charge {
    pub program: GuardProgram,
    pub queue: Arc<NfQueue>,
    pub rules: Arc<Mutex<Rules>>,
    pub lease: Lease,
    pub counters: Arc<Counters>,
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
                () = self.charge.lease.rules_missing() => self.restore_rules().await,
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
        if let Ok(guard) = self.charge.start_guard().await {
            self.guard = guard;
            self.charge.counters.guard_restarts.add();
        }
    }

    async fn restore_rules(&mut self) {
        if self.charge.rules.lock().await.install().await.is_ok() {
            // The new table knows no lease yet.
            self.charge.lease.beat();
            self.charge.counters.rules_restored.add();
        }
        sleep(REPAIR_PAUSE).await;
        // A beat sent before the rules came back would start this again.
        self.charge.lease.forget_missing().await;
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
}
