//! `farhaul reload`: reads the configuration file again.

use clap::Args;
use serde_json::json;

use crate::ask::Where;
use crate::failure::Failure;
use crate::print;

/// `farhaul reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadCommand {
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ReloadCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.gateway.ask(async |client| client.reload().await)?;
        if self.json {
            print::json(&json!({ "reloaded": true }))
        } else {
            print::line("reloaded")
        }
    }
}
