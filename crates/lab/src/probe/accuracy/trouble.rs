//! Faults that are not settings: a program short of processor time, a line in
//! half duplex.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::group::Group;
use super::plant::Circuit;
use crate::deployment::Lab;
use crate::emulate::ControlClient;
use crate::error::{During, LabError};

/// Control group hierarchy of processor time, version 1 and 2.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
const PERIOD_US: f64 = 20_000.0;

/// What disturbs a run; ends with it.
#[derive(Debug)]
pub(super) struct Trouble {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _group: Option<Group>,
}

impl Trouble {
    pub(super) fn begin(circuit: &Circuit, lab: &Lab, server: i32) -> Result<Self, LabError> {
        let group = circuit
            .server_cpu
            .map(|share| limit_processor(lab.sandbox().name(), server, share));
        let mut trouble = Self {
            stop: Arc::default(),
            thread: None,
            _group: group.transpose()?,
        };
        if let Some(loss) = circuit.duplex_loss {
            let path = lab.link_socket();
            let control = ControlClient::connect(&path).map_err(|error| LabError::Invalid {
                what: path.display().to_string(),
                why: error.to_string(),
            })?;
            let stop = Arc::clone(&trouble.stop);
            trouble.thread = Some(std::thread::spawn(move || {
                half_duplex(control, loss, &stop)
            }));
        }
        Ok(trouble)
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Puts a process into a group of its own that may run for a share of the time.
fn limit_processor(name: &str, process: i32, share: f64) -> Result<Group, LabError> {
    let quota_us = (PERIOD_US * share).max(1_000.0);
    let period_us = quota_us / share;
    let mut trouble = None;
    for root in GROUPS.map(Path::new) {
        let made = Group::make(root, name).and_then(|group| {
            match root.ends_with("cpu") {
                true => group
                    .write("cpu.cfs_period_us", &format!("{period_us:.0}"))
                    .and_then(|()| group.write("cpu.cfs_quota_us", &format!("{quota_us:.0}"))),
                false => group.write("cpu.max", &format!("{quota_us:.0} {period_us:.0}")),
            }?;
            group.add(process)?;
            Ok(group)
        });
        match made {
            Ok(group) => return Ok(group),
            Err(error) => trouble = Some(error),
        }
    }
    Err(trouble.unwrap_or_else(|| std::io::ErrorKind::NotFound.into()))
        .during(|| "limiting the server's processor time".to_owned())
}

/// What a half-duplex interface does to its full-duplex neighbour: a frame is
/// lost in proportion to how busy the other direction is.
fn half_duplex(mut control: ControlClient, loss_full: f64, stop: &AtomicBool) {
    const EVERY: Duration = Duration::from_millis(20);
    let mut before = None;
    while !stop.load(Ordering::Relaxed) {
        let Ok(stats) = control.stats(false) else {
            return;
        };
        let now = Instant::now();
        let bytes = [stats.forward.bytes_out, stats.backward.bytes_out];
        let rates = [
            stats.forward.requested_bit_per_s,
            stats.backward.requested_bit_per_s,
        ];
        if let Some((then, earlier)) = before.replace((now, bytes)) {
            let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
            let load = |way: usize| {
                let [now, before] =
                    [bytes, earlier].map(|all: [u64; 2]| all.get(way).copied().unwrap_or(0));
                let rate = rates.get(way).copied().flatten().unwrap_or(1) as f64;
                (now.saturating_sub(before) as f64 * 8.0 / seconds / rate).min(1.0)
            };
            // Acknowledgements alone make no load to speak of.
            let loss = |load: f64| {
                if load < 0.3 {
                    0.0
                } else {
                    loss_full * load * 100.0
                }
            };
            let words = format!(
                "forward loss {:.3}% backward loss {:.3}%",
                loss(load(1)),
                loss(load(0))
            );
            if control.set(&words).is_err() {
                return;
            }
        }
        sleep(EVERY);
    }
}
