//! What the hosts do: windows, buffers, processors.

use super::{Fault, Finding, Way, mbit};
use crate::probe::observe::WayFigures;
use crate::probe::sweep::window_rate_bit_per_s;

/// A stream that uses this much of the circuit is not held back.
const FULL_SHARE: f64 = 0.85;
/// A limit that applied for this share of the time is the limit.
const LIMITED_SHARE: f64 = 0.3;
/// A thread that ran or waited for a processor for so much of its time is
/// what everything waits for.
const BUSY_SHARE: f64 = 0.85;
/// Largest window without scaling (RFC 7323 2.2).
const UNSCALED_BYTES: f64 = 65_535.0;
/// A buffer's limit below this share of the circuit is too small, whatever a
/// stream that is held back by something else shows.
const SMALL_BUFFER: f64 = 0.8;

struct Limits<'a> {
    figures: &'a WayFigures,
    share: f64,
    bdp_bytes: f64,
    capacity_bit_per_s: f64,
}

fn limits<'a>(way: &Way<'a>) -> Option<Limits<'a>> {
    Some(Limits {
        figures: &way.tcp()?.figures,
        share: way.share()?,
        bdp_bytes: way.bdp_bytes()?,
        capacity_bit_per_s: way.tcp_capacity_bit_per_s()?,
    })
}

/// Twice what the circuit holds, in whole megabytes: for window and queue.
fn enough_bytes(bdp_bytes: f64) -> u64 {
    const MEGABYTE: f64 = 1_048_576.0;
    ((bdp_bytes * 4.0 / MEGABYTE).ceil().max(1.0) * MEGABYTE) as u64
}

pub(super) fn window_scaling(way: &Way<'_>) -> Option<Finding> {
    let limits = limits(way)?;
    if limits.figures.scales_windows || limits.bdp_bytes < UNSCALED_BYTES / SMALL_BUFFER {
        return None;
    }
    let is_off = |host: Option<&crate::probe::host::HostFacts>| {
        host.is_some_and(|host| host.window_scaling == Some(false))
    };
    let (sender, receiver) = way.ends();
    let culprit = match (is_off(way.sender_host), is_off(way.receiver_host)) {
        (true, true) => Some("client and server"),
        (true, false) => Some(sender),
        (false, true) => Some(receiver),
        (false, false) => None,
    };
    let (why, remedy) = match culprit {
        Some(host) => (
            format!("net.ipv4.tcp_window_scaling is 0 on the {host}"),
            format!("on the {host}: sysctl -w net.ipv4.tcp_window_scaling=1"),
        ),
        None => (
            "both hosts have window scaling on, and the option was not agreed on: a box on the way removes it".to_owned(),
            "find the firewall or proxy that strips TCP option 3 and let it through".to_owned(),
        ),
    };
    let rtt_ms = way.idle_rtt_us / 1e3;
    Some(Finding {
        fault: Fault::WindowScaling,
        direction: Some(way.direction),
        sentence: format!(
            "TCP windows {} cannot exceed 64 KB because window scaling is not in use, {:.0} KB would be needed",
            way.name(),
            limits.bdp_bytes / 1024.0
        ),
        evidence: vec![
            why,
            format!(
                "65535 bytes / {rtt_ms:.1} ms = {}",
                mbit(UNSCALED_BYTES * 8e6 / way.idle_rtt_us)
            ),
            way.got_of(),
        ],
        remedy,
        expected_bit_per_s: Some(limits.capacity_bit_per_s),
    })
}

/// What keeps a receive window small, and so what changes it.
#[derive(Debug, Clone, Copy)]
struct Narrow {
    /// `tcp_rmem` ends below what the circuit holds.
    is_set: bool,
    /// The program has fixed the buffer.
    is_fixed: bool,
}

impl Narrow {
    fn remedy(self, way: &Way<'_>, enough: u64) -> String {
        let (_, receiver) = way.ends();
        let system = format!("sysctl -w net.ipv4.tcp_rmem='4096 131072 {enough}'");
        let most = way
            .receiver_host
            .and_then(|host| host.receive_buffer_set_max_bytes)
            .filter(|most| *most < enough);
        let room = most.map_or_else(String::new, |most| {
            format!(", of which net.core.rmem_max there allows {most}")
        });
        let program = "do not fix the receive buffer of the program (SO_RCVBUF, iperf -w, farhaul probe serve --window)";
        match (self.is_set, self.is_fixed) {
            (true, false) => format!("on the {receiver}: {system}"),
            (true, true) => format!("on the {receiver}: {system}, and {program}"),
            (false, _) => format!(
                "on the {receiver}: {program}, or fix it to {enough} bytes{room}; on Windows: netsh int tcp set global autotuninglevel=normal, TcpWindowSize in HKLM\\SYSTEM\\CurrentControlSet\\Services\\Tcpip\\Parameters before Vista"
            ),
        }
    }
}

/// What makes the receiver's window a fault. The first windows do not count: they
/// may be larger than what the receiver keeps to.
fn narrow(way: &Way<'_>, limits: &Limits<'_>, ceiling: Option<u64>) -> Option<Narrow> {
    let figures = limits.figures;
    let window = figures.send_window_steady_bytes as f64;
    let small_bytes = limits.bdp_bytes * SMALL_BUFFER;
    // Who does not read in time has small windows, too.
    let reads = figures.receiver_busy < BUSY_SHARE;
    let is_seen = limits.share < FULL_SHARE
        && figures.receive_window_limited >= LIMITED_SHARE
        && reads
        && window < limits.bdp_bytes;
    let narrow = Narrow {
        is_set: ceiling.is_some_and(|most| (most as f64) < small_bytes),
        is_fixed: way.has_fixed_receive_buffer() && reads && (1.0..small_bytes).contains(&window),
    };
    // Without scaling the limit is another one, unless it is even below 64 KB.
    let is_below = narrow.is_fixed && window < UNSCALED_BYTES / 2.0;
    let is_hidden =
        !figures.scales_windows && ceiling.is_none_or(|most| most >= 64 << 10) && !is_below;
    let is_fault = is_seen || narrow.is_set || narrow.is_fixed;
    (is_fault && !is_hidden).then_some(narrow)
}

pub(super) fn receive_window(way: &Way<'_>) -> Option<Finding> {
    let limits = limits(way)?;
    let (_, receiver) = way.ends();
    let ceiling = way
        .receiver_host
        .and_then(|host| host.receive_buffer_bytes)
        .map(|[.., most]| most);
    let narrow = narrow(way, &limits, ceiling)?;
    let window = limits.figures.send_window_steady_bytes;
    let rtt_us = way.idle_rtt_us;
    let allowed = window_rate_bit_per_s(window, rtt_us as u64);
    let setting = ceiling.map_or_else(String::new, |most| {
        format!("; net.ipv4.tcp_rmem there ends at {most} bytes")
    });
    let fixed = match narrow.is_fixed {
        true => "; its program has fixed the receive buffer",
        false => "",
    };
    Some(Finding {
        fault: Fault::ReceiveWindow,
        direction: Some(way.direction),
        sentence: format!(
            "The {receiver}'s receive window of {:.1} KB limits TCP {}: the circuit holds {:.0} KB",
            window as f64 / 1024.0,
            way.name(),
            limits.bdp_bytes / 1024.0
        ),
        evidence: vec![
            format!(
                "the {receiver} advertised at most {window} bytes in the second half of the test{setting}{fixed}"
            ),
            format!(
                "{window} bytes / {:.1} ms = {}",
                rtt_us / 1e3,
                allowed.map_or_else(|| "?".to_owned(), mbit)
            ),
            format!(
                "the window was the limit for {:.0} % of the time",
                limits.figures.receive_window_limited * 100.0
            ),
            way.got_of(),
        ],
        remedy: narrow.remedy(way, enough_bytes(limits.bdp_bytes)),
        expected_bit_per_s: Some(limits.capacity_bit_per_s),
    })
}

pub(super) fn send_buffer(way: &Way<'_>) -> Option<Finding> {
    let limits = limits(way)?;
    let figures = limits.figures;
    let (sender, _) = way.ends();
    let ceiling = way
        .sender_host
        .and_then(|host| host.send_buffer_bytes)
        .map(|[.., most]| most);
    let is_seen = limits.share < FULL_SHARE
        && figures.send_buffer_limited >= LIMITED_SHARE
        && figures.sender_busy < BUSY_SHARE;
    let is_set = ceiling.is_some_and(|most| (most as f64) < limits.bdp_bytes * SMALL_BUFFER);
    if !(is_seen || is_set) {
        return None;
    }
    let enough = enough_bytes(limits.bdp_bytes);
    let setting = ceiling.map_or_else(String::new, |most| {
        format!("net.ipv4.tcp_wmem there ends at {most} bytes")
    });
    Some(Finding {
        fault: Fault::SendBuffer,
        direction: Some(way.direction),
        sentence: format!(
            "The {sender}'s send buffer limits TCP {}: the circuit holds {:.0} KB",
            way.name(),
            limits.bdp_bytes / 1024.0
        ),
        evidence: vec![
            setting,
            format!(
                "the send buffer was the limit for {:.0} % of the time",
                figures.send_buffer_limited * 100.0
            ),
            way.got_of(),
        ],
        remedy: format!(
            "on the {sender}: sysctl -w net.ipv4.tcp_wmem='4096 65536 {enough}', and do not fix SO_SNDBUF in the program"
        ),
        expected_bit_per_s: Some(limits.capacity_bit_per_s),
    })
}

pub(super) fn cpu_bound(way: &Way<'_>) -> Option<Finding> {
    let limits = limits(way)?;
    let figures = limits.figures;
    if limits.share >= FULL_SHARE {
        return None;
    }
    let (sender, receiver) = way.ends();
    let (host, busy, starved) = match figures {
        figures if figures.receiver_busy >= BUSY_SHARE => {
            (receiver, figures.receiver_busy, figures.receiver_starved)
        }
        figures if figures.sender_busy >= BUSY_SHARE => {
            (sender, figures.sender_busy, figures.sender_starved)
        }
        _ => return None,
    };
    Some(Finding {
        fault: Fault::CpuBound,
        direction: Some(way.direction),
        sentence: format!(
            "The {host} does not keep up with the data {}: its processor is the limit",
            way.name()
        ),
        evidence: vec![
            format!(
                "the {host}'s thread ran or wanted to run for {:.0} % of the time, and waited for a processor for {:.0} %",
                busy * 100.0,
                starved * 100.0
            ),
            way.got_of(),
        ],
        remedy: format!(
            "on the {host}: give the program more processor time (cgroup quota, other load, virtual processors), switch segmentation offloads on (ethtool -K IF gro on tso on)"
        ),
        expected_bit_per_s: Some(limits.capacity_bit_per_s),
    })
}
