//! Captures of pings on both hosts: how long each took on its way, one way.
//!
//! Both hosts are on one machine and so on one clock, which makes one-way
//! times as good as round trips. tcpdump writes the kernel's time stamps of
//! each packet: leaving a host just before its interface, arriving just after.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::capture::{packets, start_tcpdump};
use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::topology::{Side, WAN};

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
            let which = [WAN, "--immediate-mode", "-s", "64", "icmp"];
            start_tcpdump(lab, role(side), &namespace, &path.to_string_lossy(), &which)?;
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

/// The time of each echo message in a pcap file, in nanoseconds.
fn echoes(file: &[u8]) -> Option<HashMap<Echo, u64>> {
    let seen = packets(file)?.filter_map(|packet| Some((echo(packet.bytes)?, packet.time_ns)));
    Some(seen.collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::file;

    /// An ICMP message of a kind with its number.
    fn message(kind: u8, sequence: u16) -> Vec<u8> {
        let mut frame = vec![0u8; 14 + 20 + 8];
        frame[14] = 0x45;
        frame[34] = kind;
        frame[40..42].copy_from_slice(&sequence.to_be_bytes());
        frame
    }

    #[test]
    fn echo_messages_are_found_with_their_times() {
        let whole = file(&[
            (1_000_000_005, message(8, 7)),
            (1_000_000_006, message(3, 7)),
            (2_000_000_000, message(0, 7)),
        ]);
        let found = echoes(&whole).unwrap();
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
        let header_bytes = file(&[]).len();
        let whole = file(&[
            (1_000_000_005, message(8, 1)),
            (2_000_000_005, message(8, 2)),
        ]);
        for length in header_bytes..whole.len() {
            let found = echoes(&whole[..length]).unwrap();
            assert_eq!(found.len(), (length - header_bytes) / 58);
        }
        assert!(echoes(&whole[..3]).is_none());
        assert!(echoes(&[0; 24]).is_none());
    }
}
