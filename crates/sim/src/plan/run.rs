//! One point of a plan, run.

use serde::{Deserialize, Serialize};

use super::points::{PAIR, PAIR_TOLD, PROXIES};
use super::{Plan, Point};
use crate::engine::{nanoseconds, seconds};
use crate::http::{Architecture, Http, Outcome, Scenario, Study};
use crate::statistics::Samples;
use crate::tcp::Profile;
use crate::workload::{Scaled, Workload};

/// What came of a point: one line of a result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// The point.
    pub point: Point,
    /// Load of the log as it was made.
    pub presented_bit_per_s: f64,
    /// Requests judged.
    pub requests: u64,
    /// Of these, not answered in time or failed.
    pub unanswered: u64,
    /// Latency of answered requests; null where none was.
    pub mean_s: Option<f64>,
    /// Half were faster.
    pub median_s: Option<f64>,
    /// Nine of ten were faster.
    pub p90_s: Option<f64>,
    /// Ninety-nine of a hundred were faster.
    pub p99_s: Option<f64>,
    /// Most bytes that ever waited in the router towards the near site.
    pub queue_bytes_max: u64,
    /// Mean of what waited there.
    pub queue_bytes_mean: f64,
    /// Packets that router dropped.
    pub queue_drops: u64,
    /// Most bytes that ever waited in the other direction.
    pub queue_out_bytes_max: u64,
    /// Most connections to servers open at once.
    pub sessions_max: u64,
    /// Mean of them.
    pub sessions_mean: f64,
    /// Connections to servers opened.
    pub opened: u64,
    /// Bits per second that came over the link, headers included.
    pub link_bit_per_s: f64,
    /// Packets handed to and taken from circuits.
    pub packet_events: u64,
    /// Simulated seconds.
    pub simulated_s: f64,
    /// Hash of everything that happened.
    pub trace: String,
    /// Why the run is worthless, if it is.
    pub error: Option<String>,
}

/// Runs a point.
pub fn run(plan: &Plan, point: &Point) -> PointResult {
    let workload = plan.workload_of(point);
    let scenario = plan.scenario_of(point);
    let outcome = Study::new(&scenario, &workload).run();
    result(point, &workload, &outcome)
}

impl Plan {
    /// The requests of a point: the same for all architectures.
    pub fn workload_of(&self, point: &Point) -> Workload {
        let from = &self.written.workload;
        let duration_ns = nanoseconds(self.written.study.duration_s);
        let (days, trace_mbit) = match (&self.logged, &from.generator) {
            (Some(logged), _) => (vec![logged.clone()], logged.load_bit_per_s() / 1e6),
            (None, Some(generator)) => {
                let parts = parts(point.load_mbit, from.trace_mbit);
                let trace =
                    |day| generator.trace(point.seed, day, duration_ns, from.trace_mbit * 1e6);
                let days = (0..u64::from(from.days.min(parts))).map(trace).collect();
                (days, from.trace_mbit)
            }
            (None, None) => (Vec::new(), 0.0),
        };
        let parts = parts(point.load_mbit, trace_mbit);
        Scaled {
            seed: point.seed,
            parts,
        }
        .merge(&days)
    }

    /// The world of a point.
    pub fn scenario_of(&self, point: &Point) -> Scenario {
        let study = &self.written.study;
        let http = Http::NAMED.iter().find(|(name, _)| *name == point.http);
        let architecture = match point.architecture.as_str() {
            PROXIES => Architecture::Proxies {
                connections: point.pool,
            },
            PAIR => Architecture::Pair { is_told: false },
            PAIR_TOLD => Architecture::Pair { is_told: true },
            _ => Architecture::Direct,
        };
        Scenario {
            link: self.links.get(&point.link).cloned().unwrap_or_default(),
            architecture,
            http: http.map_or(Http::V10, |(_, http)| *http),
            profile: self
                .profiles
                .get(&point.tcp)
                .copied()
                .unwrap_or(Profile::BSD44),
            proxy_buffer_bytes: study.proxy_buffer_bytes,
            server_buffer_bytes: study.server_buffer_bytes,
            mss_bytes: study.mss_bytes,
            idle_timeout_ns: nanoseconds(study.idle_timeout_s),
            overhead_bytes: study.overhead_bytes,
            far_delay_ns: nanoseconds(study.far_delay_ms / 1000.0),
            warm_up_ns: nanoseconds(study.warm_up_s),
            drain_ns: nanoseconds(study.drain_s),
            seed: point.seed,
        }
    }
}

/// Traces that make a load, at least one.
pub(super) fn parts(load_mbit: f64, trace_mbit: f64) -> u32 {
    if trace_mbit <= 0.0 {
        return 1;
    }
    ((load_mbit / trace_mbit).round() as u32).max(1)
}

fn result(point: &Point, workload: &Workload, outcome: &Outcome) -> PointResult {
    let latency = &outcome.latency_s;
    let mean = |samples: &Samples| samples.mean().unwrap_or(0.0);
    PointResult {
        point: point.clone(),
        presented_bit_per_s: workload.load_bit_per_s(),
        requests: outcome.judged,
        unanswered: outcome.unanswered,
        mean_s: latency.mean(),
        median_s: latency.percentile(0.5),
        p90_s: latency.percentile(0.9),
        p99_s: latency.percentile(0.99),
        queue_bytes_max: outcome.inbound.queue_bytes_max,
        queue_bytes_mean: mean(&outcome.queue_bytes),
        queue_drops: outcome.inbound.drops.queue,
        queue_out_bytes_max: outcome.outbound.queue_bytes_max,
        sessions_max: outcome.sessions_max,
        sessions_mean: mean(&outcome.sessions),
        opened: outcome.opened,
        link_bit_per_s: outcome.inbound.bytes_out as f64 * 8.0
            / seconds(outcome.ended_ns).max(1e-9),
        packet_events: outcome.packet_events,
        simulated_s: seconds(outcome.ended_ns),
        trace: outcome.trace.clone(),
        error: outcome.error.clone(),
    }
}
