//! From what was seen to what is wrong: a pure function.
//!
//! Every fault needs evidence of its own; slow alone is none. Each file judges
//! one kind: what the hosts do ([`hosts`]), what the circuit loses ([`loss`]),
//! where nothing comes at all ([`silence`]), what of a handshake is changed on the
//! way ([`handshake`]).

mod handshake;
mod hosts;
mod loss;
mod silence;
mod way;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::Observations;
use super::tcp_test::Direction;
pub use way::Way;

/// What can be wrong with a circuit.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Long packets vanish, and nobody says so.
    MtuBlackHole,
    /// Windows cannot grow beyond 64 KB.
    WindowScaling,
    /// The receiver's window is smaller than the circuit.
    ReceiveWindow,
    /// The sender's buffer is smaller than the circuit.
    SendBuffer,
    /// Packets are lost when both directions carry data.
    DuplexMismatch,
    /// For a time nothing came at all.
    Outage,
    /// Packets are lost however little is sent.
    Loss,
    /// What exceeds a rate is dropped without waiting.
    Policer,
    /// The queue before the slowest line holds next to nothing.
    ShallowBuffer,
    /// A host does not keep up.
    CpuBound,
    /// Packets overtake each other.
    Reordering,
    /// The two directions have different rates.
    AsymmetricRate,
    /// UDP does not arrive, TCP does.
    UdpBlocked,
}

/// One thing that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What.
    pub fault: Fault,
    /// In which direction; null where it concerns both.
    pub direction: Option<Direction>,
    /// In one sentence.
    pub sentence: String,
    /// What shows it.
    pub evidence: Vec<String>,
    /// The setting to change, where, or whom to ask for what.
    pub remedy: String,
    /// TCP payload rate to expect afterwards, bit/s.
    pub expected_bit_per_s: Option<f64>,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// One sentence.
    pub sentence: String,
    /// What is wrong, the gravest first.
    pub findings: Vec<Finding>,
    /// What is worth knowing, and no fault.
    pub notes: Vec<String>,
    /// Payload rate a TCP stream could have up, bit/s.
    pub tcp_capacity_up_bit_per_s: Option<f64>,
    /// Payload rate a TCP stream could have down, bit/s.
    pub tcp_capacity_down_bit_per_s: Option<f64>,
    /// Bytes on their way when the circuit is full, up.
    pub bdp_up_bytes: Option<u64>,
    /// Bytes on their way when the circuit is full, down.
    pub bdp_down_bytes: Option<u64>,
}

impl Verdict {
    /// Whether it rests on anything: without a fault, on how much of the circuit
    /// TCP used in one direction at least.
    pub(crate) fn is_grounded(&self, seen: &Observations) -> bool {
        let share = |direction| Way::of(seen, direction)?.share();
        !self.findings.is_empty() || share(Direction::Up).or(share(Direction::Down)).is_some()
    }

    /// The faults, each once.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.findings.iter().map(|found| found.fault).collect();
        faults.sort_unstable();
        faults.dedup();
        faults
    }
}

/// Judges.
pub fn diagnose(seen: &Observations) -> Verdict {
    let ways = [Direction::Up, Direction::Down].map(|direction| Way::of(seen, direction));
    let mut findings: Vec<Finding> = ways.iter().flatten().flat_map(Way::faults).collect();
    findings.extend(black_hole(seen));
    findings.extend(asymmetry(&ways));
    if let [Some(up), Some(down)] = &ways {
        findings.extend(loss::random_both_ways(up, down));
    }
    findings.sort_by_key(|finding| finding.fault);
    let [up, down] = &ways;
    let capacity = |way: &Option<Way<'_>>| way.as_ref()?.tcp_capacity_bit_per_s();
    let bdp = |way: &Option<Way<'_>>| way.as_ref()?.bdp_bytes().map(|bytes| bytes as u64);
    Verdict {
        sentence: sentence(seen, &findings, &ways),
        notes: notes(seen, &ways),
        tcp_capacity_up_bit_per_s: capacity(up),
        tcp_capacity_down_bit_per_s: capacity(down),
        bdp_up_bytes: bdp(up),
        bdp_down_bytes: bdp(down),
        findings,
    }
}

/// Payload rate of full datagrams that the circuit carries.
pub(crate) fn capacity_bit_per_s(seen: &Observations, direction: Direction) -> Option<f64> {
    Way::of(seen, direction)?.capacity_bit_per_s
}

/// Payload rate that a TCP stream could have.
pub(crate) fn tcp_capacity_bit_per_s(seen: &Observations, direction: Direction) -> Option<f64> {
    Way::of(seen, direction)?.tcp_capacity_bit_per_s()
}

fn sentence(seen: &Observations, findings: &[Finding], ways: &[Option<Way<'_>>]) -> String {
    if let Some((first, rest)) = findings.split_first() {
        let mut text = first.sentence.clone();
        for more in rest {
            text.push_str("; also: ");
            text.push_str(&more.sentence);
        }
        return text + ".";
    }
    let shares = ways.iter().flatten().filter_map(|way| {
        let (got, of) = (way.goodput_bit_per_s()?, way.tcp_capacity_bit_per_s()?);
        Some(format!("{} of {} {}", mbit(got), mbit(of), way.name()))
    });
    let shares: Vec<String> = shares.collect();
    if shares.is_empty() {
        return format!("Nothing can be said: {}.", silence::why_nothing(seen));
    }
    format!(
        "No fault found: one TCP stream carried {}.",
        shares.join(", ")
    )
}

/// Mbit/s with its unit, as nobody can mistake it.
pub(crate) fn mbit(bit_per_s: f64) -> String {
    let mbit = bit_per_s / 1e6;
    match mbit {
        mbit if mbit < 10.0 => format!("{mbit:.2} Mbit/s"),
        mbit if mbit < 100.0 => format!("{mbit:.1} Mbit/s"),
        mbit => format!("{mbit:.0} Mbit/s"),
    }
}

fn black_hole(seen: &Observations) -> Option<Finding> {
    /// Of TCP and IPv6: the rule is for both families, and those of IPv4 are shorter.
    const HEADERS_BYTES: u32 = 60;
    let path = seen.path.as_ref().filter(|path| path.is_black_hole())?;
    let (mtu, interface) = (path.mtu_bytes()?, path.interface_mtu_bytes?);
    let text = |mtu: Option<u32>| mtu.map_or_else(|| "none".to_owned(), |mtu| mtu.to_string());
    Some(Finding {
        fault: Fault::MtuBlackHole,
        direction: None,
        sentence: format!(
            "Packets longer than {mtu} bytes vanish without an ICMP message: connections hang as soon as they send full segments"
        ),
        evidence: vec![
            format!(
                "longest packet that arrives: {} bytes up, {} bytes down",
                text(path.up_mtu_bytes),
                text(path.down_mtu_bytes)
            ),
            format!(
                "the interface sends up to {interface} bytes, and no ICMP `too big` came for longer ones"
            ),
        ],
        remedy: format!(
            "on both hosts: ip link set dev IF mtu {mtu}; or on a router on the way: nft 'add table inet mss; add chain inet mss forward {{ type filter hook forward priority 0; }}; add rule inet mss forward tcp flags syn tcp option maxseg size set {}'; or let ICMP type 3 code 4 through",
            mtu.saturating_sub(HEADERS_BYTES)
        ),
        expected_bit_per_s: tcp_capacity_bit_per_s(seen, Direction::Up),
    })
}

fn asymmetry(ways: &[Option<Way<'_>>]) -> Option<Finding> {
    /// Below this the measurement's own error would show.
    const RATIO_MIN: f64 = 1.3;
    let [Some(up), Some(down)] = ways else {
        return None;
    };
    let (up_rate, down_rate) = (up.capacity_bit_per_s?, down.capacity_bit_per_s?);
    let (fast, slow) = (up_rate.max(down_rate), up_rate.min(down_rate));
    let (slower, faster) = if up_rate < down_rate {
        (up, down)
    } else {
        (down, up)
    };
    let is_real = match loss::policer(slower) {
        // A sender that pauses makes a bucket overflow, and a flood that falls
        // short of the line leaves the rate behind a policer unknown.
        Some(_) => faster.carried_bit_per_s()? >= slower.unpaused_bit_per_s()? * RATIO_MIN,
        None => is_slower_line(slower, faster, RATIO_MIN),
    };
    // The slower rate must be the circuit's, not a busy sender's.
    if fast < slow * RATIO_MIN || !is_real || !slower.is_filled() {
        return None;
    }
    let slower = slower.name();
    let (up_text, down_text) = (mbit(up_rate), mbit(down_rate));
    Some(Finding {
        fault: Fault::AsymmetricRate,
        direction: None,
        sentence: format!("The circuit is asymmetric: {up_text} up, {down_text} down"),
        evidence: vec![format!(
            "UDP payload carried at overload: {up_text} up, {down_text} down"
        )],
        remedy: format!(
            "if both directions were ordered alike, ask the provider about {slower}; else give each direction its own rate in shapers and gateways"
        ),
        expected_bit_per_s: None,
    })
}

/// Floods are uneven; a short queue makes that a lower rate. The line's pace
/// must differ as well.
fn is_slower_line(slower: &Way<'_>, faster: &Way<'_>, ratio_min: f64) -> bool {
    match (slower.line_bit_per_s, faster.line_bit_per_s) {
        (Some(slow), Some(fast)) => fast >= slow * ratio_min,
        _ => true,
    }
}

fn notes(seen: &Observations, ways: &[Option<Way<'_>>]) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(ours), Some(theirs)) = (&seen.client_host, &seen.server_host) {
        for (name, ours, theirs) in ours.differences(theirs) {
            notes.push(format!("{name} differs: client {ours}, server {theirs}"));
        }
    }
    if let Some(path) = &seen.path {
        let rewritten = [("up", &path.up_rewritten), ("down", &path.down_rewritten)];
        for (name, marks) in rewritten {
            for mark in marks {
                let (sent, arrived) = (mark.sent, mark.arrived);
                notes.push(format!(
                    "type of service {sent:#04x} arrives {name} as {arrived:#04x} (DSCP {} -> {}, ECN {} -> {})",
                    sent >> 2, arrived >> 2, sent & 3, arrived & 3
                ));
            }
        }
    }
    let is_blocked = |way: &Way<'_>| way.blocked_datagrams.is_some();
    if let Some(path) = &seen.path
        && !ways.iter().flatten().any(is_blocked)
    {
        let longest = [("up", path.up_mtu_bytes), ("down", path.down_mtu_bytes)];
        for (name, _) in longest.into_iter().filter(|(_, mtu)| mtu.is_none()) {
            notes.push(format!(
                "the longest packet {name} is not known: none of them came back"
            ));
        }
    }
    notes.extend(handshake::notes(seen));
    for note in ways.iter().flatten().flat_map(Way::notes) {
        // What is no direction's own is said once.
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let is_loaded = ways.iter().flatten().all(|way| way.is_both_loaded);
    if seen.both_loaded.is_some() && !is_loaded {
        notes.push(
            "a host was too busy to load both directions at once: half duplex would not have shown"
                .to_owned(),
        );
    }
    notes.extend(seen.interference());
    notes
}

#[cfg(test)]
mod tests;
