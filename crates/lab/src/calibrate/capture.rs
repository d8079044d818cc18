//! Captures of pings on both hosts: how long each took on its way, one way.
//!
//! Both hosts are on one machine and so on one clock, which makes one-way
//! times as good as round trips. tcpdump writes the kernel's time stamps of
//! each packet: leaving a host just before its interface, arriving just after.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::netns::Namespace;
use crate::topology::{Side, WAN};

/// Magic number of a pcap file with nanoseconds, in the writer's byte order.
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const START_PATIENCE: Duration = Duration::from_secs(10);
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Which echo message: request or reply, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Echo {
    is_request: bool,
    sequence: u16,
}

/// Captures that run on both hosts.
pub(super) struct Captures {
    files: [PathBuf; 2],
}

impl Captures {
    /// Starts them and waits until they see packets.
    pub(super) fn start(lab: &mut Lab) -> Result<Self, LabError> {
        let file =
            |lab: &Lab, side: Side| lab.sandbox().folder().join(format!("{}.pcap", role(side)));
        for side in Side::BOTH {
            let namespace = lab.gateway(side)?;
            let path = file(lab, side);
            start_one(lab, &namespace, side, &path)?;
        }
        Ok(Self {
            files: Side::BOTH.map(|side| file(lab, side)),
        })
    }

    /// Ends them; one-way times in milliseconds of requests and of replies.
    pub(super) fn finish(self, lab: &mut Lab) -> Result<(Vec<f64>, Vec<f64>), LabError> {
        // What was sent last has been seen by now, but maybe not yet written.
        sleep(Duration::from_millis(300));
        for side in Side::BOTH {
            lab.sandbox_mut().stop(role(side), END_PATIENCE)?;
        }
        let read = |path: &Path| {
            let bytes = std::fs::read(path).during(|| format!("reading {}", path.display()))?;
            echoes(&bytes).ok_or_else(|| LabError::Invalid {
                what: path.display().to_string(),
                why: "not a pcap file with nanoseconds".to_owned(),
            })
        };
        let (left, right) = (read(&self.files[0])?, read(&self.files[1])?);
        let one_way = |from: &HashMap<Echo, u64>, to: &HashMap<Echo, u64>, is_request: bool| {
            let sent = from
                .iter()
                .filter(|(echo, _)| echo.is_request == is_request);
            sent.filter_map(|(echo, sent_ns)| Some((*to.get(echo)? as f64 - *sent_ns as f64) / 1e6))
                .collect::<Vec<f64>>()
        };
        Ok((one_way(&left, &right, true), one_way(&right, &left, false)))
    }
}

fn role(side: Side) -> &'static str {
    match side {
        Side::A => "capture-a",
        Side::B => "capture-b",
    }
}

fn start_one(
    lab: &mut Lab,
    namespace: &Namespace,
    side: Side,
    file: &Path,
) -> Result<(), LabError> {
    let file = file.to_string_lossy();
    #[rustfmt::skip]
    let words = [
        "tcpdump", "-i", WAN, "-n", "-p", "-s", "64", "-Z", "root", "--immediate-mode",
        "--time-stamp-precision=nano", "-w", &file, "icmp",
    ];
    lab.sandbox_mut().start(role(side), namespace, &words)?;
    let end = Instant::now() + START_PATIENCE;
    loop {
        let log = std::fs::read_to_string(lab.sandbox().log_path(role(side))).unwrap_or_default();
        if log.contains("listening on") {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(LabError::NotReady {
                what: "tcpdump".to_owned(),
                why: format!("nothing within {} s", START_PATIENCE.as_secs()),
                log_tail: lab.sandbox().log_tail(role(side)),
            });
        }
        sleep(Duration::from_millis(20));
    }
}

/// The time of each echo message in a pcap file, in nanoseconds.
fn echoes(file: &[u8]) -> Option<HashMap<Echo, u64>> {
    if read_u32(file, 0)? != MAGIC_NS {
        return None;
    }
    let mut echoes = HashMap::new();
    let mut at = FILE_HEADER_BYTES;
    while let Some(length) = read_u32(file, at + 8) {
        let time_ns =
            u64::from(read_u32(file, at)?) * 1_000_000_000 + u64::from(read_u32(file, at + 4)?);
        let start = at + RECORD_HEADER_BYTES;
        let end = start.checked_add(length as usize)?;
        // A record cut off by the end of the capture is left out.
        let Some(frame) = file.get(start..end) else {
            break;
        };
        if let Some(echo) = echo(frame) {
            echoes.insert(echo, time_ns);
        }
        at = end;
    }
    Some(echoes)
}

/// An ICMP echo message over IPv4 over Ethernet (RFC 792).
fn echo(frame: &[u8]) -> Option<Echo> {
    const ETHERNET_BYTES: usize = 14;
    let header_bytes = usize::from(frame.get(ETHERNET_BYTES)? & 0x0f) * 4;
    let icmp = frame.get(ETHERNET_BYTES + header_bytes..)?;
    let is_request = match icmp.first()? {
        8 => true,
        0 => false,
        _ => return None,
    };
    let sequence = u16::from_be_bytes(icmp.get(6..8)?.try_into().ok()?);
    Some(Echo {
        is_request,
        sequence,
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[(u32, u32, u8, u16)]) -> Vec<u8> {
        let mut file = MAGIC_NS.to_ne_bytes().to_vec();
        file.resize(FILE_HEADER_BYTES, 0);
        for (seconds, nanoseconds, kind, sequence) in records {
            let mut frame = vec![0u8; 14 + 20 + 8];
            frame[14] = 0x45;
            frame[34] = *kind;
            frame[40..42].copy_from_slice(&sequence.to_be_bytes());
            for number in [
                *seconds,
                *nanoseconds,
                frame.len() as u32,
                frame.len() as u32,
            ] {
                file.extend(number.to_ne_bytes());
            }
            file.extend(frame);
        }
        file
    }

    #[test]
    fn echo_messages_are_found_with_their_times() {
        let found = echoes(&file(&[(1, 5, 8, 7), (1, 6, 3, 7), (2, 0, 0, 7)])).unwrap();
        let request = Echo {
            is_request: true,
            sequence: 7,
        };
        let reply = Echo {
            is_request: false,
            sequence: 7,
        };
        assert_eq!(
            (found[&request], found[&reply]),
            (1_000_000_005, 2_000_000_000)
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_capture_may_end_anywhere() {
        let whole = file(&[(1, 5, 8, 1), (2, 5, 8, 2)]);
        for length in FILE_HEADER_BYTES..whole.len() {
            let found = echoes(&whole[..length]).unwrap();
            assert_eq!(found.len(), (length - FILE_HEADER_BYTES) / 58);
        }
        assert!(echoes(&whole[..3]).is_none());
        assert!(echoes(&[0; 24]).is_none());
    }
}
