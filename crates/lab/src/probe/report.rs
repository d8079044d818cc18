//! The document a test ends with, whatever happened: what was seen, what it
//! means, and where it failed why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diagnose::Verdict;
use super::error::{FAULT_EXIT_CODE, ProbeError};
use super::host::HostFacts;
use super::iperf3::Iperf3Result;
use super::latency::Latency;
use super::observe::{FlowResult, TcpResult, TcpWay};
use super::path_check::PathFacts;
use super::rfc6349::Figures;
use super::sweep::SweepStep;
use super::transact::Transactions;

/// Name of the format; a field that changes its meaning changes it.
pub const SCHEMA: &str = "farhaul-probe/1";

/// A TCP test with the round trips that were measured meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedTcp {
    /// The test.
    pub test: TcpResult,
    /// Round trips of small datagrams under this load.
    pub latency: Latency,
}

impl LoadedTcp {
    /// The direction that was tested.
    pub(crate) fn way(&self) -> Option<&TcpWay> {
        self.test.up.as_ref().or(self.test.down.as_ref())
    }
}

/// Everything that was seen; what was not looked at is null or empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Observations {
    /// Settings of the client's host.
    pub client_host: Option<HostFacts>,
    /// Settings of the server's host.
    pub server_host: Option<HostFacts>,
    /// Other clients the server had at the beginning.
    pub other_sessions: u32,
    /// Quickest round trip of the connection to the server's port, microseconds.
    #[serde(default)]
    pub control_rtt_us: Option<u64>,
    /// Round trips of an idle circuit.
    pub idle: Option<Latency>,
    /// What the way does to packets.
    pub path: Option<PathFacts>,
    /// Short trains both ways: pace of the line, depth of queues.
    pub trains: Option<FlowResult>,
    /// More than the line carries, up.
    pub flood_up: Option<FlowResult>,
    /// More than the line carries, down.
    pub flood_down: Option<FlowResult>,
    /// Small datagrams well below the line's rate, up.
    pub quiet_up: Option<FlowResult>,
    /// Small datagrams well below the line's rate, down.
    pub quiet_down: Option<FlowResult>,
    /// Most of the line's rate, both ways at once.
    pub both_loaded: Option<FlowResult>,
    /// A TCP stream up.
    pub tcp_up: Option<LoadedTcp>,
    /// A TCP stream down.
    pub tcp_down: Option<LoadedTcp>,
    /// Other TCP tests.
    pub tcp: Vec<TcpResult>,
    /// Other UDP tests.
    pub flows: Vec<FlowResult>,
    /// A test with an iperf3 server.
    pub iperf3: Option<Iperf3Result>,
    /// Throughput by window size.
    pub sweep: Vec<SweepStep>,
    /// Transactions.
    pub transactions: Option<Transactions>,
}

impl Observations {
    /// Median round trip of the idle circuit; where no datagram comes back, the
    /// quickest of TCP.
    pub(crate) fn idle_rtt_us(&self) -> Option<u64> {
        let idle_us = self.idle.and_then(|idle| idle.p50_us);
        idle_us.or(self.control_rtt_us)
    }

    /// What other clients of the server may have done to the figures, at the
    /// beginning or during any test; null where there were none.
    pub(crate) fn interference(&self) -> Option<String> {
        let flows = [
            &self.trains,
            &self.flood_up,
            &self.flood_down,
            &self.quiet_up,
            &self.quiet_down,
            &self.both_loaded,
        ];
        let flows = flows.into_iter().flatten().chain(&self.flows);
        let loaded = [&self.tcp_up, &self.tcp_down].into_iter().flatten();
        let tcp = loaded.map(|loaded| &loaded.test).chain(&self.tcp);
        let most = flows
            .map(|flow| flow.other_sessions)
            .chain(tcp.map(|test| test.other_sessions))
            .fold(self.other_sessions, u32::max);
        (most > 0).then(|| {
            format!("the server had up to {most} other clients meanwhile: figures may be too low")
        })
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// Short and stable.
    pub code: String,
    /// In words.
    pub text: String,
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of this program.
    pub version: String,
    /// Start, RFC 3339 in UTC.
    pub date: String,
    /// Server as it was asked for.
    pub target: String,
    /// What was seen, also where the test failed later.
    pub observations: Observations,
    /// RFC 6349's figures, one for each direction measured.
    pub rfc6349: Vec<Figures>,
    /// What it means; null where nothing was to be judged.
    pub verdict: Option<Verdict>,
    /// The circuit in the words of `farhaul link`.
    pub link_profile: Option<String>,
    /// Why it did not come to its end.
    pub error: Option<Trouble>,
    /// What the process ends with.
    pub exit_code: u8,
}

impl Report {
    /// An empty one of now.
    pub fn new(target: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: crate::measurement::now_text(),
            target: super::error::harmless(target),
            observations: Observations::default(),
            rfc6349: Vec::new(),
            verdict: None,
            link_profile: None,
            error: None,
            exit_code: 0,
        }
    }

    /// With what went wrong, if something did, and the exit code that follows.
    pub fn ended(mut self, outcome: Result<(), ProbeError>) -> Self {
        let has_fault = |verdict: &Verdict| !verdict.findings.is_empty();
        match outcome {
            Ok(()) if self.verdict.as_ref().is_some_and(has_fault) => {
                self.exit_code = FAULT_EXIT_CODE;
            }
            Ok(()) => {}
            Err(error) => {
                self.exit_code = error.exit_code();
                self.error = Some(Trouble {
                    code: error.code().to_owned(),
                    text: error.to_string(),
                });
            }
        }
        self
    }

    /// The schema of this document (JSON Schema 2020-12), indented.
    pub fn schema_text() -> String {
        let schema = schemars::schema_for!(Self);
        format!("{:#}\n", schema.to_value())
    }
}
