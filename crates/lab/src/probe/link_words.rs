//! The measured circuit as a profile that `farhaul link` can replay.

use std::fmt::Write as _;

use farhaul_link::LinkProfile;

use super::diagnose::{Fault, Way};
use super::report::Observations;
use super::tcp_test::Direction;

/// In the words of `farhaul link`; `None` where too little was seen.
pub(crate) fn of(seen: &Observations) -> Option<String> {
    let forward = words(seen, Direction::Up)?;
    let backward = words(seen, Direction::Down)?;
    let text = format!("forward {forward} backward {backward}");
    let profile = LinkProfile::parse(&text).ok()?;
    Some(profile.to_string())
}

fn words(seen: &Observations, direction: Direction) -> Option<String> {
    let way = Way::of(seen, direction)?;
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
            // The latest of them was held back for the whole time.
            let (share, hold_us) = (quiet.reordering() * 100.0, quiet.count.delays.max_us.max(1));
            let _ = write!(text, " reorder {share:.4}% {hold_us}us");
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
