//! From what was measured to what `peer.link` should say.

use std::fmt::Write as _;

use farhaul_link::LinkProfile;

use crate::admin::status::{MeasuredStatus, MeasuredWay};

/// A loss below is no property of a link, above it `farhaul link` can replay it.
const LOSS_MIN: f64 = 1e-4;
/// A tunnel that is told a rate sends so much of it: it cannot find more.
const TOLD_SHARE: f64 = 0.95;
/// Directions this much apart are told apart.
const APART: f64 = 0.05;

/// Adds the proposal, or why there is none.
pub(super) fn conclude(measured: &mut MeasuredStatus, is_bound: bool, told_bit_per_s: Option<f64>) {
    let (Some(there), Some(back)) = (&measured.there, &measured.back) else {
        return;
    };
    measured.note = caution(there, back, is_bound);
    if measured.note.is_some() {
        return;
    }
    let rtt_ms = measured.rtt_ms.unwrap_or(0.0);
    let words = profile(there, back, rtt_ms);
    measured.proposal = LinkProfile::parse(&words).is_ok().then_some(words);
    if told_bit_per_s.is_some_and(|told| rate(there) >= told * TOLD_SHARE) {
        measured.note = Some(
            "the tunnel sends no more than `peer.link` tells it: if the circuit is faster now, take that key out, \
             reload and measure again"
                .to_owned(),
        );
    }
}

fn caution(there: &MeasuredWay, back: &MeasuredWay, is_bound: bool) -> Option<String> {
    let any = |phase: &str| [there, back].iter().any(|way| way.phase == phase);
    let text = if is_bound {
        "it was held to a rate: the link may carry more"
    } else if there.bit_per_s <= 0.0 || back.bit_per_s <= 0.0 {
        "nothing arrived in the second half of the time"
    } else if any("climb") {
        "the tunnel was still finding out what the path carries: measure longer (--time)"
    } else if any("compete") {
        "others fill the path as well: this is a share of what it carries"
    } else {
        return None;
    };
    Some(text.to_owned())
}

/// The line's rate: what arrived, and what was lost beyond it.
fn rate(way: &MeasuredWay) -> f64 {
    way.bit_per_s / (1.0 - way.loss_ratio.unwrap_or(0.0).min(0.5))
}

fn profile(there: &MeasuredWay, back: &MeasuredWay, rtt_ms: f64) -> String {
    let mut words = format!(
        "rate {} delay {:.1}ms",
        rate_words(rate(there)),
        rtt_ms / 2.0
    );
    push_loss(&mut words, there, false);
    if (rate(there) / rate(back) - 1.0).abs() > APART {
        // Writing to a String cannot fail.
        let _ = write!(words, " backward rate {}", rate_words(rate(back)));
        push_loss(
            &mut words,
            back,
            there.loss_ratio.unwrap_or(0.0) >= LOSS_MIN,
        );
    }
    words
}

fn push_loss(words: &mut String, way: &MeasuredWay, has_other: bool) {
    let loss = way.loss_ratio.unwrap_or(0.0);
    if loss >= LOSS_MIN || has_other {
        let _ = write!(words, " loss {:.2}%", loss * 100.0);
    }
}

/// Three digits: it was not measured better.
fn rate_words(bit_per_s: f64) -> String {
    let digits = bit_per_s.max(1.0).log10().floor() as i32;
    let step = 10_f64.powi((digits - 2).max(0));
    let kbit = (bit_per_s / step).round() * step / 1e3;
    match kbit {
        kbit if kbit >= 1e3 => format!("{}mbit", kbit / 1e3),
        kbit => format!("{kbit}kbit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(bit_per_s: f64, loss: f64, phase: &str) -> MeasuredWay {
        MeasuredWay {
            bit_per_s,
            loss_ratio: Some(loss),
            queue_ms: Some(1.0),
            phase: phase.to_owned(),
        }
    }

    fn concluded(there: MeasuredWay, back: MeasuredWay, told: Option<f64>) -> MeasuredStatus {
        let mut measured = MeasuredStatus {
            there: Some(there),
            back: Some(back),
            rtt_ms: Some(100.2),
            ..MeasuredStatus::default()
        };
        conclude(&mut measured, false, told);
        measured
    }

    #[test]
    fn a_proposal_is_what_farhaul_link_takes() {
        let even = concluded(
            way(49.51e6, 0.0, "steady"),
            way(49.2e6, 0.0, "steady"),
            None,
        );
        assert_eq!(even.proposal.as_deref(), Some("rate 49.5mbit delay 50.1ms"));
        assert_eq!(even.note, None);
        let lossy = concluded(way(9.9e6, 0.01, "steady"), way(9.9e6, 0.01, "steady"), None);
        let words = "rate 10mbit delay 50.1ms loss 1.00%";
        assert_eq!(lossy.proposal.as_deref(), Some(words));
        let uneven = concluded(way(9.9e6, 0.01, "steady"), way(768e3, 0.0, "steady"), None);
        let words = "rate 10mbit delay 50.1ms loss 1.00% backward rate 768kbit loss 0.00%";
        assert_eq!(uneven.proposal.as_deref(), Some(words));
        let profile = LinkProfile::parse(words).unwrap();
        let bit_per_s = |rate: Option<farhaul_link::Rate>| rate.unwrap().bit_per_s();
        assert_eq!(bit_per_s(profile.forward.rate), 10_000_000);
        assert_eq!(bit_per_s(profile.backward.rate), 768_000);
    }

    #[test]
    fn what_was_not_seen_is_not_proposed() {
        for (there, back, why) in [
            (way(1e6, 0.0, "climb"), way(1e6, 0.0, "steady"), "longer"),
            (way(1e6, 0.0, "steady"), way(1e6, 0.0, "compete"), "share"),
            (way(1e6, 0.0, "steady"), way(0.0, 0.0, "steady"), "nothing"),
        ] {
            let measured = concluded(there, back, None);
            assert_eq!(measured.proposal, None);
            assert!(measured.note.unwrap().contains(why));
        }
        let told = concluded(
            way(1e6, 0.0, "steady"),
            way(1e6, 0.0, "steady"),
            Some(1.02e6),
        );
        assert!(told.proposal.is_some() && told.note.unwrap().contains("no more than"));
    }
}
