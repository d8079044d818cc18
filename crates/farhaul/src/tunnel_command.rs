//! `farhaul lab tunnel`: the tunnel beside the kernel's controllers, live.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use farhaul_lab::live::{self, LiveOptions};
use farhaul_lab::require_root;

use crate::failure::Failure;
use crate::print;

/// `farhaul lab tunnel`.
#[derive(Debug, Args)]
pub(crate) struct TunnelCommand {
    /// Only rows whose name contains this, such as "51.84M/100ms" or "beside bbr".
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seconds measured of every connection, after its warm-up.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// Seed of the links' losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for tunnel-live.json.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Name of the labs it makes for itself.
    #[arg(long, default_value = "tunnel")]
    name: String,
}

impl TunnelCommand {
    /// Runs it with this `farhaul` program as emulator and gateways.
    pub(crate) fn run(self, program: PathBuf, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        require_root("`farhaul lab tunnel`")?;
        let document = live::run(&LiveOptions {
            name: self.name,
            program,
            only: self.only,
            seconds: self.seconds,
            seed: self.seed,
            out: self.out.clone(),
            stop,
        })?;
        print::measurement(&document, &self.out.join("tunnel-live.json"))
    }
}
