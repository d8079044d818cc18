//! What a running link tells about itself, for programs and for people.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

/// Departures later than this make a measurement doubtful: 2 ms.
pub const LATENESS_LIMIT_NS: u64 = 2_000_000;

/// State of a link since its start or the last reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStats {
    /// First interface.
    pub a: String,
    /// Second interface.
    pub b: String,
    /// The settings, as `farhaul link set` reads them.
    pub profile: String,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Time since the start or the last reset, in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether its threads run with real-time priority (SCHED_FIFO).
    pub real_time: bool,
    /// Frames missing from the capture files because writing fell behind.
    pub pcap_drops: u64,
    /// From the first interface to the second.
    pub forward: DirectionStats,
    /// From the second interface to the first.
    pub backward: DirectionStats,
}

/// State of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Frames that arrived.
    pub packets_in: u64,
    /// Their bytes, without preamble and FCS.
    pub bytes_in: u64,
    /// Frames that left, copies included.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that did not leave, by cause.
    pub drops: DropCounts,
    /// Copies made.
    pub duplicated: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames sent out of their turn.
    pub reordered: u64,
    /// Frames waiting in the router's queue now.
    pub queue_packets: u64,
    /// Bytes waiting in the router's queue now.
    pub queue_bytes: u64,
    /// Most bytes that waited.
    pub queue_bytes_max: u64,
    /// How long a frame that arrives now would wait.
    pub queue_ns: u64,
    /// Longest such wait.
    pub queue_ns_max: u64,
    /// Frames in flight now.
    pub line_packets: u64,
    /// Rate asked for, in bits per second; absent where it is unlimited.
    pub requested_bit_per_s: Option<u64>,
    /// Rate of the last full second, counted as the requested one is.
    pub achieved_bit_per_s: u64,
    /// Rate of the busiest second.
    pub achieved_bit_per_s_max: u64,
    /// How late frames left: median, in nanoseconds.
    pub lateness_p50_ns: u64,
    /// How late frames left: 99 of 100 were no later.
    pub lateness_p99_ns: u64,
    /// How late frames left: the latest.
    pub lateness_max_ns: u64,
    /// Whether the latest was above [`LATENESS_LIMIT_NS`].
    pub late: bool,
}

/// Frames that did not leave, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DropCounts {
    /// Longer than the emulated MTU.
    pub mtu: u64,
    /// Over the emulated policer's rate and burst.
    #[serde(default)]
    pub policer: u64,
    /// The emulated router's queue was full.
    pub queue: u64,
    /// Lost on the emulated wire.
    pub loss: u64,
    /// More in flight than the emulator holds.
    pub line: u64,
    /// Dropped by the kernel before the emulator saw them: it was too slow.
    pub kernel: u64,
    /// Refused by the outgoing interface.
    pub send: u64,
    /// Large packets of a sender with offloads that could not be cut into
    /// frames.
    pub offload: u64,
}

impl DropCounts {
    /// Frames that nobody had asked it to lose: the machine was too slow for the link.
    #[must_use]
    pub fn unasked(&self) -> u64 {
        self.line + self.kernel + self.send + self.offload
    }

    /// Every cause with its name.
    pub fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("mtu", self.mtu),
            ("policer", self.policer),
            ("queue", self.queue),
            ("loss", self.loss),
            ("line", self.line),
            ("kernel", self.kernel),
            ("send", self.send),
            ("offload", self.offload),
        ]
    }
}

/// A table for people, with a line end after each line.
impl fmt::Display for LinkStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheduling = if self.real_time {
            "real-time"
        } else {
            "ordinary priority"
        };
        writeln!(
            f,
            "{} <-> {}, {:.1} s, seed {}, {scheduling}",
            self.a,
            self.b,
            self.elapsed_ns as f64 / 1e9,
            self.seed
        )?;
        writeln!(f, "{}", self.profile)?;
        let forward = format!("{} -> {}", self.a, self.b);
        let backward = format!("{} -> {}", self.b, self.a);
        writeln!(f, "{:<20}{forward:>24}{backward:>24}", "")?;
        for ((name, left), (_, right)) in rows(&self.forward).iter().zip(rows(&self.backward)) {
            writeln!(f, "{name:<20}{left:>24}{right:>24}")?;
        }
        if self.pcap_drops > 0 {
            writeln!(f, "{} frames missing from captures", self.pcap_drops)?;
        }
        if self.forward.late || self.backward.late {
            writeln!(
                f,
                "departures were up to {:.1} ms late: measurements of this run are doubtful",
                self.forward
                    .lateness_max_ns
                    .max(self.backward.lateness_max_ns) as f64
                    / 1e6
            )?;
        }
        Ok(())
    }
}

fn rows(stats: &DirectionStats) -> Vec<(String, String)> {
    let rate = |bits: u64| format!("{:.3} Mbit/s", bits as f64 / 1e6);
    let time = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    let mut rows = vec![
        ("packets in".to_owned(), stats.packets_in.to_string()),
        ("packets out".to_owned(), stats.packets_out.to_string()),
        ("bytes in".to_owned(), stats.bytes_in.to_string()),
        ("bytes out".to_owned(), stats.bytes_out.to_string()),
    ];
    for (name, count) in stats.drops.named() {
        rows.push((format!("dropped: {name}"), count.to_string()));
    }
    let mut queue_now = format!("{} B", stats.queue_bytes);
    // Writing to a String cannot fail.
    let _ = write!(queue_now, ", {}", time(stats.queue_ns));
    let requested = stats.requested_bit_per_s;
    rows.extend([
        ("duplicated".to_owned(), stats.duplicated.to_string()),
        ("corrupted".to_owned(), stats.corrupted.to_string()),
        ("reordered".to_owned(), stats.reordered.to_string()),
        ("queue now".to_owned(), queue_now),
        (
            "queue max".to_owned(),
            format!("{} B, {}", stats.queue_bytes_max, time(stats.queue_ns_max)),
        ),
        ("in flight".to_owned(), stats.line_packets.to_string()),
        (
            "rate requested".to_owned(),
            requested.map_or_else(|| "unlimited".to_owned(), rate),
        ),
        (
            "rate last second".to_owned(),
            rate(stats.achieved_bit_per_s),
        ),
        (
            "rate busiest second".to_owned(),
            rate(stats.achieved_bit_per_s_max),
        ),
        ("late p50".to_owned(), time(stats.lateness_p50_ns)),
        ("late p99".to_owned(), time(stats.lateness_p99_ns)),
        ("late max".to_owned(), time(stats.lateness_max_ns)),
    ]);
    rows
}
