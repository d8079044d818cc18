//! Plans: what is run, as a TOML file; its points, numbered; one point run.

mod error;
mod inherit;
mod points;
mod run;
mod size;
mod tcp;
mod written;

pub use error::PlanError;
pub use points::Point;
pub use run::{PointResult, run};
pub use written::{ReportPlan, Study, TcpPlan, WorkloadPlan};

use std::collections::BTreeMap;

use farhaul_link::LinkProfile;

use crate::engine::Trace;
use crate::tcp::Profile;
use crate::workload::Workload;
use written::Written;

/// Results of one model are not compared with those of another: counted up
/// whenever the same plan and seed give other packets.
pub const MODEL_VERSION: u32 = 1;

/// The same for plans with gateways in them, and only for those: their packets
/// also depend on the product's tunnel and its congestion controller, which change
/// more often than the simulator does.
///
/// * 1: transport paced at a told rate;
/// * 2: the real controller; losses judged by time alone, as the gateway does;
/// * 3: its start over long round trips, its pace without loss, its share beside others;
/// * 4: its search under requests;
/// * 5: its view of machines that are held up;
/// * 6: its pace without loss, its shorter headers;
/// * 7: its pace where the rate was told, its start with messages, no rate from a timer's step;
/// * 8: its trains on lossy paths.
pub const PAIR_VERSION: u32 = 9;

/// Text of a file a plan names, and where the plan says it is.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// A plan that can be run.
#[derive(Debug, Clone)]
pub struct Plan {
    written: Written,
    links: BTreeMap<String, LinkProfile>,
    profiles: BTreeMap<String, Profile>,
    /// The workload, where it does not come from the generator.
    logged: Option<Workload>,
    malformed: Vec<String>,
    fingerprint: String,
    points: Vec<Point>,
}

impl Plan {
    /// Reads a plan. Files it names are asked for by `read_file`; one that says
    /// `like = "FILE"` takes what it does not say itself from there.
    ///
    /// # Errors
    /// [`PlanError`]: with line and column for what TOML or the list of keys
    /// forbids, with the key for a value that is impossible.
    pub fn parse(text: &str, read_file: &ReadFile<'_>) -> Result<Self, PlanError> {
        let written = inherit::read(text, read_file)?;
        written.check()?;
        let links = written.links()?;
        let profiles = tcp::profiles(&written.tcp)?;
        let mut fingerprint = Trace::default();
        let mut remember = |text: &str| {
            for byte in text.bytes() {
                fingerprint.record([u64::from(byte)]);
            }
        };
        remember(&format!("{MODEL_VERSION} {written:?}"));
        if written.has_gateways() {
            remember(&format!("gateways {PAIR_VERSION}"));
        }
        let mut malformed = Vec::new();
        let logged = written
            .workload
            .read(read_file, &mut remember, &mut malformed)?;
        size::check(&written, logged.as_ref())?;
        let points = points::points(&written, &links, &profiles)?;
        Ok(Self {
            fingerprint: fingerprint.hex(),
            written,
            links,
            profiles,
            logged,
            malformed,
            points,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.written.name
    }

    /// What it is for, in a sentence.
    pub fn about(&self) -> &str {
        &self.written.about
    }

    /// Changes with everything that could change a result.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Lines of its host and log file that were not understood, each with its
    /// place; of many only the first. They are left out.
    pub fn malformed(&self) -> &[String] {
        &self.malformed
    }

    /// The versions its results depend on, for people.
    pub fn model(&self) -> String {
        if self.written.has_gateways() {
            format!("model {MODEL_VERSION}, gateways {PAIR_VERSION}")
        } else {
            format!("model {MODEL_VERSION}")
        }
    }

    /// Its points; a point's place is its number.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The points of one shard of several: every `of`th.
    pub fn shard(&self, shard: u32, of: u32) -> impl Iterator<Item = &Point> {
        let is_of_shard = move |point: &&Point| point.number % of.max(1) == shard;
        self.points.iter().filter(is_of_shard)
    }

    /// What a report is to show.
    pub fn report(&self) -> &ReportPlan {
        &self.written.report
    }

    /// The parameters that all points share.
    pub fn study(&self) -> &Study {
        &self.written.study
    }

    /// The links by their names.
    pub fn links(&self) -> impl Iterator<Item = (&str, &LinkProfile)> {
        self.links.iter().map(|(name, link)| (name.as_str(), link))
    }

    /// A link by its name.
    pub fn link(&self, name: &str) -> Option<&LinkProfile> {
        self.links.get(name)
    }

    /// Where requests come from.
    pub fn workload(&self) -> &WorkloadPlan {
        &self.written.workload
    }
}
