//! `farhaul gateway`: the accelerator at one site, in the foreground.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use farhaul_gateway::intercept::{GuardProgram, guard};
use farhaul_gateway::run::{Options, Signals, run};
use farhaul_gateway::service;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::Failure;

/// The hidden verb under which this program guards itself.
pub(crate) const GUARD_VERB: &str = "gateway-guard";

/// Runs the accelerator at this site until SIGTERM or SIGINT.
///
/// SIGTERM and SIGINT drain: new connections go direct, those in the tunnel
/// have `tunnel.drain` to finish; a second one stops at once. SIGHUP reads the
/// configuration again.
#[derive(Debug, Args)]
pub(crate) struct GatewayCommand {
    /// Configuration file.
    #[arg(long, default_value = "/etc/farhaul/gateway.toml")]
    config: PathBuf,
}

impl GatewayCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let guard = GuardProgram::current(GUARD_VERB).map_err(|error| {
            Failure::failed(format!("cannot find this program's path: {error}"))
        })?;
        let runtime = runtime()?;
        runtime.block_on(async {
            let signals = signals()
                .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
            let options = Options {
                config: self.config,
                guard,
            };
            let ready = || service::notify("READY=1");
            run(options, signals, ready).await.map_err(Failure::failed)
        })
    }
}

/// Removes rules and routes when the gateway that started it is gone.
#[derive(Debug, Args)]
pub(crate) struct GuardCommand {
    /// What the gateway passes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl GuardCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
        runtime
            .block_on(guard::run(self.arguments))
            .map_err(Failure::failed)
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}")))
}

fn signals() -> std::io::Result<Signals> {
    let (stop, stopped) = watch::channel(0);
    let (reload, reloaded) = watch::channel(0);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => stop.send_modify(|count| *count += 1),
                _ = interrupt.recv() => stop.send_modify(|count| *count += 1),
                _ = hangup.recv() => reload.send_modify(|count| *count += 1),
            }
        }
    });
    Ok(Signals {
        stop: stopped,
        reload: reloaded,
    })
}
