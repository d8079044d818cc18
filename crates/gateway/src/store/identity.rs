//! Whose a store is: a number drawn at random, and what names the machine and the disk it was drawn on.
//!
//! A disk image that is copied to another machine has the store in it, and two stores of one number would be taken for one. So the
//! number is drawn anew where machine or disk are not what they were, and what the store holds is forgotten.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};

const MAGIC: [u8; 8] = *b"FHSTORE\x01";
const HASHED_BYTES: usize = 56;
/// Bytes of a label.
#[cfg(any(test, feature = "fuzz"))]
pub(super) const LABEL_BYTES: usize = HASHED_BYTES + 32;

/// A label: which store, and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) store: u128,
    pub(super) place: [u8; 32],
}

impl Label {
    /// A new number at this place.
    pub(super) fn draw(place: [u8; 32]) -> Self {
        let mut bytes = [0; 16];
        // Without randomness the gateway has no keys either, so it does not get here.
        let _ = SystemRandom::new().fill(&mut bytes);
        Self {
            store: u128::from_le_bytes(bytes),
            place,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.store.to_le_bytes());
        bytes.extend_from_slice(&self.place);
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (hashed, hash) = bytes.split_at_checked(HASHED_BYTES)?;
        if !hashed.starts_with(&MAGIC) || blake3::hash(hashed).as_bytes() != hash {
            return None;
        }
        let (store, place) = hashed.get(MAGIC.len()..)?.split_first_chunk::<16>()?;
        Some(Self {
            store: u128::from_le_bytes(*store),
            place: place.try_into().ok()?,
        })
    }
}

/// What names this machine and the disk under `path`, as far as the system tells. The number of a device may change from one
/// boot to the next, its serial number does not.
pub(crate) fn place(path: &Path) -> [u8; 32] {
    let mut names = vec![
        text("/etc/machine-id"),
        text("/sys/class/dmi/id/product_uuid"),
    ];
    if let Ok(facts) = fs::metadata(path) {
        let device = facts.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let folder = format!("/sys/dev/block/{major}:{minor}");
        for name in [
            "dm/uuid",
            "wwid",
            "serial",
            "device/wwid",
            "../wwid",
            "../serial",
            "../device/wwid",
        ] {
            names.push(text(&format!("{folder}/{name}")));
        }
    }
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

fn text(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariant_10_a_label_has_its_golden_bytes() {
        let label = Label {
            store: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            place: [9; 32],
        };
        let bytes = label.bytes();
        assert_eq!(bytes.len(), LABEL_BYTES);
        assert!(bytes.starts_with(b"FHSTORE\x01\xff\xee\xdd\xcc\xbb\xaa\x99\x88\x77"));
        assert_eq!(Label::read(&bytes), Some(label));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Label::read(&changed), None);
            assert_eq!(Label::read(&bytes[..at]), None);
        }
    }

    #[test]
    fn a_place_stays_what_it_is_and_numbers_differ() {
        let path = std::env::temp_dir();
        assert_eq!(place(&path), place(&path));
        assert_ne!(Label::draw([0; 32]).store, Label::draw([0; 32]).store);
    }
}
