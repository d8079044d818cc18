//! `farhaul lab demo`: real clients fetch real files from real servers across
//! an emulated WAN, first without gateways, then through a pair.

pub mod fetch;
pub mod files;
pub mod progress;
pub mod results;
pub mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::deployment::{Lab, require_program};
use crate::error::LabError;
use crate::gateways::GatewayOverrides;
use crate::measurement::Measurement;
use crate::table::Screen;
use crate::topology::{LabOptions, Side};

use fetch::{Outcome, WORKLOADS, Workload, fetch};
use progress::Progress;
use results::{CONGESTION_CONTROL, Config, Series};
use servers::Folders;

/// Words of the demo's link.
const LINK: &str = "oc1 delay 100ms loss 1%";

/// How the demo is run.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Name of its lab.
    pub name: String,
    /// The `farhaul` program.
    pub program: PathBuf,
    /// Fetches of each kind; more than one gives medians.
    pub repeat: u32,
    /// Seed of the link's losses.
    pub seed: u64,
    /// Where `demo.json` goes.
    pub out: PathBuf,
    /// Set from outside to end early.
    pub stop: Arc<AtomicBool>,
}

/// What came of it.
#[derive(Debug)]
pub struct Demo {
    /// The document that was written.
    pub measurement: Measurement,
    /// The same for people, with what to try next.
    pub text: String,
}

/// Runs it and writes `demo.json`. The lab is gone afterwards, whatever happens.
pub fn run(options: &DemoOptions) -> Result<Demo, LabError> {
    for (program, package) in [
        ("curl", "curl"),
        ("smbclient", "smbclient"),
        ("ss", "iproute2"),
    ] {
        require_program(program, package)?;
    }
    let mut measurement = Measurement::new("demo", plan(options.repeat), options.seed);
    let fetches = WORKLOADS.len() * options.repeat as usize;
    let mut run = Run {
        progress: Progress::new(2 + 2 * fetches),
        series: Vec::new(),
        link: Value::Null,
        options,
    };
    let gateway_trouble = match run.all() {
        // A signal ends other programs, too; what they then say is not the cause.
        Err(_) if options.stop.load(Ordering::Relaxed) => return Err(LabError::Interrupted),
        outcome => outcome?,
    };
    measurement.rows = results::rows(&run.series);
    measurement.rows.extend(results::link_rows(&run.link));
    let path = measurement.write(&options.out)?;
    let mut text = results::summary(&measurement, &run.series, options.repeat, Screen::stdout());
    if !gateway_trouble.is_empty() {
        text += &format!("\n{gateway_trouble}\n");
    }
    text += &format!(
        "\nall numbers: {}\n{}",
        path.display(),
        next_steps(&options.program)
    );
    Ok(Demo { measurement, text })
}

fn plan(repeat: u32) -> String {
    let what: Vec<_> = WORKLOADS
        .iter()
        .map(|workload| format!("{} ({})", workload.title, workload.client_words()))
        .collect();
    format!(
        "link {LINK} in both directions; end hosts {CONGESTION_CONTROL}; fresh random files; {}; \
         {repeat} time(s) direct with the gateways stopped, then {repeat} time(s) through the pair; \
         time is that of the client program from start to end",
        what.join(", ")
    )
}

fn next_steps(program: &Path) -> String {
    // As short as it can be typed from here.
    let here = std::env::current_dir().unwrap_or_default();
    let farhaul = program.strip_prefix(&here).unwrap_or(program).display();
    format!(
        "\ntry next, as root:\n\
         \x20 {farhaul} lab up --gateways --link \"t1 delay 250ms loss 2%\"   another link, gateways running\n\
         \x20 {farhaul} lab exec client -- ping -c 3 10.2.0.2             anything, in client or server\n\
         \x20 {farhaul} lab down\n"
    )
}

/// One run in progress.
struct Run<'a> {
    progress: Progress,
    series: Vec<Series>,
    /// The emulator's counters at the end.
    link: Value,
    options: &'a DemoOptions,
}

impl Run<'_> {
    /// Everything; returns what to say about gateways that did not do their part.
    fn all(&mut self) -> Result<String, LabError> {
        self.progress.begin("lab, nginx and smbd");
        let mut lab = Lab::up(&LabOptions {
            name: self.options.name.clone(),
            link: Some(LINK.to_owned()),
            seed: self.options.seed,
            congestion_control: CONGESTION_CONTROL.to_owned(),
            program: self.options.program.clone(),
        })?;
        lab.interrupt_by(Arc::clone(&self.options.stop));
        let folders = servers::start(&mut lab)?;
        self.check_stop()?;
        self.progress.end("up");
        self.phase(&lab, &folders, Config::Direct)?;
        self.progress.begin("gateways");
        self.link = lab.link_stats()?;
        if let Err(error) = lab.gateways_up(&GatewayOverrides::default()) {
            if matches!(error, LabError::Interrupted) {
                return Err(error);
            }
            self.progress.end("failed");
            return Ok(error.to_string());
        }
        self.progress.end("up");
        self.phase(&lab, &folders, Config::Accelerated)?;
        self.link = lab.link_stats()?;
        let is_good = |one: &Series| one.config == Config::Direct || one.problem().is_none();
        let trouble = match self.series.iter().all(is_good) {
            true => String::new(),
            false => Side::BOTH.map(|side| lab.gateway_log_tail(side)).join("\n"),
        };
        lab.down()?;
        Ok(trouble)
    }

    fn phase(&mut self, lab: &Lab, folders: &Folders, config: Config) -> Result<(), LabError> {
        for workload in WORKLOADS {
            let before = carried(lab, config);
            let outcomes = (0..self.options.repeat)
                .map(|_| self.one(lab, folders, workload, config))
                .collect::<Result<Vec<_>, _>>()?;
            let tunnel_bytes = carried(lab, config)
                .zip(before)
                .map(|(after, before)| after - before);
            self.series.push(Series {
                workload: *workload,
                config,
                outcomes,
                tunnel_bytes,
            });
        }
        Ok(())
    }

    fn one(
        &mut self,
        lab: &Lab,
        folders: &Folders,
        workload: &Workload,
        config: Config,
    ) -> Result<Outcome, LabError> {
        self.check_stop()?;
        self.progress
            .begin(&format!("{}: {}", config.word(), workload.title));
        let outcome = fetch(
            lab,
            folders,
            workload,
            &mut self.progress,
            &self.options.stop,
        )?;
        match &outcome.error {
            None => self.progress.end(&format!("{:.2} s", outcome.seconds)),
            Some(error) => self.progress.end(&format!("failed: {error}")),
        }
        Ok(outcome)
    }

    fn check_stop(&self) -> Result<(), LabError> {
        match self.options.stop.load(Ordering::Relaxed) {
            true => Err(LabError::Interrupted),
            false => Ok(()),
        }
    }
}

/// Payload bytes the client's gateway has received through the tunnel.
fn carried(lab: &Lab, config: Config) -> Option<u64> {
    if config == Config::Direct {
        return None;
    }
    let status = lab.gateway_status(Side::A).ok()?;
    let peers = status["peers"].as_array()?;
    peers
        .iter()
        .map(|peer| peer["payload_received_bytes"].as_u64())
        .sum()
}
