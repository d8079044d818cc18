//! What the zstd command line does with a pair, and names for its bytes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::corpora::Pair;

/// Bytes of the second version.
pub struct Zstd {
    /// `zstd -3 --long=31` alone.
    pub alone: u64,
    /// With `--patch-from` the first version.
    pub patch_from: u64,
}

/// Runs both.
pub fn zstd(pair: &Pair) -> Result<Zstd, String> {
    let folder = std::env::temp_dir().join(format!("farhaul-reduce-{}", std::process::id()));
    let sizes = sizes(pair, &folder).map_err(|error| format!("zstd: {error}"));
    let _ = fs::remove_dir_all(&folder);
    sizes
}

fn sizes(pair: &Pair, folder: &Path) -> std::io::Result<Zstd> {
    fs::create_dir_all(folder)?;
    let (first, second, output) = (folder.join("1"), folder.join("2"), folder.join("zst"));
    fs::write(&first, &pair.first)?;
    fs::write(&second, &pair.second)?;
    let run = |more: Option<String>| {
        let mut command = Command::new("zstd");
        command
            .args(["-3", "--long=31", "-q", "-f"])
            .args(more)
            .arg(&second)
            .arg("-o")
            .arg(&output);
        if !command.status()?.success() {
            return Err(std::io::Error::other("the command failed"));
        }
        Ok(fs::metadata(&output)?.len())
    };
    let alone = run(None)?;
    let patch_from = run(Some(format!("--patch-from={}", first.display())))?;
    Ok(Zstd { alone, patch_from })
}

/// Hash of the bytes, as `sha256sum` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
