//! `farhaul bypass on|off`: the operator's own switch.

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::ask::Where;
use crate::failure::Failure;
use crate::print;

/// `farhaul bypass`.
#[derive(Debug, Args)]
pub(crate) struct BypassCommand {
    /// on: new connections go direct; off: they are accelerated again.
    /// Flows already in the tunnel stay there.
    to: To,
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    On,
    Off,
}

impl BypassCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let on = self.to == To::On;
        self.gateway
            .ask(async |client| client.set_bypass(on).await)?;
        match (self.json, on) {
            (true, _) => print::json(&json!({ "bypass": on })),
            (false, true) => print::line("bypass is on: new connections go direct"),
            (false, false) => print::line("bypass is off"),
        }
    }
}
