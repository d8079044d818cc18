//! `farhaul sim`: HTTP over long links, simulated.

mod merge;
mod prepare;
mod report;
mod run;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// `farhaul sim`.
#[derive(Debug, Args)]
pub(crate) struct SimCommand {
    #[command(subcommand)]
    verb: SimVerb,
}

#[derive(Debug, Subcommand)]
enum SimVerb {
    /// Run a plan, or one shard of it.
    Run(run::Run),
    /// Put the shards of a plan together; none may be missing or foreign.
    Merge(merge::Merge),
    /// Make page, figures and document from a plan's results.
    Report(report::ReportCommand),
    /// Make a host file and a log file from other logs.
    Prepare(prepare::Prepare),
}

impl SimCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.verb {
            SimVerb::Run(run) => run.run(),
            SimVerb::Merge(merge) => merge.run(),
            SimVerb::Report(report) => report.run(),
            SimVerb::Prepare(prepare) => prepare.run(),
        }
    }
}
