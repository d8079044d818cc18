//! `farhaul reset FLOW`: ends one flow with a reset towards both applications.

use clap::Args;
use serde_json::json;

use crate::ask::Where;
use crate::failure::Failure;
use crate::print;

/// `farhaul reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetCommand {
    /// The flow's number, as `farhaul flows` shows it.
    flow: u64,
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ResetCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let flow = self.flow;
        self.gateway
            .ask(async |client| client.reset_flow(flow).await)?;
        if self.json {
            print::json(&json!({ "reset": flow }))
        } else {
            print::line(&format!("flow {flow} was reset"))
        }
    }
}
