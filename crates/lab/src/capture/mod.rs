//! Captures at the client's side, as from a switch's span port, on the WAN and at the server's side, and what they tell of a copy.

mod crossed;
mod first;
mod message;
mod pcap;
mod segment;
mod stream;
mod transfer;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::netns::Namespace;
use crate::topology::{LAN, Side, WAN};

pub(crate) use crossed::{Crossed, Speakers, crossed};
pub(crate) use first::{AtServer, at_server};
pub(crate) use pcap::packets;
#[cfg(test)]
pub(crate) use pcap::tests::file;
#[cfg(test)]
pub(crate) use transfer::Transfer;
pub(crate) use transfer::{Shown, Span, shown};

const START_PATIENCE: Duration = Duration::from_secs(10);
const END_PATIENCE: Duration = Duration::from_secs(10);
/// What was sent last has been seen by then, and is written: the kernel hands tcpdump what it has once a second.
const SETTLE: Duration = Duration::from_millis(1300);
/// tcpdump's buffer in KiB: at 52 Mbit/s more than a second. Only what fills it together, not every frame by itself, makes it that:
/// a frame alone has room for the longest there may be, and 32 MiB were full after 512.
const BUFFER_KIB: &str = "8192";
/// Towards a client that reads 8 MiB at once it comes as fast as the machine carries it.
const CLIENT_BUFFER_KIB: &str = "32768";

/// Bytes of frames that passed before a time; of each its time and length.
fn bytes_before(frames: &[(u64, u64)], time_ns: u64) -> u64 {
    let before = frames.iter().filter(|(at_ns, _)| *at_ns < time_ns);
    before.map(|(_, bytes)| bytes).sum()
}

/// Where a capture is taken: at the gateways, which have nothing else to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Towards the client, whole frames.
    Client,
    /// Towards the link, headers.
    Wan,
    /// Towards the server, whole frames, and only the beginning of a copy.
    Server,
}

impl Place {
    const ALL: [Self; 3] = [Self::Client, Self::Wan, Self::Server];

    fn role(self) -> &'static str {
        match self {
            Self::Client => "capture-client",
            Self::Wan => "capture-wan",
            Self::Server => "capture-server",
        }
    }

    fn side(self) -> Side {
        match self {
            Self::Client | Self::Wan => Side::A,
            Self::Server => Side::B,
        }
    }

    fn interface(self) -> &'static str {
        match self {
            Self::Client | Self::Server => LAN,
            Self::Wan => WAN,
        }
    }

    fn kept_bytes(self) -> &'static str {
        match self {
            Self::Client | Self::Server => "262144",
            Self::Wan => "96",
        }
    }

    fn buffer_kib(self) -> &'static str {
        match self {
            Self::Client => CLIENT_BUFFER_KIB,
            Self::Wan | Self::Server => BUFFER_KIB,
        }
    }

    /// It ends by itself after so many frames.
    fn frames_max(self) -> Option<usize> {
        (self == Self::Server).then_some(first::FRAMES_MAX)
    }
}

/// Captures that run.
#[derive(Debug)]
pub(crate) struct Captures {
    files: [PathBuf; 3],
}

/// What they have seen.
#[derive(Debug)]
pub(crate) struct Captured {
    /// The file of the client's side.
    pub(crate) client: Vec<u8>,
    /// That of the WAN.
    pub(crate) wan: Vec<u8>,
    /// That of the server's side.
    pub(crate) server: Vec<u8>,
    /// Frames that the kernel had no room for.
    pub(crate) missed: u64,
}

impl Captures {
    /// Starts them and waits until they see packets.
    pub(crate) fn start(lab: &mut Lab) -> Result<Self, LabError> {
        let file = |lab: &Lab, place: Place| {
            let name = format!("{}.pcap", place.role());
            lab.sandbox().folder().join(name)
        };
        for place in Place::ALL {
            let path = file(lab, place);
            start_one(lab, place, &path.to_string_lossy())?;
        }
        Ok(Self {
            files: Place::ALL.map(|place| file(lab, place)),
        })
    }

    /// Ends them and reads what they have written; their files are removed.
    pub(crate) fn finish(self, lab: &mut Lab) -> Result<Captured, LabError> {
        sleep(SETTLE);
        let mut missed = 0;
        for place in Place::ALL {
            lab.sandbox_mut().stop(place.role(), END_PATIENCE)?;
            missed += dropped(&log(lab, place.role()));
        }
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).during(|| format!("reading {}", path.display()))?;
            std::fs::remove_file(path).during(|| format!("removing {}", path.display()))?;
            Ok::<_, LabError>(bytes)
        };
        let [client, wan, server] = &self.files;
        Ok(Captured {
            client: read(client)?,
            wan: read(wan)?,
            server: read(server)?,
            missed,
        })
    }
}

fn log(lab: &Lab, role: &str) -> String {
    std::fs::read_to_string(lab.sandbox().log_path(role)).unwrap_or_default()
}

fn start_one(lab: &mut Lab, place: Place, file: &str) -> Result<(), LabError> {
    // One that was left running by a copy that failed.
    lab.sandbox_mut().stop(place.role(), END_PATIENCE)?;
    // The log of the one before says that it listens.
    let _ = std::fs::remove_file(lab.sandbox().log_path(place.role()));
    let namespace = lab.gateway(place.side())?;
    let frames_max = place.frames_max().map(|frames| frames.to_string());
    let mut which = vec![
        place.interface(),
        "-s",
        place.kept_bytes(),
        "-B",
        place.buffer_kib(),
    ];
    which.extend(frames_max.iter().flat_map(|frames| ["-c", frames]));
    start_tcpdump(lab, place.role(), &namespace, file, &which)
}

/// Starts tcpdump, which writes to `file`, and waits until it sees packets. `which` begins with the interface; any of tcpdump's words
/// may follow.
pub(crate) fn start_tcpdump(
    lab: &mut Lab,
    role: &str,
    namespace: &Namespace,
    file: &str,
    which: &[&str],
) -> Result<(), LabError> {
    let how = ["tcpdump", "-n", "-p", "-Z", "root"];
    let what = ["--time-stamp-precision=nano", "-w", file, "-i"];
    let words = [&how[..], &what, which].concat();
    lab.sandbox_mut().start(role, namespace, &words)?;
    let end = Instant::now() + START_PATIENCE;
    while !log(lab, role).contains("listening on") {
        if Instant::now() > end {
            return Err(LabError::NotReady {
                what: "tcpdump".to_owned(),
                why: format!("nothing within {} s", START_PATIENCE.as_secs()),
                log_tail: lab.sandbox().log_tail(role),
            });
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What tcpdump says at its end of frames it did not get.
fn dropped(log: &str) -> u64 {
    let counts = log
        .lines()
        .filter_map(|line| line.strip_suffix(" dropped by kernel"));
    let numbers = counts.filter_map(|count| count.split_whitespace().next()?.parse::<u64>().ok());
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_frames_are_read_from_what_tcpdump_says() {
        let log = "tcpdump: listening on lan0\n12 packets captured\n12 packets received by filter\n\
                   7 packets dropped by kernel\n";
        assert_eq!(dropped(log), 7);
        assert_eq!(dropped("listening on lan0\n"), 0);
    }
}
