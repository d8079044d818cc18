//! Files of segments that somebody removed while the gateway runs.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::{Embedded, FILE_SLOTS};
use crate::lock::lock;
use crate::store::files::Files;

impl<F: Files> Embedded<F> {
    pub(super) fn is_gone(&self, file: u32) -> bool {
        let length = self.files.length(file);
        length.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Forgets what was in files that are gone. Their slots would take nothing that is written; the files are made again when there must
    /// be room. All are looked at: where one was removed there are mostly more.
    pub(super) fn forget_gone(&mut self) {
        let there = std::mem::take(&mut self.there);
        let (gone, there) = there.into_iter().partition(|&file| self.is_gone(file));
        self.there = there;
        self.forget_files(&gone);
    }

    fn forget_files(&mut self, gone: &BTreeSet<u32>) {
        let Some(first) = gone.first() else {
            return;
        };
        let is_kept = |slot: u32| !gone.contains(&(slot / FILE_SLOTS));
        self.free.retain(|&slot| is_kept(slot));
        self.versions.retain(|&slot, _| is_kept(slot));
        self.pending
            .retain(|_, pending| is_kept(pending.entry.slot));
        self.touched.retain(|file| !gone.contains(file));
        let mut catalog = lock(&self.catalog);
        catalog.entries.retain(|_, entry| is_kept(entry.slot));
        let counts = &mut catalog.counts;
        counts.unusable_files += gone.len() as u64;
        let first = self.files.path_of(*first);
        let first = first.display();
        counts.problem = Some(match gone.len() - 1 {
            0 => format!("{first} was removed: what it held is forgotten"),
            others => {
                format!("{first} and {others} more were removed: what they held is forgotten")
            }
        });
    }
}
