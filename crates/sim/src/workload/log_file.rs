//! The log file: one request a line,
//! `at_s host_id request_bytes reply_bytes far_s [client]`, `#` for comments.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::host_file::Hosts;
use super::lines::{Kept, TooManyBadLines, number, read_lines, time_s};
use super::{REPLY_BYTES_MAX, Request, SECONDS_MAX, Workload};
use crate::engine::{nanoseconds, seconds};

/// Reads a log file whose requests go to these hosts.
///
/// # Errors
/// [`TooManyBadLines`] beyond `bad_lines_max`.
pub fn read_log(
    text: &str,
    hosts: Hosts,
    bad_lines_max: usize,
) -> Result<Kept<Workload>, TooManyBadLines> {
    let places: BTreeMap<u64, u32> = hosts.keys().copied().zip(0..).collect();
    let lines = read_lines(text, bad_lines_max, |line| {
        read_request(line, &places).map(Some)
    })?;
    Ok(lines.map(|requests| {
        let last_ns = requests.iter().map(|request: &Request| request.at_ns).max();
        let mut workload = Workload {
            hosts: hosts.into_values().collect(),
            requests,
            duration_ns: last_ns.map_or(0, |last_ns| last_ns + 1),
        };
        workload.sort();
        workload
    }))
}

fn read_request(line: &str, places: &BTreeMap<u64, u32>) -> Result<Request, String> {
    let mut words = line.split_whitespace();
    let at_s = time_s(words.next(), "time in seconds")?;
    let host_id: u64 = number(words.next(), "host id")?;
    let request_bytes = number(words.next(), "request size in bytes")?;
    let reply_bytes: u64 = number(words.next(), "reply size in bytes")?;
    let far_s = time_s(words.next(), "time in the far network in seconds")?;
    let client = match words.next() {
        Some(word) => number(Some(word), "client number")?,
        None => 0,
    };
    if at_s > SECONDS_MAX || far_s > SECONDS_MAX {
        return Err("a time lies beyond a day".to_owned());
    }
    if reply_bytes > REPLY_BYTES_MAX {
        return Err(format!("a reply of {reply_bytes} bytes is no web page"));
    }
    let host = places.get(&host_id).copied();
    Ok(Request {
        at_ns: nanoseconds(at_s),
        client,
        host: host.ok_or_else(|| format!("host {host_id} is not in the host file"))?,
        request_bytes,
        reply_bytes,
        far_ns: nanoseconds(far_s),
    })
}

/// A log file of these requests; host ids are places in the host list.
pub fn write_log(workload: &Workload) -> String {
    let mut text = String::from("# at_s host_id request_bytes reply_bytes far_s client\n");
    for request in &workload.requests {
        let _ = writeln!(
            text,
            "{:.6} {} {} {} {:.6} {}",
            seconds(request.at_ns),
            request.host,
            request.request_bytes,
            request.reply_bytes,
            seconds(request.far_ns),
            request.client
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{read_hosts, write_hosts};
    use super::*;

    const HOSTS: &str = "# hosts\n7 a.example 8760 1460\n3 b.example 32767 536\n";

    #[test]
    fn both_files_come_back_as_written() {
        let hosts = read_hosts(HOSTS, 0).unwrap().kept;
        let log = "1.5 7 300 1000 0.25 4\n0.5 3 200 0 0\n";
        let first = read_log(log, hosts, 0).unwrap().kept;
        // Hosts are ordered by id, requests by time.
        let seen: Vec<_> = first
            .requests
            .iter()
            .map(|request| (request.host, request.client))
            .collect();
        assert_eq!(seen, [(0, 0), (1, 4)]);
        let hosts = read_hosts(&write_hosts(&first.hosts), 0).unwrap().kept;
        assert_eq!(read_log(&write_log(&first), hosts, 0).unwrap().kept, first);
    }

    #[test]
    fn malformed_lines_are_counted_and_named_up_to_a_limit() {
        let hosts = || read_hosts(HOSTS, 0).unwrap().kept;
        let log = "1 7 300 1000 0\n\n# fine\nx 7 300 1000 0\n1 9 300 1000 0\n1 7 300 -1 0\n1 7 300 5 nan\n2 3 1 1 1\n";
        let read = read_log(log, hosts(), 4).unwrap();
        assert_eq!((read.kept.requests.len(), read.bad_lines), (2, 4));
        let lines: Vec<usize> = read.bad.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 5, 6, 7]);
        assert!(read.bad[1].1.contains("host 9"), "{:?}", read.bad);
        let error = read_log(log, hosts(), 2).unwrap_err().to_string();
        assert!(
            error.contains("more than 2 malformed lines") && error.contains("line 4: `x`"),
            "{error}"
        );
    }

    #[test]
    fn impossible_hosts_are_refused() {
        let bad = "1 a 8760 1460\n1 b 8760 1460\n2 c 100 1460\n3 d 8760 10\n4 e 1 2 3\n5 f 8760\n";
        let read = read_hosts(bad, 10).unwrap();
        assert_eq!((read.kept.len(), read.bad_lines), (1, 5));
        assert!(read_log("", read.kept, 0).unwrap().kept.requests.is_empty());
    }
}
