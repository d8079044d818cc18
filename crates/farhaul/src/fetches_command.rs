//! `farhaul lab reduce`: what reduction does to a disk image, live.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use farhaul_lab::fetches::{self, FetchesOptions};
use farhaul_lab::require_root;

use crate::failure::Failure;
use crate::print;

/// `farhaul lab reduce`.
#[derive(Debug, Args)]
pub(crate) struct FetchesCommand {
    /// A disk image.
    image: PathBuf,
    /// A later version of it.
    edited: PathBuf,
    /// Only rows whose name contains this, such as "T3/http", "random" or "echo".
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Memory of each gateway for what has passed, MiB; six times the image by default.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(32..=1_000_000))]
    memory: Option<u64>,
    /// Seed of the links' losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long all of it may take; what is not done by then is a failed row.
    #[arg(long, value_name = "MINUTES", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1440))]
    within: u64,
    /// Folder for reduce-live.json.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Name of the labs it makes for itself.
    #[arg(long, default_value = "reduce")]
    name: String,
}

impl FetchesCommand {
    /// Runs it with this `farhaul` program as emulator and gateways.
    pub(crate) fn run(self, program: PathBuf, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        require_root("`farhaul lab reduce`")?;
        let document = fetches::run(&FetchesOptions {
            name: self.name,
            program,
            images: [self.image, self.edited],
            only: self.only,
            memory_bytes: self.memory.map(|mebibytes| mebibytes << 20),
            seed: self.seed,
            within: Duration::from_secs(60 * self.within),
            out: self.out.clone(),
            stop,
        })?;
        print::measurement(&document, &self.out.join("reduce-live.json"))
    }
}
