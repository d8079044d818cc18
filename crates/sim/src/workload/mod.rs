//! What is asked for: hosts and requests, read from a host file and a log file
//! as the study had them, prepared from other logs, or generated.

mod capture;
mod clf;
mod entry;
mod generator;
mod har;
mod host_file;
mod lines;
mod log_file;
mod scale;
mod squid;

pub use capture::{Handshakes, read_handshakes};
pub use clf::read_clf;
pub use entry::{Assumptions, Entry, Handshake, prepare};
pub use generator::{Generator, SizeLaw, Weighted};
pub use har::read_har;
pub use host_file::{read_hosts, write_hosts};
pub use lines::{Kept, TooManyBadLines};
pub use log_file::{read_log, write_log};
pub use scale::{PARTS_MAX, Scaled};
pub use squid::read_squid;

/// Longest reply: 16 GiB. What is larger is no web page, and its segments would
/// take all the time there is.
pub const REPLY_BYTES_MAX: u64 = 1 << 34;
/// Longest log, and longest time of a reply: a day.
pub const SECONDS_MAX: f64 = 86_400.0;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its buffer: the largest window it offered.
    pub window_bytes: u64,
    /// Its maximum segment size.
    pub mss_bytes: u32,
}

/// A request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it was made, from the beginning of the log.
    pub at_ns: u64,
    /// Who made it, for clients that limit their connections.
    pub client: u32,
    /// Index of its host.
    pub host: u32,
    /// Length of the request, header included.
    pub request_bytes: u32,
    /// Length of the reply, header included.
    pub reply_bytes: u64,
    /// How long the far network took to deliver the reply.
    pub far_ns: u64,
}

/// Hosts and requests in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// The servers.
    pub hosts: Vec<Host>,
    /// The requests.
    pub requests: Vec<Request>,
    /// How long the log runs.
    pub duration_ns: u64,
}

impl Workload {
    /// Puts requests in the order of time; those of one time keep theirs.
    pub fn sort(&mut self) {
        self.requests.sort_by_key(|request| request.at_ns);
    }

    /// Bits of replies per second of the log.
    pub fn load_bit_per_s(&self) -> f64 {
        let bytes: u64 = self
            .requests
            .iter()
            .map(|request| request.reply_bytes)
            .sum();
        let span_s = crate::engine::seconds(self.duration_ns);
        if span_s > 0.0 {
            bytes as f64 * 8.0 / span_s
        } else {
            0.0
        }
    }
}
