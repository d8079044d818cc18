//! What a gateway with a disk is at, as its own status says, and how to wait for a moment at which it is at one thing. It is asked
//! every millisecond or two, so what is said of a moment was so right before it.

use std::collections::BTreeMap;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use serde_json::Value;

use crate::world::World;

/// A gateway that is not at the wanted thing after so long is killed at another.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(1);

/// What a gateway is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It reduces or restores what passes, and does nothing with its disk.
    Reducing,
    /// It seals segments and writes them.
    Writing,
    /// It makes them durable, or has just done so and says it.
    Syncing,
    /// It throws segments away for new ones.
    Evicting,
    /// It reads segments back.
    ReadingBack,
    /// Nothing of all that.
    Idle,
}

impl Phase {
    /// Those that can be waited for.
    pub const WANTED: [Self; 5] = [
        Self::Writing,
        Self::Syncing,
        Self::Evicting,
        Self::ReadingBack,
        Self::Reducing,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::Reducing => "reducing only",
            Self::Writing => "sealing and writing",
            Self::Syncing => "making durable",
            Self::Evicting => "throwing away",
            Self::ReadingBack => "reading back",
            Self::Idle => "nothing of these",
        }
    }
}

/// A figure of what a gateway does for its only peer.
pub fn figure(status: &Value, pointer: &str) -> u64 {
    let figure = status.pointer(&format!("/peers/0/reduction{pointer}"));
    figure.and_then(Value::as_u64).unwrap_or(0)
}

/// What went on between two looks, the shortest first.
fn going_on(before: &Value, now: &Value) -> Vec<Phase> {
    let moved = |pointer| figure(now, pointer) > figure(before, pointer);
    let syncing = now.pointer("/peers/0/reduction/disk/syncing");
    let is_syncing = syncing.and_then(Value::as_bool) == Some(true);
    let is_unsynced = figure(now, "/disk/unsynced_segments") > 0;
    let with_disk = [
        (Phase::Syncing, is_syncing || moved("/disk/synced_groups")),
        (Phase::Evicting, moved("/disk/evicted_segments")),
        (
            Phase::Writing,
            moved("/disk/saved_bytes") || (is_unsynced && !is_syncing),
        ),
        (Phase::ReadingBack, moved("/disk/loaded_segments")),
    ];
    let on: Vec<Phase> = with_disk
        .into_iter()
        .filter_map(|(phase, is_on)| is_on.then_some(phase))
        .collect();
    match on.is_empty() {
        true if moved("/in_bytes") || moved("/restored_bytes") => vec![Phase::Reducing],
        true => vec![Phase::Idle],
        false => on,
    }
}

/// What gateways were at, and how well that is known.
pub struct Moment {
    /// One for each gateway.
    pub phases: Vec<Phase>,
    is_wanted: bool,
    /// From the look before to after this one.
    apart: Duration,
}

/// Waits until one of the gateways is at what is wanted, or time is up.
pub fn wait_for(world: &World, sides: &[Side], wanted: Phase) -> Moment {
    let look = || -> Vec<Value> { sides.iter().map(|&side| world.status_now(side)).collect() };
    let start = Instant::now();
    let (mut looked, mut before) = (start, look());
    loop {
        sleep(PAUSE);
        let looks = Instant::now();
        let now = look();
        let on = before.iter().zip(&now);
        let on: Vec<_> = on.map(|(before, now)| going_on(before, now)).collect();
        let is_wanted = on.iter().any(|on| on.contains(&wanted));
        if is_wanted || start.elapsed() > PATIENCE {
            let of_side = |on: &Vec<Phase>| match on.contains(&wanted) {
                true => wanted,
                false => on[0],
            };
            return Moment {
                phases: on.iter().map(of_side).collect(),
                is_wanted,
                apart: looked.elapsed(),
            };
        }
        (looked, before) = (looks, now);
    }
}

/// What gateways were at when they were killed: by that, and by which were killed with them.
#[derive(Default)]
pub struct Histogram {
    counts: BTreeMap<Phase, BTreeMap<String, usize>>,
    unmet: BTreeMap<Phase, usize>,
    apart: Vec<Duration>,
}

impl Histogram {
    pub fn add(&mut self, killed: &[Side], wanted: Phase, moment: &Moment) {
        for (side, phase) in killed.iter().zip(&moment.phases) {
            let what = match killed {
                [_] => format!("{side:?} alone"),
                _ => format!("{side:?} with the other"),
            };
            let counts = self.counts.entry(*phase).or_default();
            *counts.entry(what).or_default() += 1;
        }
        *self.unmet.entry(wanted).or_default() += usize::from(!moment.is_wanted);
        self.apart.push(moment.apart);
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.counts.values().flat_map(BTreeMap::values).sum();
        for (phase, counts) in &self.counts {
            let count: usize = counts.values().sum();
            let share = 100 * count / all.max(1);
            writeln!(f, "{:<20} {count:>4} {share:>3} %", phase.words())?;
            for (killed, count) in counts {
                writeln!(f, "    {killed:<17} {count:>3} {}", "#".repeat(*count))?;
            }
        }
        for (phase, count) in self.unmet.iter().filter(|(_, count)| **count > 0) {
            let words = phase.words();
            writeln!(
                f,
                "{count} times a gateway was to be killed at {words} and was not at it in {PATIENCE:?}"
            )?;
        }
        let mut apart = self.apart.clone();
        apart.sort();
        match (apart.get(apart.len() / 2), apart.last()) {
            (Some(middle), Some(most)) => {
                writeln!(
                    f,
                    "what they were at was seen within {middle:.1?}, at most {most:.1?}, before"
                )
            }
            _ => Ok(()),
        }
    }
}
