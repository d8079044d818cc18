//! Copies of any length.
//!
//! The C library copies what is long with `rep movsb`. Processors in use today (Zen 3) need many times as long for that when source
//! and destination have nearly the same place in their pages, as two large buffers have as a rule. So what is long is copied in parts.

/// Short enough everywhere.
const PART_BYTES: usize = 2048;

/// Appends `bytes` to `into`.
pub(crate) fn append(into: &mut Vec<u8>, bytes: &[u8]) {
    into.reserve(bytes.len());
    for part in bytes.chunks(PART_BYTES) {
        into.extend_from_slice(part);
    }
}

/// Copies `bytes` to the beginning of `into`, as far as there is room.
pub(crate) fn copy(into: &mut [u8], bytes: &[u8]) {
    for (into, part) in into.chunks_mut(PART_BYTES).zip(bytes.chunks(PART_BYTES)) {
        let now = into.len().min(part.len());
        if let (Some(into), Some(part)) = (into.get_mut(..now), part.get(..now)) {
            into.copy_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied() {
        let bytes: Vec<u8> = (0..3 * PART_BYTES + 5).map(|at| (at % 251) as u8).collect();
        for length in (0..40)
            .chain(PART_BYTES - 2..PART_BYTES + 2)
            .chain([bytes.len()])
        {
            let bytes = &bytes[..length];
            let mut appended = vec![7; 3];
            append(&mut appended, bytes);
            assert_eq!(appended[3..], *bytes);
            let mut copied = vec![0; length];
            copy(&mut copied, bytes);
            assert_eq!(copied, bytes);
        }
    }
}
