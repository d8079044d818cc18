//! Footers and labels for fuzzers: bytes are refused, or written again as they were read.

use super::footer::{FOOTER_BYTES, Footer};
use super::identity::{LABEL_BYTES, Label};

/// The bytes as they are, and with the right hash in its place, so that they are `bytes` in all.
fn with_hash(data: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let mut all = vec![data.to_vec()];
    if let Some(hashed) = data.get(..bytes - 32) {
        all.push([hashed, blake3::hash(hashed).as_bytes()].concat());
    }
    all
}

/// A footer; whether it was one, or became one with the right hash.
pub fn footer(data: &[u8]) -> bool {
    let variants = with_hash(data, FOOTER_BYTES);
    let footers: Vec<Footer> = variants
        .iter()
        .filter_map(|one| Footer::read(one))
        .collect();
    for footer in &footers {
        // Bytes that mean nothing are not kept.
        assert_eq!(Footer::read(&footer.bytes()).as_ref(), Some(footer));
    }
    !footers.is_empty()
}

/// A label, the same way.
pub fn label(data: &[u8]) -> bool {
    let variants = with_hash(data, LABEL_BYTES);
    let labels: Vec<Label> = variants.iter().filter_map(|one| Label::read(one)).collect();
    for label in &labels {
        assert_eq!(Label::read(&label.bytes()), Some(*label));
    }
    !labels.is_empty()
}

/// A footer as one is written.
#[cfg(test)]
pub(crate) fn true_footer() -> Vec<u8> {
    let footer = Footer {
        store: 1,
        log: 2,
        number: 3,
        epoch: 4,
        version: 5,
        lengths: [60_000; farhaul_reduce::SEGMENT_BLOCKS],
        hashes: [[7; 16]; farhaul_reduce::SEGMENT_BLOCKS],
    };
    footer.bytes().to_vec()
}

/// A label as one is written.
#[cfg(test)]
pub(crate) fn true_label() -> Vec<u8> {
    let label = Label {
        store: 1,
        place: [2; 32],
    };
    label.bytes()
}
