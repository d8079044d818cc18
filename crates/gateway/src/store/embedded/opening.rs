//! What is in a store's folder when it is opened: whose it is, and what of it can be used.

use std::io;

use super::super::catalog::{Entry, Key};
use super::super::files::Files;
use super::super::identity::Label;
use super::{Embedded, FILE_BYTES, FILE_SLOTS, FOOTERS_BYTES, newest, read_footers};
use crate::lock::lock;
use crate::store::StoreError;

/// Of the files that cannot be used so many are named; the rest is counted.
const NAMED_MAX: u64 = 4;

impl<F: Files> Embedded<F> {
    /// Takes the label that is there, or makes one and removes what has none.
    pub(super) fn claim(&mut self) -> Result<(), StoreError> {
        let label = self
            .files
            .label()
            .map_err(|e| self.failed("cannot read the label of", e))?;
        let known = label.as_deref().and_then(Label::read);
        if let Some(known) = known.filter(|known| known.place == self.label.place) {
            self.label = known;
            return Ok(());
        }
        let numbers = self
            .files
            .numbers()
            .map_err(|e| self.failed("cannot list", e))?;
        lock(&self.catalog).counts.foreign += u64::from(label.is_some() || !numbers.is_empty());
        // What is no file is told of later.
        let is_file = |file: &u32| self.files.length(*file).is_ok();
        let files: Vec<u32> = numbers.into_iter().filter(is_file).collect();
        if !files.is_empty() {
            self.tell_why_emptied(label.is_some(), known.is_some());
        }
        for file in files {
            self.files
                .remove(file)
                .map_err(|e| self.failed("cannot empty", e))?;
        }
        let bytes = self.label.bytes();
        self.files
            .set_label(&bytes)
            .map_err(|e| self.failed("cannot label", e))
    }

    /// Says that what was there is forgotten: everything crosses the link once more, and nobody should have to find out why.
    fn tell_why_emptied(&self, is_there: bool, is_readable: bool) {
        let why = match (is_there, is_readable) {
            (false, _) => "is missing",
            (true, false) => "is damaged, or of another version",
            (true, true) => "is of another machine or disk",
        };
        let counts = &mut lock(&self.catalog).counts;
        counts.unusable_files += u64::from(is_there && !is_readable);
        let path = self.files.path().display();
        counts.problem = Some(format!(
            "{path}: `store`, which says of what the segments are, {why}: what they held is forgotten"
        ));
    }

    /// Reads the footers of all files.
    pub(super) fn recover(&mut self) -> Result<(), StoreError> {
        let numbers = self
            .files
            .numbers()
            .map_err(|e| self.failed("cannot list", e))?;
        let mut footers = vec![0; FOOTERS_BYTES];
        for file in numbers {
            let is_removable = match read_footers(&self.files, file, &mut footers) {
                Ok(()) => {
                    self.there.insert(file);
                    self.recover_file(file, &footers);
                    continue;
                }
                Err(error) => self.do_without(file, &error),
            };
            if file >= self.files_max && is_removable {
                self.files
                    .remove(file)
                    .map_err(|e| self.failed("cannot shrink", e))?;
            }
        }
        Ok(())
    }

    /// Counts what cannot be used and says why; whether it is a file at all.
    fn do_without(&mut self, file: u32, error: &io::Error) -> bool {
        let length = self.files.length(file);
        let consequence = match length {
            Ok(bytes) if bytes < FILE_BYTES => {
                // Told once. If it stays, it is made again when it is needed.
                let _ = self.files.remove(file);
                "what it held is forgotten"
            }
            Ok(_) => "what it holds is not used",
            Err(_) => "the store does without it; remove it",
        };
        if length.is_err() && file < self.files_max {
            self.barred.insert(file);
            lock(&self.catalog).counts.barred_files = self.barred.len() as u64;
        }
        let error = StoreError::Disk {
            what: "cannot use",
            path: self.files.path_of(file),
            error: io::Error::other(format!("{error}: {consequence}")),
        };
        let counts = &mut lock(&self.catalog).counts;
        counts.unusable_files += 1;
        if counts.unusable_files <= NAMED_MAX {
            let before = counts.problem.take().map(|before| before + "; ");
            counts.problem = Some(before.unwrap_or_default() + &error.to_string());
        }
        length.is_ok()
    }

    /// What stands in the place of files of segments, if anything does.
    pub(super) fn tell_barred(&self) -> Option<String> {
        let first = self.files.path_of(*self.barred.first()?);
        let first = first.display();
        let others = self.barred.len() - 1;
        Some(match others {
            0 => format!("{first} is in the way of a file of segments"),
            _ => format!("{first} and {others} more are in the way of files of segments"),
        })
    }

    fn recover_file(&mut self, file: u32, footers: &[u8]) {
        let mut catalog = lock(&self.catalog);
        for nth in (0..FILE_SLOTS).rev() {
            let slot = file * FILE_SLOTS + nth;
            let Some((footer, older)) = newest(footers, nth as usize, self.label.store) else {
                self.free.push(slot);
                continue;
            };
            self.versions.insert(slot, footer.version);
            let key = Key {
                log: footer.log,
                number: footer.number,
            };
            if catalog.entries.contains_key(&key) {
                self.free.push(slot);
                continue;
            }
            let entry = Entry {
                slot,
                footer,
                older: older.map(Box::new),
            };
            catalog.entries.insert(key, entry);
        }
    }
}
