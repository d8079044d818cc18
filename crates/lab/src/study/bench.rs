//! What copies are run on: labs on this machine, each with its servers and its captures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::StudyOptions;
use super::clock::Ahead;
use super::copy::{Copied, Copying, Files};
use super::judge::{Ended, Run, judge};
use super::processors::{Processors, apart};
use super::rows::Sample;
use super::said;
use super::sockets::Sockets;
use crate::capture::{Captured, Captures, Speakers, at_server, crossed, shown};
use crate::demo::progress::Progress;
use crate::demo::servers::{Folders, SMB_PORT, start_files};
use crate::deployment::Lab;
use crate::emulate::{ControlClient, LinkStats};
use crate::error::LabError;
use crate::gateways::GatewayOverrides;
use crate::plan::{Cell, Config, Plan};
use crate::topology::{CLIENT, LabOptions, SERVER, Side};

/// What the share says besides: everybody may write, as the folder's owner, and the old dialect is spoken.
const SHARE: &str = "read only = no\nforce user = root\n[global]\nserver min protocol = NT1\n";
/// A tunnel that has come up sends a first train of nothing within so many round trips. It is no part of a copy, and what crosses
/// before one is held against the gateways.
const SOUGHT_TRIPS: f64 = 4.0;
/// The kernel's own receive buffers.
const GROWING_BUFFERS: &str = "4096 131072 6291456";

/// What runs the copies of one lane. Tests have one that runs nothing.
pub(super) trait Bench {
    /// Is ready for cells that have this one's link and client.
    fn up(&mut self, cell: &Cell) -> Result<(), LabError>;
    /// Runs a cell's client once.
    fn copy(&mut self, cell: &Cell, progress: &mut Progress) -> Result<Sample, LabError>;
    /// Takes everything away.
    fn down(&mut self) -> Result<(), LabError>;
}

/// A lab for each link.
pub(super) struct LabBench<'a> {
    plan: &'a Plan,
    study: &'a StudyOptions,
    /// Of its labs.
    name: String,
    /// Of all lanes.
    copies: &'a AtomicUsize,
    processors: Option<Processors>,
    up: Option<(Lab, Folders)>,
}

impl<'a> LabBench<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        study: &'a StudyOptions,
        name: String,
        copies: &'a AtomicUsize,
    ) -> Self {
        Self {
            plan,
            study,
            name,
            copies,
            processors: Processors::of_thread(),
            up: None,
        }
    }
}

impl Bench for LabBench<'_> {
    fn up(&mut self, cell: &Cell) -> Result<(), LabError> {
        let mut options = LabOptions::new(&self.name, &self.study.program);
        options.link = Some(cell.circuit.words.clone());
        options.seed = self.plan.seed;
        options
            .congestion_control
            .clone_from(&self.plan.congestion_control);
        let (lab, folders) = apart(self.processors.as_ref(), || {
            let mut lab = Lab::up(&options)?;
            lab.interrupt_by(Arc::clone(&self.study.stop));
            let folders = start_files(&mut lab, SHARE)?;
            Ok::<_, LabError>((lab, folders))
        })?;
        let buffers = match cell.receive_buffer_bytes {
            Some(bytes) => format!("4096 {bytes} {bytes}"),
            None => GROWING_BUFFERS.to_owned(),
        };
        lab.client()?.set(&[("ipv4/tcp_rmem", &buffers)])?;
        self.up = Some((lab, folders));
        Ok(())
    }

    fn copy(&mut self, cell: &Cell, progress: &mut Progress) -> Result<Sample, LabError> {
        let (lab, folders) = self.up.as_mut().ok_or_else(|| LabError::Invalid {
            what: "a copy".to_owned(),
            why: "there is no lab for it".to_owned(),
        })?;
        let processors = self.processors.as_ref();
        let copy = self.copies.fetch_add(1, Ordering::Relaxed) + 1;
        let clock = Ahead::now();
        let (files, captures) = apart(processors, || {
            gateways(lab, cell.config)?;
            if let Some(processors) = processors {
                processors.share_out(lab);
            }
            if cell.config.has_gateways() {
                sleep(Duration::from_secs_f64(cell.circuit.rtt_s() * SOUGHT_TRIPS));
            }
            let files = Files::make(cell, folders, copy)?;
            Ok::<_, LabError>((files, Captures::start(lab)?))
        })?;
        // What captures and their files take of the machine is none of the copy.
        link_stats(lab, true)?;
        let copy = Copying {
            lab,
            folders,
            plan: self.plan,
            cell,
            files: &files,
            stop: &self.study.stop,
        };
        let copied = apart(processors, || copy.run(progress))?;
        let stats = link_stats(lab, false)?;
        apart(processors, || {
            let captured = captures.finish(lab)?;
            let clock_set_ms = Ahead::now().set_since_ms(clock);
            let run = seen(&files, &copied, &captured, &stats, clock_set_ms)?;
            let sample = sampled(lab, self.plan, cell, run, copied.sockets, &files);
            files.remove(folders);
            Ok(sample)
        })
    }

    fn down(&mut self) -> Result<(), LabError> {
        match self.up.take() {
            Some((lab, _)) => lab.down(),
            None => Ok(()),
        }
    }
}

/// What there is to be judged of a copy.
fn seen(
    files: &Files,
    copied: &Copied,
    captured: &Captured,
    stats: &LinkStats,
    clock_set_ms: f64,
) -> Result<Run, LabError> {
    let server = (SERVER, SMB_PORT);
    let speakers = Speakers {
        client: CLIENT,
        server,
        gateways: Side::BOTH.map(Side::wan_address),
    };
    let no_capture = || LabError::Invalid {
        what: "what tcpdump has written".to_owned(),
        why: "not a pcap file with nanoseconds".to_owned(),
    };
    let late_ns = stats
        .forward
        .lateness_max_ns
        .max(stats.backward.lateness_max_ns);
    let is_whole = copied.ended == Ended::Whole;
    Ok(Run {
        is_equal: files.is_equal(is_whole),
        files_done: files.done(is_whole),
        ended: copied.ended.clone(),
        reached: copied.reached,
        shown: shown(&captured.client, CLIENT, server).ok_or_else(no_capture)?,
        crossed: crossed(&captured.wan, speakers).ok_or_else(no_capture)?,
        at_server: at_server(&captured.server, CLIENT, server).ok_or_else(no_capture)?,
        missed: captured.missed,
        lateness_ms: late_ns as f64 / 1e6,
        lost_frames: stats.forward.drops.unasked() + stats.backward.drops.unasked(),
        clock_set_ms,
    })
}

fn sampled(
    lab: &Lab,
    plan: &Plan,
    cell: &Cell,
    run: Run,
    sockets: Sockets,
    files: &Files,
) -> Sample {
    let mut verdict = judge(cell, &run);
    verdict
        .faults
        .extend(sockets.wrong(&plan.congestion_control));
    Sample {
        verdict,
        run,
        sockets,
        discarded: Vec::new(),
        sha256: files.sha256(),
        said: match cell.config.has_gateways() {
            true => said::of(lab),
            false => serde_json::Value::Null,
        },
    }
}

/// Ends the gateways that run and starts those of a configuration, which have seen nothing.
fn gateways(lab: &mut Lab, config: Config) -> Result<(), LabError> {
    lab.gateways_down()?;
    match config.has_gateways() {
        true => lab.gateways_up(&GatewayOverrides::both(config.gateway_text())?),
        false => Ok(()),
    }
}

/// The link's counters since they were last started anew.
fn link_stats(lab: &Lab, is_new: bool) -> Result<LinkStats, LabError> {
    let stats = ControlClient::connect(&lab.link_socket()).and_then(|mut link| link.stats(is_new));
    stats.map_err(|error| LabError::Invalid {
        what: "the link emulator".to_owned(),
        why: error.to_string(),
    })
}
