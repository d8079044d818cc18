//! Command line of Farhaul: one file per verb, nothing else.
//!
//! A new verb is a file `NAME_command.rs` with its clap arguments and
//! `fn run(self) -> Result<(), Failure>`, a variant of [`Verb`] and a line in
//! [`Verb::run`].
//!
//! Exit codes are stable: 0 done, 1 failed, 2 wrong usage. Errors go to
//! standard error as `farhaul: what happened, where, what to do`.

mod accuracy_command;
mod ask;
mod bypass_command;
mod cache_command;
mod calibrate_command;
mod campaign_command;
mod config_command;
mod doctor_command;
mod failure;
mod fetches_command;
mod flows_command;
mod gateway_command;
mod lab_command;
mod link_command;
mod pair_command;
mod pair_words;
mod print;
mod probe_command;
mod probe_peer_command;
mod questions;
mod reduction_words;
mod reload_command;
mod reset_command;
mod sim_command;
mod status_command;
mod study_command;
mod table;
mod top_command;
mod tunnel_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Makes a long, slow or lossy link feel short, and proves it.
#[derive(Debug, Parser)]
#[command(name = "farhaul", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the accelerator at this site.
    Gateway(gateway_command::GatewayCommand),
    #[command(name = gateway_command::GUARD_VERB, hide = true)]
    Guard(gateway_command::GuardCommand),
    /// Write a site's configuration and key, and pair it with another gateway.
    Init(pair_command::Init),
    /// Pair with the gateway that made a token.
    Join(pair_command::Join),
    /// Write a gateway's private key and print its public key.
    Keygen(config_command::Keygen),
    /// Say everything that is wrong with a configuration file.
    CheckConfig(config_command::CheckConfig),
    /// Print a configuration with every default filled in.
    PrintConfig(config_command::PrintConfig),
    /// A WAN link between two interfaces, emulated: rate, delay, loss, queue.
    Link(link_command::LinkCommand),
    /// A WAN of network namespaces on this machine, with real servers and clients.
    Lab(lab_command::LabCommand),
    /// Test a circuit and say what is wrong with it.
    Probe(probe_command::ProbeCommand),
    /// HTTP over long links with and without proxies, simulated.
    Sim(sim_command::SimCommand),
    /// The gateway at a glance, and the one thing to fix next.
    Status(status_command::StatusCommand),
    /// Flows, and why connections went direct.
    Flows(flows_command::FlowsCommand),
    /// Who uses the link right now, refreshed every second.
    Top(top_command::TopCommand),
    /// Send new connections direct, or accelerate them again.
    Bypass(bypass_command::BypassCommand),
    /// Reset one flow.
    Reset(reset_command::ResetCommand),
    /// What has passed and is remembered: figures, check, forget.
    Cache(cache_command::CacheCommand),
    /// Look at what usually goes wrong, with evidence and remedy.
    Doctor(doctor_command::DoctorCommand),
    /// Make the gateway read its configuration file again.
    Reload(reload_command::ReloadCommand),
}

impl Verb {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Gateway(command) => command.run(),
            Self::Guard(command) => command.run(),
            Self::Init(command) => command.run(),
            Self::Join(command) => command.run(),
            Self::Keygen(command) => command.run(),
            Self::CheckConfig(command) => command.run(),
            Self::PrintConfig(command) => command.run(),
            Self::Link(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::Probe(command) => command.run(),
            Self::Sim(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Flows(command) => command.run(),
            Self::Top(command) => command.run(),
            Self::Bypass(command) => command.run(),
            Self::Reset(command) => command.run(),
            Self::Cache(command) => command.run(),
            Self::Doctor(command) => command.run(),
            Self::Reload(command) => command.run(),
        }
    }
}

fn main() -> ExitCode {
    let outcome = CommandLine::try_parse()
        .map_err(Failure::from)
        .and_then(|line| line.verb.run());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
