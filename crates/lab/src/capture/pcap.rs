//! Capture files with nanosecond times, as tcpdump and the emulator write them.

/// Magic number of a pcap file with nanoseconds, in the writer's byte order.
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// A frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    /// When the kernel saw it, since 1970.
    pub(crate) time_ns: u64,
    /// As much of it as was kept.
    pub(crate) bytes: &'a [u8],
    /// Its whole length.
    pub(crate) length: usize,
}

/// The frames of a capture file in their order; `None` where it is no such file. A record that is
/// cut off by the end of the file is left out.
pub(crate) fn packets(file: &[u8]) -> Option<impl Iterator<Item = Packet<'_>>> {
    if word(file, 0)? != MAGIC_NS || file.len() < FILE_HEADER_BYTES {
        return None;
    }
    let mut at = FILE_HEADER_BYTES;
    Some(std::iter::from_fn(move || {
        let packet = record(file, at)?;
        at += RECORD_HEADER_BYTES + packet.bytes.len();
        Some(packet)
    }))
}

fn record(file: &[u8], at: usize) -> Option<Packet<'_>> {
    let start = at.checked_add(RECORD_HEADER_BYTES)?;
    let end = start.checked_add(word(file, at + 8)? as usize)?;
    Some(Packet {
        time_ns: u64::from(word(file, at)?) * 1_000_000_000 + u64::from(word(file, at + 4)?),
        bytes: file.get(start..end)?,
        length: word(file, at + 12)? as usize,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A capture file of frames with their times.
    pub(crate) fn file(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut file = MAGIC_NS.to_ne_bytes().to_vec();
        file.resize(FILE_HEADER_BYTES, 0);
        for (time_ns, frame) in frames {
            let length = frame.len() as u32;
            let seconds = (time_ns / 1_000_000_000) as u32;
            let rest_ns = (time_ns % 1_000_000_000) as u32;
            for number in [seconds, rest_ns, length, length] {
                file.extend(number.to_ne_bytes());
            }
            file.extend(frame);
        }
        file
    }

    #[test]
    fn a_capture_may_end_anywhere() {
        let whole = file(&[(1_000_000_005, vec![1; 60]), (2_000_000_000, vec![2; 70])]);
        let found: Vec<_> = packets(&whole).unwrap().collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].time_ns, found[1].length), (1_000_000_005, 70));
        for length in FILE_HEADER_BYTES..whole.len() {
            let count = packets(&whole[..length]).unwrap().count();
            assert_eq!(count, usize::from(length >= FILE_HEADER_BYTES + 76));
        }
        assert!(packets(&whole[..3]).is_none());
        assert!(packets(&[0; 24]).is_none());
    }
}
