//! Files of random bytes that are used once, so that nothing on the way can
//! know, cache or compress them.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{During, LabError};

/// A file that a server offers.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Name, the same on both sides.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Its SHA-256.
    pub sha256: [u8; 32],
}

impl Offered {
    /// A fresh one.
    pub fn new(folder: &Path, name: &str, size_bytes: u64) -> Result<Self, LabError> {
        let path = folder.join(name);
        let mut content = vec![0; usize::try_from(size_bytes).unwrap_or(usize::MAX)];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut content))
            .during(|| "reading /dev/urandom".to_owned())?;
        fs::write(&path, &content).during(|| format!("writing {}", path.display()))?;
        Ok(Self {
            name: name.to_owned(),
            path,
            size_bytes,
            sha256: Sha256::digest(&content).into(),
        })
    }

    /// Whether `fetched` holds the same bytes.
    pub fn is_equal(&self, fetched: &Path) -> bool {
        fs::read(fetched)
            .is_ok_and(|content| <[u8; 32]>::from(Sha256::digest(&content)) == self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_fresh_and_every_byte_counts() {
        let folder = std::env::temp_dir().join(format!("farhaul-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let first = Offered::new(&folder, "first", 30_000).unwrap();
        let second = Offered::new(&folder, "second", 30_000).unwrap();
        assert_ne!(first.sha256, second.sha256);
        assert!(first.is_equal(&first.path) && !first.is_equal(&second.path));
        let mut content = fs::read(&first.path).unwrap();
        content[29_999] ^= 1;
        fs::write(folder.join("flipped"), &content).unwrap();
        fs::write(folder.join("short"), &content[..29_999]).unwrap();
        assert!(!first.is_equal(&folder.join("flipped")));
        assert!(!first.is_equal(&folder.join("short")));
        assert!(!first.is_equal(&folder.join("absent")));
        fs::remove_dir_all(folder).unwrap();
    }
}
