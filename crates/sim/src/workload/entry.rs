//! What other logs say about a request, and how hosts and requests are made of it.

use std::collections::BTreeMap;

use super::{Host, REPLY_BYTES_MAX, Request, SECONDS_MAX, Workload};
use crate::engine::nanoseconds;

/// A request as another log has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When it was made, seconds from any origin.
    pub at_s: f64,
    /// Who made it.
    pub client: String,
    /// The server's name.
    pub host: String,
    /// The server's address, where the log has it.
    pub address: Option<String>,
    /// Length of the request, where the log has it.
    pub request_bytes: Option<u32>,
    /// Length of the reply.
    pub reply_bytes: u64,
    /// How long the reply took, where the log has it.
    pub far_s: Option<f64>,
}

impl Entry {
    /// Refuses what no study can use, as the log file would.
    pub(super) fn checked(self) -> Result<Self, String> {
        if self.reply_bytes > REPLY_BYTES_MAX {
            return Err(format!(
                "a reply of {} bytes is no web page",
                self.reply_bytes
            ));
        }
        match self.far_s {
            Some(far_s) if !(0.0..=SECONDS_MAX).contains(&far_s) => {
                Err(format!("no reply takes {far_s} s"))
            }
            _ => Ok(self),
        }
    }
}

/// What a server's handshake said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The largest window it offered.
    pub window_bytes: u64,
    /// Its maximum segment size; `None` where it named none.
    pub mss_bytes: Option<u32>,
}

/// What is taken where no log says anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    /// Length of a request.
    pub request_bytes: u32,
    /// How long a reply took.
    pub far_s: f64,
    /// A server's window.
    pub window_bytes: u64,
    /// A server's segment size; where handshakes are known, the most common.
    pub mss_bytes: u32,
}

impl Default for Assumptions {
    /// 328 bytes: the request of the 3GPP2 model (C.R1002); 1460 bytes:
    /// Ethernet; 64,240: 44 such segments, what hosts of today begin with.
    fn default() -> Self {
        Self {
            request_bytes: 328,
            far_s: 0.0,
            window_bytes: 64_240,
            mss_bytes: 1460,
        }
    }
}

/// Hosts and requests from entries and handshakes by name or address. Hosts
/// are numbered in the order of their names, time begins at the first request.
pub fn prepare(
    entries: &[Entry],
    handshakes: &BTreeMap<String, Handshake>,
    assumptions: Assumptions,
) -> Workload {
    let common_mss = most_common_mss(handshakes).unwrap_or(assumptions.mss_bytes);
    let mut hosts: BTreeMap<&str, Host> = BTreeMap::new();
    for entry in entries {
        let of_address = || handshakes.get(entry.address.as_deref()?);
        let seen = handshakes.get(&entry.host).or_else(of_address);
        let host = hosts.entry(&entry.host).or_insert_with(|| Host {
            name: entry.host.clone(),
            window_bytes: assumptions.window_bytes,
            mss_bytes: common_mss,
        });
        if let Some(seen) = seen {
            host.mss_bytes = seen.mss_bytes.unwrap_or(common_mss);
            host.window_bytes = seen.window_bytes.max(u64::from(host.mss_bytes));
        }
    }
    let host_numbers: BTreeMap<&str, u32> = hosts.keys().copied().zip(0..).collect();
    let mut clients: BTreeMap<&str, u32> = BTreeMap::new();
    let first_s = entries
        .iter()
        .map(|entry| entry.at_s)
        .fold(f64::INFINITY, f64::min);
    let requests = entries.iter().map(|entry| {
        let number = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        Request {
            at_ns: nanoseconds(entry.at_s - first_s),
            client: *clients.entry(&entry.client).or_insert(number),
            host: host_numbers.get(entry.host.as_str()).copied().unwrap_or(0),
            request_bytes: entry.request_bytes.unwrap_or(assumptions.request_bytes),
            reply_bytes: entry.reply_bytes,
            far_ns: nanoseconds(entry.far_s.unwrap_or(assumptions.far_s)),
        }
    });
    let mut workload = Workload {
        requests: requests.collect(),
        hosts: hosts.into_values().collect(),
        duration_ns: 0,
    };
    workload.sort();
    workload.duration_ns = workload.requests.last().map_or(0, |last| last.at_ns + 1);
    workload
}

fn most_common_mss(handshakes: &BTreeMap<String, Handshake>) -> Option<u32> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for mss_bytes in handshakes
        .values()
        .filter_map(|handshake| handshake.mss_bytes)
    {
        *counts.entry(mss_bytes).or_insert(0) += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(mss_bytes, _)| mss_bytes)
}

/// Scheme, user and port taken off a URL: its host in lower case.
pub(super) fn host_of_url(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let host_port = authority.rsplit('@').next()?;
    let host = match host_port.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => host_port.split(':').next()?,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    (!host.is_empty() && host.chars().all(is_plain)).then(|| host.to_ascii_lowercase())
}

/// Days from 1 January 1970 to a date of the Gregorian calendar; `None` where
/// there is no such day.
pub(super) fn days_from_epoch(year: i64, month: u32, day: u32) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_max = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if day == 0 || day > days_max || !(1970..=9999).contains(&year) {
        return None;
    }
    // Years begin in March, so that the leap day is the last of its year.
    let years = if month > 2 { year } else { year - 1 };
    let months = i64::from((month + 9) % 12);
    let in_year = (153 * months + 2) / 5 + i64::from(day) - 1;
    Some(years * 365 + years / 4 - years / 100 + years / 400 + in_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_hosts() {
        assert_eq!(days_from_epoch(1970, 1, 1), Some(0));
        assert_eq!(days_from_epoch(2000, 2, 29), Some(11_016));
        assert_eq!(days_from_epoch(1997, 7, 1), Some(10_043));
        assert_eq!(days_from_epoch(2001, 2, 29), None);
        assert_eq!(days_from_epoch(2001, 13, 1), None);
        let host = |url| host_of_url(url);
        assert_eq!(
            host("http://WWW.example.com:8080/x?y"),
            Some("www.example.com".into())
        );
        assert_eq!(host("example.com:443"), Some("example.com".into()));
        assert_eq!(
            host("https://u:p@[2001:db8::1]:8443/"),
            Some("2001:db8::1".into())
        );
        assert_eq!(host("http:///nothing"), None);
        assert_eq!(host("http://bad host/"), None);
    }

    #[test]
    fn handshakes_are_found_by_name_or_address_and_gaps_are_filled() {
        let entry = |at_s, host: &str, address: Option<&str>| Entry {
            at_s,
            client: format!("client of {host}"),
            host: host.into(),
            address: address.map(str::to_owned),
            request_bytes: None,
            reply_bytes: 1000,
            far_s: None,
        };
        let handshake = |window_bytes, mss_bytes| Handshake {
            window_bytes,
            mss_bytes,
        };
        let handshakes = BTreeMap::from([
            ("a".to_owned(), handshake(8760, Some(536))),
            ("192.0.2.1".to_owned(), handshake(100, None)),
            ("c".to_owned(), handshake(1, Some(536))),
        ]);
        let entries = [
            entry(105.0, "b", Some("192.0.2.1")),
            entry(100.0, "a", None),
            entry(101.0, "d", None),
        ];
        let workload = prepare(&entries, &handshakes, Assumptions::default());
        let hosts: Vec<_> = workload
            .hosts
            .iter()
            .map(|host| (host.window_bytes, host.mss_bytes))
            .collect();
        assert_eq!(hosts, [(8760, 536), (536, 536), (64_240, 536)]);
        let times: Vec<_> = workload
            .requests
            .iter()
            .map(|one| (one.at_ns / 1_000_000_000, one.host))
            .collect();
        assert_eq!(times, [(0, 0), (1, 2), (5, 1)]);
        assert!(
            workload
                .requests
                .iter()
                .all(|request| request.request_bytes == 328)
        );
    }
}
