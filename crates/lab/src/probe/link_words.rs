//! The measured circuit as a profile that `farhaul link` can replay.

use std::fmt::Write as _;

use farhaul_link::LinkProfile;

use super::diagnose::{Fault, Way};
use super::latency::Latency;
use super::observe::FlowWay;
use super::report::Observations;
use super::tcp_test::Direction;

/// In the words of `farhaul link`; `None` where too little was seen.
pub(crate) fn of(seen: &Observations) -> Option<String> {
    let up = Way::of(seen, Direction::Up)?;
    let down = Way::of(seen, Direction::Down)?;
    // Echoes of which one way leaps come early, too.
    let jitter_us = match [&up, &down].into_iter().any(has_leaps) {
        true => None,
        false => seen.idle.as_ref().and_then(jitter_us),
    };
    let forward = words(&up, jitter_us)?;
    let backward = words(&down, jitter_us)?;
    let text = format!("forward {forward} backward {backward}");
    let profile = LinkProfile::parse(&text).ok()?;
    Some(profile.to_string())
}

fn words(way: &Way<'_>, jitter_us: Option<f64>) -> Option<String> {
    let frame_share = way.frame_share()?;
    let capacity = way.capacity_bit_per_s?;
    let faults = way.faults();
    let has = |fault| faults.iter().any(|finding| finding.fault == fault);
    let is_policed = has(Fault::Policer);
    let line = match is_policed {
        true => way.line_bit_per_s.unwrap_or(capacity),
        false => capacity,
    };
    let delay_us = way.idle_rtt_us / 2.0;
    let mut text = format!("rate {:.0}bit delay {delay_us:.0}us", line * frame_share);
    if let Some(jitter_us) = jitter_us {
        let _ = write!(text, " jitter {jitter_us:.0}us");
    }
    // Writing to a String cannot fail.
    if is_policed {
        let burst = way.train_bytes().unwrap_or(64_000).max(3_000);
        let _ = write!(text, " policer {:.0}bit {burst}b", capacity * frame_share);
    } else if let Some(queue_us) = way.queue_us() {
        let _ = write!(text, " queue {queue_us:.0}us");
    }
    if let Some(loss) = way.wire_loss() {
        let _ = write!(text, " loss {:.4}%", loss * 100.0);
    }
    if let Some(quiet) = &way.quiet {
        if has(Fault::Reordering) {
            let _ = write!(
                text,
                " reorder {}",
                reordering(quiet, jitter_us, way.idle_rtt_us)
            );
        }
        if way.duplicates().is_some() {
            let share = quiet.count.duplicates as f64 / (quiet.sent as f64).max(1.0);
            let _ = write!(text, " duplicate {:.4}%", share.min(1.0) * 100.0);
        }
    }
    if let Some(mtu) = way.mtu_bytes.filter(|_| way.is_black_hole) {
        let _ = write!(text, " mtu {mtu}");
    }
    Some(text)
}

/// Of each direction, evenly spread, where echoes show more than what a busy host
/// does to them.
fn jitter_us(idle: &Latency) -> Option<f64> {
    const SPREAD_US_MIN: u64 = 2_000;
    const SHARE_MIN: f64 = 0.1;
    /// The least of two dozen sums of two such delays lies so far below their middle.
    const SPREAD_BY_JITTER: f64 = 1.43;
    let middle_us = idle.p50_us?;
    let spread_us = middle_us.checked_sub(idle.min_us?)?;
    let is_much = spread_us >= SPREAD_US_MIN && spread_us as f64 >= middle_us as f64 * SHARE_MIN;
    is_much.then_some((spread_us as f64 / SPREAD_BY_JITTER).min(middle_us as f64 / 2.0))
}

fn has_leaps(way: &Way<'_>) -> bool {
    let quiet = way.quiet.as_ref();
    quiet.is_some_and(|quiet| leaps(quiet, way.idle_rtt_us))
}

/// Whether out of order means that a few leap over all that wait, not that a few are
/// held back: nearly all take much longer than the fastest, and about as long.
fn leaps(quiet: &FlowWay, idle_rtt_us: f64) -> bool {
    const SPREAD_MAX: f64 = 1.25;
    const WAIT_BY_RTT: f64 = 0.125;
    let (p50_us, p95_us) = (
        quiet.count.delays.p50_us as f64,
        quiet.count.delays.p95_us as f64,
    );
    quiet.count.reordered > 0 && p95_us <= p50_us * SPREAD_MAX && p50_us > idle_rtt_us * WAIT_BY_RTT
}

/// Words behind `reorder`. The delay of the profile is the median's: with leaps it
/// has what the others wait already.
fn reordering(quiet: &FlowWay, jitter_us: Option<f64>, idle_rtt_us: f64) -> String {
    let share = quiet.reordering();
    if leaps(quiet, idle_rtt_us) {
        // Each that leaps puts all those out of order that it passed.
        let passed = quiet.count.reorder_places_max.max(1) as f64;
        let leaping = 1.0 - (1.0 - share.min(0.999)).powf(1.0 / passed);
        return format!("{:.4}%", leaping * 100.0);
    }
    match jitter_us {
        Some(_) => "jitter".to_owned(),
        // The latest of them was held back for the whole time.
        None => format!(
            "{:.4}% {}us",
            share * 100.0,
            quiet.count.delays.max_us.max(1)
        ),
    }
}
