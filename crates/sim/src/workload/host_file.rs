//! The host file: one server a line, `id name window_bytes mss_bytes`, `#` for
//! comments. Ids are any numbers; requests name them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Host;
use super::lines::{Kept, TooManyBadLines, number, read_lines};

/// Hosts by id.
pub type Hosts = BTreeMap<u64, Host>;

/// Reads a host file.
///
/// # Errors
/// [`TooManyBadLines`] beyond `bad_lines_max`.
pub fn read_hosts(text: &str, bad_lines_max: usize) -> Result<Kept<Hosts>, TooManyBadLines> {
    let mut hosts = Hosts::new();
    let lines = read_lines(text, bad_lines_max, |line| {
        let (id, host) = read_host(line)?;
        if hosts.contains_key(&id) {
            return Err(format!("host {id} was there before"));
        }
        hosts.insert(id, host);
        Ok(Some(()))
    })?;
    Ok(lines.map(|_| hosts))
}

fn read_host(line: &str) -> Result<(u64, Host), String> {
    let mut words = line.split_whitespace();
    let id = number(words.next(), "host id")?;
    let name = words.next().ok_or("the name is missing")?.to_owned();
    let window_bytes: u64 = number(words.next(), "window in bytes")?;
    let mss_bytes: u32 = number(words.next(), "segment size in bytes")?;
    if words.next().is_some() {
        return Err("there is more than id, name, window and segment size".to_owned());
    }
    if !(88..=65_495).contains(&mss_bytes) {
        return Err(format!("no segment has {mss_bytes} bytes"));
    }
    if window_bytes < u64::from(mss_bytes) {
        return Err(format!(
            "a window of {window_bytes} bytes holds no segment of {mss_bytes}"
        ));
    }
    Ok((
        id,
        Host {
            name,
            window_bytes,
            mss_bytes,
        },
    ))
}

/// A host file of these hosts; ids count from 0.
pub fn write_hosts(hosts: &[Host]) -> String {
    let mut text = String::from("# id name window_bytes mss_bytes\n");
    for (id, host) in hosts.iter().enumerate() {
        let _ = writeln!(
            text,
            "{id} {} {} {}",
            host.name, host.window_bytes, host.mss_bytes
        );
    }
    text
}
