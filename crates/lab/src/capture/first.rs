//! When the first byte of a file passed at the server's side. Whatever lies between, none of it can have crossed the link before.

use std::net::Ipv4Addr;

use super::pcap::packets;
use super::transfer::shown;

/// Frames of a capture there: a log-in and a listing of a thousand files take less, and the rest of a copy tells nothing more.
pub(super) const FRAMES_MAX: usize = 2_000;

/// The beginning of a copy as seen at the server's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtServer {
    /// The first data that the server gave of a file.
    pub(crate) first_read_ns: Option<u64>,
    /// The first data that it was given.
    pub(crate) first_write_ns: Option<u64>,
    /// What passed later is not known.
    pub(crate) seen_until_ns: u64,
}

/// Reads a capture file; `None` where it is none.
pub(crate) fn at_server(
    file: &[u8],
    client: Ipv4Addr,
    server: (Ipv4Addr, u16),
) -> Option<AtServer> {
    let shown = shown(file, client, server)?;
    let is_full = packets(file)?.count() >= FRAMES_MAX;
    let last_ns = packets(file)?.last().map(|packet| packet.time_ns);
    Some(AtServer {
        first_read_ns: shown.first_read_ns,
        first_write_ns: shown.first_write_ns,
        seen_until_ns: last_ns.filter(|_| is_full).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::super::pcap::tests::file;
    use super::*;

    #[test]
    fn a_capture_that_is_full_knows_nothing_of_what_came_later() {
        let seen_until_ns = |frames: usize| {
            let times = (0..frames as u64).map(|at| (at, vec![0; 60]));
            let file = file(&times.collect::<Vec<_>>());
            let server = (Ipv4Addr::new(10, 2, 0, 2), 445);
            let seen = at_server(&file, Ipv4Addr::new(10, 1, 0, 2), server);
            seen.map(|seen| seen.seen_until_ns)
        };
        assert_eq!(seen_until_ns(0), Some(u64::MAX));
        assert_eq!(seen_until_ns(FRAMES_MAX - 1), Some(u64::MAX));
        assert_eq!(seen_until_ns(FRAMES_MAX), Some(FRAMES_MAX as u64 - 1));
    }
}
