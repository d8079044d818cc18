//! `farhaul lab tunnel`: the tunnel on real packets, beside the kernel's own
//! controllers on the same link in the same run.
//!
//! One bulk connection from the client to the server, read at the receiver by
//! iperf3: first end to end with CUBIC and with BBR and no gateways, then
//! through the pair with CUBIC on both LANs. Then one of the kernel's
//! connections past the gateways beside one through them: who gets what. And both
//! on a cable of 1 Gbit/s without any distance, and on a bare one: what the
//! gateways' processors carry, and at what cost.

mod bare;
mod cell;
mod flow;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::demo::progress::Progress;
use crate::deployment::{Lab, require_program};
use crate::error::LabError;
use crate::gateways::GatewayOverrides;
use crate::measurement::{Measurement, Row};
use crate::topology::{LabOptions, Side};

use bare::Bare;
pub use cell::Cell;
use cell::{Company, First};
use flow::{Arrived, Flow, Way, run_flows};
pub use report::table;

/// The kernel's controllers it is held against.
const KERNEL: [&str; 2] = ["cubic", "bbr"];

/// How the measurement is run.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// Name of its labs.
    pub name: String,
    /// The `farhaul` program.
    pub program: PathBuf,
    /// Only cells whose name contains this.
    pub only: Option<String>,
    /// Seconds measured of every connection, after its warm-up.
    pub seconds: u64,
    /// Seed of the links' losses.
    pub seed: u64,
    /// Where `tunnel-live.json` goes.
    pub out: PathBuf,
    /// Set from outside to end early.
    pub stop: Arc<AtomicBool>,
}

/// Runs it and writes `tunnel-live.json`.
pub fn run(options: &LiveOptions) -> Result<Measurement, LabError> {
    require_program("iperf3", "iperf3")?;
    let is_wanted = |name: &str| {
        let only = options.only.as_deref().unwrap_or_default();
        name.contains(only)
    };
    let cells: Vec<_> = Cell::all().filter(|cell| is_wanted(&cell.name())).collect();
    let company: Vec<_> = Company::all()
        .filter(|one| is_wanted(&one.name()))
        .collect();
    let bare: Vec<_> = Bare::all().filter(|one| is_wanted(&one.name())).collect();
    let mut live = Live {
        options,
        progress: Progress::new((cells.len() + bare.len()) * 3 + company.len()),
        measurement: Measurement::new("tunnel-live", plan(options.seconds), options.seed),
    };
    for cell in &cells {
        live.alone(cell)?;
    }
    for one in &company {
        live.beside(one)?;
    }
    for one in bare {
        live.bare(one)?;
    }
    live.measurement.write(&options.out)?;
    Ok(live.measurement)
}

fn plan(seconds: u64) -> String {
    format!(
        "one iperf3 connection from client to server, read at the receiver for {seconds} s after 10 s \
         or 20 round trips; end to end with cubic and with bbr, then through the pair, which is told \
         nothing about the link; queue of 100 ms; then one connection past the gateways beside one \
         through them for 60 s, or a second one of CUBIC in its place, shares of the last 50 s in which \
         both run; then the same as alone on a \
         cable between the gateways that the kernel shapes to 1 Gbit/s (tbf, 20 ms of queue) and on \
         one it does not, after 3 s, with what each gateway's process uses (/proc/PID/stat)"
    )
}

/// A link that connections are measured on one after the other.
struct Link {
    name: String,
    /// The most it carries of an application's bytes, where that is known.
    limit_mbit: Option<f64>,
}

struct Live<'a> {
    options: &'a LiveOptions,
    progress: Progress,
    measurement: Measurement,
}

impl Live<'_> {
    /// One link: cubic, bbr, the pair.
    fn alone(&mut self, cell: &Cell) -> Result<(), LabError> {
        let mut lab = self.lab(Some(cell.words()))?;
        let link = Link {
            name: cell.name(),
            limit_mbit: Some(cell.limit_mbit()),
        };
        let warm_up_s = cell.warm_up_s();
        let seconds = warm_up_s + self.options.seconds;
        let mut best = 0f64;
        for controller in KERNEL {
            let flow = Flow::new(Way::Tunnel, controller, 0, seconds);
            let mbit = self.one(&lab, &link, controller, flow, warm_up_s)?;
            let mbit = mbit.map(|(mbit, _)| mbit);
            best = best.max(mbit.unwrap_or(0.0));
            if controller == "cubic" {
                cell.note_cubic(mbit);
            }
        }
        lab.gateways_up(&GatewayOverrides::default())?;
        let flow = Flow::new(Way::Tunnel, "cubic", 0, seconds);
        let Some((mbit, _)) = self.one(&lab, &link, "farhaul", flow, warm_up_s)? else {
            return lab.down();
        };
        let rows = &mut self.measurement.rows;
        rows.extend(cell.verdicts(mbit, best));
        lab.down()
    }

    /// A cable: cubic, bbr, the pair and what it costs.
    fn bare(&mut self, bare: Bare) -> Result<(), LabError> {
        let mut lab = self.lab(None)?;
        bare.shape(&lab)?;
        let link = Link {
            name: bare.name(),
            limit_mbit: bare.limit_mbit(),
        };
        let seconds = Bare::WARM_UP_S + self.options.seconds;
        let mut best = 0f64;
        for controller in KERNEL {
            let flow = Flow::new(Way::Tunnel, controller, 0, seconds);
            let arrived = self.one(&lab, &link, controller, flow, Bare::WARM_UP_S)?;
            best = best.max(arrived.map_or(0.0, |(mbit, _)| mbit));
        }
        lab.gateways_up(&GatewayOverrides::default())?;
        let cpu_s = |lab: &Lab| Side::BOTH.map(|side| lab.gateway_cpu_s(side).unwrap_or(f64::NAN));
        let before = cpu_s(&lab);
        let flow = Flow::new(Way::Tunnel, "cubic", 0, seconds);
        if let Some((mbit, arrived)) = self.one(&lab, &link, "farhaul", flow, Bare::WARM_UP_S)? {
            let rows = &mut self.measurement.rows;
            rows.push(bare.verdict(mbit, best));
            let used = Side::BOTH
                .into_iter()
                .zip(cpu_s(&lab).into_iter().zip(before));
            rows.extend(used.map(|(side, (now, then))| bare.cpu(side, now - then, arrived.gbit())));
        }
        lab.down()
    }

    /// One connection; `None` where it failed, which is a row as well.
    fn one(
        &mut self,
        lab: &Lab,
        link: &Link,
        config: &str,
        flow: Flow,
        warm_up_s: u64,
    ) -> Result<Option<(f64, Arrived)>, LabError> {
        self.check_stop()?;
        let name = &link.name;
        self.progress.begin(&format!("{name}: {config}"));
        let end_s = flow.seconds;
        let result = run_flows(lab, &[flow], &self.options.stop);
        let outcome = match result {
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => Err(error.to_string()),
            Ok(flows) => flows.into_iter().next().ok_or("no result".to_owned()),
        };
        let (row, arrived) = match outcome {
            Ok(arrived) => {
                let mbit = arrived.mbit_per_s(warm_up_s, end_s);
                self.progress.end(&format!("{mbit:.2} Mbit/s"));
                let row = Row::of(name, config, "goodput", "Mbit/s", mbit)
                    .detail("controller_of_hosts", arrived.controller.clone());
                let row = match link.limit_mbit {
                    Some(limit) => row.limit(limit),
                    None => row,
                };
                (row, Some((mbit, arrived)))
            }
            Err(error) => {
                self.progress.end(&format!("failed: {error}"));
                let row = Row::failed(name, config, "goodput", "Mbit/s", error);
                (row, None)
            }
        };
        self.measurement.rows.push(row);
        Ok(arrived)
    }

    /// One connection past the gateways beside one through them, or two of the kernel's.
    fn beside(&mut self, company: &Company) -> Result<(), LabError> {
        self.check_stop()?;
        self.progress.begin(&company.name());
        let mut lab = self.lab(Some(company.words()))?;
        if company.first != First::BothTheirs {
            lab.gateways_up(&GatewayOverrides::sides(Company::RULE, "")?)?;
        }
        let (ours_s, theirs_s) = match company.first {
            First::Ours => (0, Company::LATER_S),
            First::Theirs | First::BothTheirs => (Company::LATER_S, 0),
        };
        let end_s = Company::LATER_S + Company::TOGETHER_S;
        let ours = Flow::new(Way::Tunnel, company.ours(), ours_s, end_s - ours_s);
        let theirs = Flow::new(Way::Past, company.controller, theirs_s, end_s - theirs_s);
        let flows = run_flows(&lab, &[ours, theirs], &self.options.stop);
        let row = match flows {
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => {
                self.progress.end(&format!("failed: {error}"));
                vec![Row::failed(
                    &company.name(),
                    "farhaul",
                    "share",
                    "",
                    error.to_string(),
                )]
            }
            Ok(flows) => {
                let from_s = end_s - Company::COUNTED_S;
                let mut mbit = [0.0; 2];
                for (mbit, (flow, start_s)) in
                    mbit.iter_mut().zip(flows.iter().zip([ours_s, theirs_s]))
                {
                    *mbit = flow.mbit_per_s(from_s - start_s, end_s - start_s);
                }
                let [ours, theirs] = mbit;
                let share = ours / (ours + theirs);
                self.progress.end(&format!("share {share:.2}"));
                company.verdicts(ours, theirs)
            }
        };
        self.measurement.rows.extend(row);
        lab.down()
    }

    /// A lab with this link, or with a cable.
    fn lab(&self, words: Option<String>) -> Result<Lab, LabError> {
        let mut options = LabOptions::new(&self.options.name, &self.options.program);
        options.link = words;
        options.seed = self.options.seed;
        let mut lab = Lab::up(&options)?;
        lab.interrupt_by(Arc::clone(&self.options.stop));
        Ok(lab)
    }

    fn check_stop(&self) -> Result<(), LabError> {
        match self.options.stop.load(Ordering::Relaxed) {
            true => Err(LabError::Interrupted),
            false => Ok(()),
        }
    }
}
