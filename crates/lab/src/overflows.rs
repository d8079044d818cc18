//! Datagrams that a host dropped itself: they came over the link, and no program
//! read them in time.

use crate::error::{During, LabError};
use crate::netns::Namespace;

/// Datagrams that a namespace's sockets had no room for so far.
pub(crate) fn receiver_overflows(namespace: &Namespace) -> Result<u64, LabError> {
    namespace.within(own_receiver_overflows)?
}

/// Datagrams that the sockets of this thread's namespace had no room for so far
/// (`RcvbufErrors`); an error where the kernel does not say.
pub fn own_receiver_overflows() -> Result<u64, LabError> {
    const PLACE: &str = "/proc/thread-self/net/snmp";
    let text = std::fs::read_to_string(PLACE).during(|| format!("reading {PLACE}"))?;
    read_overflows(&text).ok_or_else(|| LabError::Invalid {
        what: PLACE.to_owned(),
        why: "it has no RcvbufErrors".to_owned(),
    })
}

fn read_overflows(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names
        .split_whitespace()
        .position(|name| name == "RcvbufErrors")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_are_read_by_name() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams RcvbufErrors Other\nUdp: 7 3 9\n";
        assert_eq!(read_overflows(text), Some(3));
        assert_eq!(read_overflows("Udp: A\nUdp: 1\n"), None);
    }
}
