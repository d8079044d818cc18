//! Prints profiles so that reading them gives the same profile.

use std::fmt;

use crate::loss::Loss;
use crate::named;
use crate::policer::Policer;
use crate::profile::{DirectionProfile, LinkProfile};
use crate::reorder::Reorder;

/// Prints the profile's name, if it has one, and what differs from it.
impl fmt::Display for LinkProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.name.and_then(named::find);
        let ideal = DirectionProfile::UNLIMITED;
        let (base_forward, base_backward) =
            base.map_or((&ideal, &ideal), |named| (&named.forward, &named.backward));
        let forward = differences(&self.forward, base_forward);
        let backward = differences(&self.backward, base_backward);
        let mut parts: Vec<&str> = base.map(|named| named.name).into_iter().collect();
        if forward == backward {
            parts.extend(forward.iter().map(String::as_str));
        } else {
            for (name, settings) in [("forward", &forward), ("backward", &backward)] {
                if !settings.is_empty() {
                    parts.push(name);
                    parts.extend(settings.iter().map(String::as_str));
                }
            }
        }
        if parts.is_empty() {
            parts.push("rate unlimited");
        }
        f.write_str(&parts.join(" "))
    }
}

/// A time that prints with its unit.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::units::write_time(f, self.0)
    }
}

/// The settings that make `base` into `direction`.
fn differences(direction: &DirectionProfile, base: &DirectionProfile) -> Vec<String> {
    let mut settings = Vec::new();
    let mut put = |differs: bool, text: String| {
        if differs {
            settings.push(text);
        }
    };
    let rate = direction
        .rate
        .map_or("unlimited".to_owned(), |rate| rate.to_string());
    put(direction.rate != base.rate, format!("rate {rate}"));
    put(
        direction.framing != base.framing,
        format!("framing {}", direction.framing),
    );
    put(
        (direction.delay_ns, direction.jitter_ns) != (base.delay_ns, base.jitter_ns),
        delay(direction),
    );
    put(
        direction.distribution != base.distribution,
        format!("distribution {}", direction.distribution),
    );
    put(direction.loss != base.loss, loss(direction.loss));
    put(
        direction.duplicate != base.duplicate,
        format!("duplicate {}", direction.duplicate),
    );
    put(
        direction.corrupt != base.corrupt,
        format!("corrupt {}", direction.corrupt),
    );
    put(
        direction.reorder != base.reorder,
        reorder(direction.reorder),
    );
    put(
        direction.policer != base.policer,
        policer(direction.policer),
    );
    put(
        direction.queue != base.queue,
        format!("queue {}", direction.queue),
    );
    let mtu = direction
        .mtu_bytes
        .map_or("none".to_owned(), |bytes| bytes.to_string());
    put(direction.mtu_bytes != base.mtu_bytes, format!("mtu {mtu}"));
    put(
        direction.in_flight_packets_max != base.in_flight_packets_max,
        format!("in-flight {}", direction.in_flight_packets_max),
    );
    settings
}

fn delay(direction: &DirectionProfile) -> String {
    if direction.jitter_ns == 0 {
        format!("delay {}", Time(direction.delay_ns))
    } else {
        format!(
            "delay {} {}",
            Time(direction.delay_ns),
            Time(direction.jitter_ns)
        )
    }
}

fn loss(loss: Loss) -> String {
    match loss {
        Loss::None => "loss none".to_owned(),
        Loss::Bernoulli(share) => format!("loss {share}"),
        Loss::GilbertElliott {
            to_bad,
            to_good,
            loss_bad,
            loss_good,
        } => {
            format!("loss gemodel {to_bad} {to_good} {loss_bad} {loss_good}")
        }
    }
}

fn policer(policer: Option<Policer>) -> String {
    policer.map_or("policer none".to_owned(), |policer| {
        format!("policer {} {}b", policer.rate, policer.burst_bytes)
    })
}

fn reorder(reorder: Reorder) -> String {
    match reorder {
        Reorder::Never => "reorder none".to_owned(),
        Reorder::Jitter => "reorder jitter".to_owned(),
        Reorder::Leap(share) => format!("reorder {share}"),
        Reorder::HoldBack { share, extra_ns } => format!("reorder {share} {}", Time(extra_ns)),
    }
}
