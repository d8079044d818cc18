//! A plan as it is written.

use std::collections::BTreeMap;

use farhaul_link::LinkProfile;
use serde::{Deserialize, Serialize};

use super::points::{PAIR, PAIR_TOLD};
use super::{PlanError, ReadFile};
use crate::workload::{Generator, SECONDS_MAX, Workload, read_hosts, read_log};

/// Most that multiplexing may add to a segment.
const OVERHEAD_BYTES_MAX: u64 = 65_535;
/// Most points of a plan.
pub(super) const POINTS_MAX: usize = 1_000_000;
/// Malformed lines of a log after which it is not believed.
const BAD_LINES_MAX: usize = 100;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) study: Study,
    pub(super) links: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, TcpPlan>,
    pub(super) workload: WorkloadPlan,
    pub(super) sweep: Sweep,
    #[serde(default)]
    pub(super) report: ReportPlan,
}

/// What all points of a plan share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Length of the log.
    pub duration_s: f64,
    /// Requests before this are not judged.
    pub warm_up_s: f64,
    /// How long answers are waited for after the last request.
    pub drain_s: f64,
    /// Segment size between proxies, and the most they accept.
    pub mss_bytes: u32,
    /// TCP buffers of the proxies.
    pub proxy_buffer_bytes: u64,
    /// Servers' buffers; those of the host file where it is not given.
    pub server_buffer_bytes: Option<u64>,
    /// A persistent connection idle for so long is closed.
    pub idle_timeout_s: f64,
    /// Added to every segment of a multiplexed reply.
    pub overhead_bytes: u64,
    /// One-way delay of the network behind the link, with a proxy before it or not.
    #[serde(default)]
    pub far_delay_ms: f64,
}

/// Where requests come from: a generator, or a host file and a log file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadPlan {
    /// Laws to draw from.
    pub generator: Option<Generator>,
    /// A host file; its path is taken from the plan's folder.
    pub hosts: Option<String>,
    /// A log file.
    pub log: Option<String>,
    /// Load of one trace of the generator; the load of a log is its own.
    #[serde(default)]
    pub trace_mbit: f64,
    /// Different traces there are before copies are taken.
    pub days: u32,
}

/// What varies. Every combination is a point.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    pub(super) link: Vec<String>,
    pub(super) architecture: Vec<String>,
    pub(super) http: Vec<String>,
    pub(super) tcp: Vec<String>,
    #[serde(default = "no_pool")]
    pub(super) pool: Vec<u32>,
    pub(super) load_mbit: Vec<f64>,
    pub(super) seed: Range,
}

fn no_pool() -> Vec<u32> {
    vec![1]
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A TCP of one's own: another one with some rules changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpPlan {
    /// `bsd44` or `modern`.
    pub like: String,
    /// RFC 6675 instead of NewReno.
    pub sack: Option<bool>,
    /// CUBIC instead of Reno.
    pub cubic: Option<bool>,
    /// RFC 6928 says 10.
    pub initial_window_segments: Option<u32>,
    /// RFC 3042.
    pub limited_transmit: Option<bool>,
    /// RFC 3465; 0 counts acknowledgements.
    pub byte_counting_segments: Option<u32>,
    /// RFC 5827.
    pub early_retransmit: Option<bool>,
    /// RFC 896.
    pub nagle: Option<bool>,
}

/// What a report shows beyond its tables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportPlan {
    /// Holds the results against the numbers of the Waikato paper.
    #[serde(default)]
    pub is_waikato: bool,
    /// The load at which architectures are compared.
    pub base_load_mbit: Option<f64>,
}

impl Written {
    /// Whether a point of it has gateways at its ends.
    pub(super) fn has_gateways(&self) -> bool {
        let is_pair = |name: &String| [PAIR, PAIR_TOLD].contains(&name.as_str());
        self.sweep.architecture.iter().any(is_pair)
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        let study = &self.study;
        if self.name.is_empty()
            || !self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        {
            return Err(PlanError::value(
                "name",
                "must be letters, digits, - and _: files are named after it",
            ));
        }
        for (key, seconds) in [
            ("study.duration_s", study.duration_s),
            ("study.drain_s", study.drain_s),
            ("study.idle_timeout_s", study.idle_timeout_s),
        ] {
            if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
                return Err(PlanError::value(
                    key,
                    format!("{seconds} is not between 0 and {SECONDS_MAX} seconds"),
                ));
            }
        }
        if !(study.warm_up_s >= 0.0 && study.warm_up_s < study.duration_s) {
            return Err(PlanError::value(
                "study.warm_up_s",
                "must leave something of duration_s to judge",
            ));
        }
        if !(88..=65_495).contains(&study.mss_bytes) {
            return Err(PlanError::value(
                "study.mss_bytes",
                "a segment has 88 to 65,495 bytes",
            ));
        }
        let buffers = [
            ("study.proxy_buffer_bytes", Some(study.proxy_buffer_bytes)),
            ("study.server_buffer_bytes", study.server_buffer_bytes),
        ];
        for (key, bytes) in buffers {
            if bytes.is_some_and(|bytes| bytes < u64::from(study.mss_bytes)) {
                return Err(PlanError::value(key, "must hold a segment of mss_bytes"));
            }
        }
        if study.overhead_bytes > OVERHEAD_BYTES_MAX {
            return Err(PlanError::value(
                "study.overhead_bytes",
                format!("must be at most {OVERHEAD_BYTES_MAX}"),
            ));
        }
        if !(study.far_delay_ms >= 0.0 && study.far_delay_ms <= 60_000.0) {
            return Err(PlanError::value(
                "study.far_delay_ms",
                "must lie between 0 and 60,000 ms",
            ));
        }
        self.workload.check()
    }

    pub(super) fn links(&self) -> Result<BTreeMap<String, LinkProfile>, PlanError> {
        let parse = |(name, text): (&String, &String)| {
            let key = format!("links.{name}");
            let link: LinkProfile = text.parse().map_err(|error: farhaul_link::ProfileError| {
                PlanError::value(&key, error.to_string())
            })?;
            for direction in [&link.forward, &link.backward] {
                direction
                    .validate()
                    .map_err(|error| PlanError::value(&key, error.to_string()))?;
            }
            Ok((name.clone(), link))
        };
        self.links.iter().map(parse).collect()
    }
}

impl WorkloadPlan {
    fn check(&self) -> Result<(), PlanError> {
        if self.days == 0 || self.days > 1000 {
            return Err(PlanError::value(
                "workload.days",
                "there are 1 to 1000 different traces",
            ));
        }
        match (&self.generator, &self.hosts, &self.log) {
            (Some(generator), None, None) => {
                if !(self.trace_mbit > 0.0 && self.trace_mbit <= 1e5) {
                    return Err(PlanError::value(
                        "workload.trace_mbit",
                        "must lie above 0 and below 100,000 Mbit/s",
                    ));
                }
                generator.check().map_err(|(key, why)| {
                    PlanError::value(format!("workload.generator.{key}"), why)
                })
            }
            (None, Some(_), Some(_)) => Ok(()),
            _ => Err(PlanError::value(
                "workload",
                "needs either a generator, or hosts and log",
            )),
        }
    }

    /// The logged workload, if the plan names one.
    pub(super) fn read(
        &self,
        read_file: &ReadFile<'_>,
        remember: &mut dyn FnMut(&str),
        malformed: &mut Vec<String>,
    ) -> Result<Option<Workload>, PlanError> {
        let (Some(hosts_path), Some(log_path)) = (&self.hosts, &self.log) else {
            return Ok(None);
        };
        let mut open = |key: &str, path: &str| {
            let text = read_file(path).map_err(|why| PlanError::value(key, why))?;
            remember(&text);
            Ok::<_, PlanError>(text)
        };
        let hosts_text = open("workload.hosts", hosts_path)?;
        let log_text = open("workload.log", log_path)?;
        let wrong =
            |path: &str, error: &dyn std::fmt::Display| PlanError::value(path, error.to_string());
        let hosts =
            read_hosts(&hosts_text, BAD_LINES_MAX).map_err(|error| wrong(hosts_path, &error))?;
        malformed.extend(hosts.complaints(hosts_path));
        let workload = read_log(&log_text, hosts.kept, BAD_LINES_MAX)
            .map_err(|error| wrong(log_path, &error))?;
        malformed.extend(workload.complaints(log_path));
        if workload.kept.requests.is_empty() {
            return Err(PlanError::value(
                "workload.log",
                "there is no request in it",
            ));
        }
        Ok(Some(workload.kept))
    }
}
