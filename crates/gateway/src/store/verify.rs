//! Reads everything stores hold and compares it with its hashes. A gateway may be writing to them meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::embedded::{
    FILE_SLOTS, FOOTERS_AT, FOOTERS_BYTES, found, newest, place_of, read_footers,
};
use super::files::{Files, Folder};
use super::footer::Footer;
use super::identity::Label;

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which.
    pub path: PathBuf,
    /// What the system says, or what is there instead.
    pub why: String,
}

/// What was found in one store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Its folder.
    pub path: PathBuf,
    /// Segments that have a footer.
    pub segments: u64,
    /// Bytes of them that are as they were written.
    pub bytes: u64,
    /// Blocks that are not.
    pub bad_blocks: u64,
    /// Files that cannot be used, and why.
    pub unreadable: Vec<Unreadable>,
}

/// Verifies every store below the folder of a configuration.
pub fn verify(path: &Path) -> io::Result<Vec<Verified>> {
    let mut all = Vec::new();
    for peer in fs::read_dir(path)? {
        for direction in ["sent", "received"] {
            let folder = peer.as_ref().map(|peer| peer.path().join(direction));
            let Ok(folder) = folder else { continue };
            if folder.is_dir() {
                all.push(verify_files(&Folder::look(&folder))?);
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// Verifies one store.
pub(super) fn verify_files(files: &impl Files) -> io::Result<Verified> {
    let mut verified = Verified {
        path: files.path().to_owned(),
        ..Verified::default()
    };
    let label = match files.label() {
        Ok(label) => label.as_deref().and_then(Label::read),
        Err(error) => {
            verified.note(files.path().to_owned(), &error);
            None
        }
    };
    let Some(label) = label else {
        if verified.unreadable.is_empty() && !files.numbers()?.is_empty() {
            let why = "`store`, which says of what these segments are, is missing or damaged: a gateway removes them";
            verified.note(files.path().to_owned(), &io::Error::other(why));
        }
        return Ok(verified);
    };
    let mut footers = vec![0; FOOTERS_BYTES];
    for file in files.numbers()? {
        if let Err(error) = read_footers(files, file, &mut footers) {
            verified.note(files.path_of(file), &error);
            continue;
        }
        for nth in 0..FILE_SLOTS {
            if let Some((footer, older)) = newest(&footers, nth as usize, label.store) {
                verify_slot(
                    files,
                    file * FILE_SLOTS + nth,
                    (footer, older),
                    label.store,
                    &mut verified,
                );
            }
        }
    }
    Ok(verified)
}

impl Verified {
    fn note(&mut self, path: PathBuf, error: &io::Error) {
        let why = error.to_string();
        self.unreadable.push(Unreadable { path, why });
    }
}

fn verify_slot(
    files: &impl Files,
    slot: u32,
    (mut footer, mut older): (Footer, Option<Footer>),
    store: u128,
    verified: &mut Verified,
) {
    verified.segments += 1;
    let (file, start) = place_of(slot);
    let read = |at: usize, into: &mut [u8]| files.read(file, start + at as u64, into);
    let mut bytes = Vec::new();
    loop {
        let there = found(&footer, older.as_ref(), read, &mut bytes);
        let said = footer.lengths.iter().zip(&there.lengths);
        let bad_blocks = said.filter(|(said, there)| said != there).count() as u64;
        if bad_blocks > 0 {
            // It may be written to at this moment.
            let mut footers = vec![0; FOOTERS_BYTES];
            let again = files.read(file, FOOTERS_AT, &mut footers);
            let again = again
                .ok()
                .and_then(|()| newest(&footers, (slot % FILE_SLOTS) as usize, store));
            if let Some((newer, before)) = again.filter(|(newer, _)| *newer != footer) {
                (footer, older) = (newer, before);
                continue;
            }
        }
        verified.bad_blocks += bad_blocks;
        verified.bytes += there
            .lengths
            .iter()
            .map(|&length| u64::from(length))
            .sum::<u64>();
        return;
    }
}
