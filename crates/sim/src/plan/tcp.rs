//! The TCPs a plan can name: those of the simulator and the plan's own.

use std::collections::BTreeMap;

use super::{PlanError, TcpPlan};
use crate::tcp::{Growth, Profile, Recovery};

const NAMED: [(&str, Profile); 2] = [("bsd44", Profile::BSD44), ("modern", Profile::MODERN)];

/// Every TCP by its name.
pub(super) fn profiles(
    own: &BTreeMap<String, TcpPlan>,
) -> Result<BTreeMap<String, Profile>, PlanError> {
    let mut all: BTreeMap<String, Profile> = NAMED
        .iter()
        .map(|(name, profile)| ((*name).to_owned(), *profile))
        .collect();
    for (name, plan) in own {
        let Some((_, base)) = NAMED.iter().find(|(name, _)| *name == plan.like) else {
            let why = format!("`{}` is neither bsd44 nor modern", plan.like);
            return Err(PlanError::value(format!("tcp.{name}.like"), why));
        };
        if plan
            .initial_window_segments
            .is_some_and(|segments| segments == 0 || segments > 1000)
        {
            let key = format!("tcp.{name}.initial_window_segments");
            return Err(PlanError::value(
                key,
                "a window starts with 1 to 1000 segments",
            ));
        }
        if all.insert(name.clone(), changed(*base, plan)).is_some() {
            let why = "is the simulator's own name; take another";
            return Err(PlanError::value(format!("tcp.{name}"), why));
        }
    }
    Ok(all)
}

fn changed(base: Profile, plan: &TcpPlan) -> Profile {
    let recovery = match plan.sack {
        Some(true) => Recovery::Sack,
        Some(false) if base.recovery == Recovery::Sack => Recovery::NewReno,
        _ => base.recovery,
    };
    let growth = match plan.cubic {
        Some(true) => Growth::Cubic,
        Some(false) => Growth::Reno,
        None => base.growth,
    };
    Profile {
        recovery,
        growth,
        initial_window_segments: plan
            .initial_window_segments
            .unwrap_or(base.initial_window_segments),
        limited_transmit: plan.limited_transmit.unwrap_or(base.limited_transmit),
        byte_counting_segments: plan
            .byte_counting_segments
            .unwrap_or(base.byte_counting_segments),
        early_retransmit: plan.early_retransmit.unwrap_or(base.early_retransmit),
        nagle: plan.nagle.unwrap_or(base.nagle),
        ..base
    }
}
