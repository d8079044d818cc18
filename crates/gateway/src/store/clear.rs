//! Removes what a store holds from its folder.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::StoreError;
use super::files::{Files, Folder};

/// Removes files of segments. All are tried; the first that fails is told.
pub(super) fn remove(files: &impl Files, numbers: impl IntoIterator<Item = u32>) -> io::Result<()> {
    let removed = numbers.into_iter().map(|file| files.remove(file));
    removed.fold(Ok(()), Result::and)
}

/// Removes the segments of both directions from a peer's folder that this gateway does not use, as one without memory.
pub fn clear_unused(path: &Path) -> Result<(), StoreError> {
    let directions = ["sent", "received"].map(|direction| clear_one(&path.join(direction)));
    directions.into_iter().fold(Ok(()), Result::and)
}

fn clear_one(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::Disk {
        what: "cannot clear",
        path: path.to_owned(),
        error,
    };
    match fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        facts => facts.map_err(failed)?,
    };
    // Another gateway may use it.
    let files = Folder::open(path)?;
    let numbers = files.numbers().map_err(failed)?;
    remove(&files, numbers).map_err(failed)
}
