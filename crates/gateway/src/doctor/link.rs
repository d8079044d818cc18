//! Does what the tunnel was told of the circuit agree with what it carries?

use super::{Check, Patient};
use crate::admin::status::{MeasuredStatus, PeerState, PeerStatus};
use crate::config::meaning::Peer;

/// A told rate may be above what was measured, or below, by this share.
const OFF_MAX: f64 = 0.1;

/// One check per peer.
pub(super) fn told(patient: &Patient) -> Vec<Check> {
    let peers = patient.config.peers.iter();
    peers.map(|peer| one_peer(patient, peer)).collect()
}

fn one_peer(patient: &Patient, peer: &Peer) -> Check {
    let name = format!("link {}", peer.name);
    let known = patient
        .status
        .and_then(|status| status.peers.iter().find(|known| known.name == peer.name));
    let told_bit_per_s = peer
        .link
        .as_ref()
        .and_then(|link| link.profile.forward.rate);
    let told_bit_per_s = told_bit_per_s.map(|rate| rate.bit_per_s() as f64);
    let measured = known.and_then(|known| known.measured.as_ref());
    match (
        measured.filter(|measured| measured.proposal.is_some()),
        told_bit_per_s,
    ) {
        (Some(measured), told) => judged(name, peer, measured, told),
        (None, told) => unmeasured(name, peer, known, told),
    }
}

fn unmeasured(
    name: String,
    peer: &Peer,
    known: Option<&PeerStatus>,
    told_bit_per_s: Option<f64>,
) -> Check {
    let said = match told_bit_per_s {
        Some(told) => format!("the tunnel is told {}", rate(told)),
        None => "the tunnel learns what the circuit carries".to_owned(),
    };
    match known.is_some_and(|known| known.state == PeerState::Up) {
        true => Check::ok(
            name,
            format!("{said}; `farhaul probe peer {}` measures it", peer.name),
        ),
        false => Check::ok(
            name,
            format!("{said}; it can be measured once the peer is up"),
        ),
    }
}

fn judged(
    name: String,
    peer: &Peer,
    measured: &MeasuredStatus,
    told_bit_per_s: Option<f64>,
) -> Check {
    let there = measured.there.as_ref().map_or(0.0, |way| way.bit_per_s);
    let back = measured.back.as_ref().map_or(0.0, |way| way.bit_per_s);
    let words = measured.proposal.as_deref().unwrap_or_default();
    let line = format!("link = \"{words}\"");
    let found = format!(
        "measured at {}: {} there, {} back, round trip {:.1} ms",
        measured.time,
        rate(there),
        rate(back),
        measured.rtt_ms.unwrap_or(0.0)
    );
    let remedy = |line: &str| {
        format!(
            "in the [[peer]] block of {}: {line}; then `farhaul reload`, which counts from the next tunnel on",
            peer.name
        )
    };
    match told_bit_per_s {
        Some(told) if there < told * (1.0 - OFF_MAX) => Check::warn(
            name,
            format!(
                "{found}; the tunnel is told {}, which is more than arrives",
                rate(told)
            ),
            remedy(&line),
        ),
        Some(told) if there > told * (1.0 + OFF_MAX) => Check::warn(
            name,
            format!("{found}; the tunnel is told {}, which is less", rate(told)),
            remedy(&line),
        ),
        Some(_) => Check::ok(name, format!("{found}, as the tunnel is told")),
        None => Check::ok(
            name,
            format!("{found}; if that never changes, the tunnel may be told: {line}"),
        ),
    }
}

/// Mbit/s with its unit.
fn rate(bit_per_s: f64) -> String {
    match bit_per_s / 1e6 {
        mbit if mbit < 10.0 => format!("{mbit:.2} Mbit/s"),
        mbit if mbit < 100.0 => format!("{mbit:.1} Mbit/s"),
        mbit => format!("{mbit:.0} Mbit/s"),
    }
}
