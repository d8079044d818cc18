//! How a host is set up, as far as it limits TCP: the half of the memo's puzzle
//! that no packet shows.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::harmless;

/// Settings of the namespace a test runs in; `None` where they cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// Kernel release.
    pub kernel: Option<String>,
    /// Logical processors.
    pub processors: Option<u64>,
    /// `net.ipv4.tcp_rmem`: least, first and greatest receive buffer, bytes.
    pub receive_buffer_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: least, first and greatest send buffer, bytes.
    pub send_buffer_bytes: Option<[u64; 3]>,
    /// `net.core.rmem_max`, bytes.
    pub receive_buffer_set_max_bytes: Option<u64>,
    /// `net.core.wmem_max`, bytes.
    pub send_buffer_set_max_bytes: Option<u64>,
    /// `net.ipv4.tcp_window_scaling`.
    pub window_scaling: Option<bool>,
    /// `net.ipv4.tcp_sack`.
    pub sack: Option<bool>,
    /// `net.ipv4.tcp_timestamps`.
    pub timestamps: Option<bool>,
    /// `net.ipv4.tcp_moderate_rcvbuf`: whether receive buffers grow by themselves.
    pub receive_autotuning: Option<bool>,
    /// `net.ipv4.tcp_congestion_control`; a route may say otherwise.
    pub congestion_control: Option<String>,
    /// `net.ipv4.tcp_adv_win_scale`.
    pub window_share_shift: Option<i64>,
    /// `net.ipv4.tcp_mtu_probing`.
    pub mtu_probing: Option<u64>,
    /// `net.ipv4.tcp_ecn`: 0 never, 1 asks for it and agrees, 2 agrees.
    pub ecn: Option<u64>,
}

impl HostFacts {
    /// Of the calling thread's network namespace.
    pub(crate) fn here() -> Self {
        let number = |path: &str| setting(path)?.parse().ok();
        let flag = |path: &str| setting(path).map(|text| text != "0");
        Self {
            kernel: text("/proc/sys/kernel/osrelease"),
            processors: std::thread::available_parallelism()
                .ok()
                .map(|n| n.get() as u64),
            receive_buffer_bytes: three("ipv4/tcp_rmem"),
            send_buffer_bytes: three("ipv4/tcp_wmem"),
            receive_buffer_set_max_bytes: number("core/rmem_max"),
            send_buffer_set_max_bytes: number("core/wmem_max"),
            window_scaling: flag("ipv4/tcp_window_scaling"),
            sack: flag("ipv4/tcp_sack"),
            timestamps: flag("ipv4/tcp_timestamps"),
            receive_autotuning: flag("ipv4/tcp_moderate_rcvbuf"),
            congestion_control: setting("ipv4/tcp_congestion_control"),
            window_share_shift: setting("ipv4/tcp_adv_win_scale").and_then(|t| t.parse().ok()),
            mtu_probing: number("ipv4/tcp_mtu_probing"),
            ecn: number("ipv4/tcp_ecn"),
        }
    }

    /// Another host's own words, fit for a terminal.
    pub(crate) fn of_another(mut self) -> Self {
        for words in [&mut self.kernel, &mut self.congestion_control] {
            *words = words.take().map(|words| harmless(&words));
        }
        self
    }

    /// Settings that differ between two hosts, as (name, ours, theirs): a
    /// finding in itself.
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let words = |numbers: Option<[u64; 3]>| {
            numbers.map_or_else(String::new, |[a, b, c]| format!("{a} {b} {c}"))
        };
        let flag =
            |value: Option<bool>| value.map_or_else(String::new, |on| u8::from(on).to_string());
        let number = |value: Option<u64>| value.map_or_else(String::new, |n| n.to_string());
        let (rmem, wmem) = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem");
        let control = |facts: &Self| facts.congestion_control.clone().unwrap_or_default();
        [
            (
                rmem,
                words(self.receive_buffer_bytes),
                words(other.receive_buffer_bytes),
            ),
            (
                wmem,
                words(self.send_buffer_bytes),
                words(other.send_buffer_bytes),
            ),
            (
                "net.ipv4.tcp_window_scaling",
                flag(self.window_scaling),
                flag(other.window_scaling),
            ),
            ("net.ipv4.tcp_sack", flag(self.sack), flag(other.sack)),
            (
                "net.ipv4.tcp_timestamps",
                flag(self.timestamps),
                flag(other.timestamps),
            ),
            (
                "net.ipv4.tcp_moderate_rcvbuf",
                flag(self.receive_autotuning),
                flag(other.receive_autotuning),
            ),
            ("net.ipv4.tcp_ecn", number(self.ecn), number(other.ecn)),
            (
                "net.ipv4.tcp_congestion_control",
                control(self),
                control(other),
            ),
        ]
        .into_iter()
        .filter(|(_, ours, theirs)| ours != theirs && !ours.is_empty() && !theirs.is_empty())
        .collect()
    }
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Namespaces answer in the thread that asks.
fn setting(path: &str) -> Option<String> {
    text(&format!("/proc/sys/net/{path}"))
}

fn three(path: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = setting(path)?
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    numbers?.try_into().ok()
}

/// Processor time of the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTime {
    /// Ran, nanoseconds.
    pub ran_ns: u64,
    /// Could have run but did not get a processor, nanoseconds.
    pub waited_ns: u64,
}

impl ThreadTime {
    /// So far; zero where the kernel does not say.
    pub(crate) fn so_far() -> Self {
        let line = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = line
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0));
        Self {
            ran_ns: numbers.next().unwrap_or(0),
            waited_ns: numbers.next().unwrap_or(0),
        }
    }

    /// What came since.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }

    /// Ran or wanted to.
    pub fn wanted_ns(&self) -> u64 {
        self.ran_ns.saturating_add(self.waited_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_read_and_equals_itself() {
        let facts = HostFacts::here();
        assert!(facts.receive_buffer_bytes.is_some() && facts.kernel.is_some());
        assert_eq!(facts.differences(&facts), []);
        let mut other = facts.clone();
        other.receive_buffer_bytes = Some([4096, 8192, 8192]);
        let differences = facts.differences(&other);
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].2, "4096 8192 8192");
        other.congestion_control = Some("\x1b[2Jbbr".to_owned());
        let told = facts.differences(&other.of_another());
        let [.., (_, _, theirs)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(theirs, " [2Jbbr");
    }
}
