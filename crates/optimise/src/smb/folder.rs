//! Folders that a client has listed, and how it goes through them: which file it will open next.

use std::collections::{BTreeMap, VecDeque};

use super::smb2::open::{ATTRIBUTE_DIRECTORY, FileId};
use super::smb2::query::Entry;

/// Folders of a connection that are remembered; the one listed longest ago is forgotten first.
const FOLDERS_MAX: usize = 8;
/// Names of a folder; what is listed behind them is not opened ahead.
const ENTRIES_MAX: usize = 16_384;
/// And what those may take.
const NAMES_BYTES_MAX: usize = 2 << 20;
/// Folders that are open at a time.
const OPEN_MAX: usize = 256;
/// Larger files are the client's to open: reading ahead serves them.
const SMALL_BYTES_MAX: u64 = 256 << 10;

/// Session, tree, and name in UTF-16.
pub type Path = (u64, u32, Vec<u8>);

/// One folder.
#[derive(Debug)]
struct Folder {
    path: Path,
    entries: Vec<Entry>,
    names_bytes: usize,
    /// Where each name is.
    places: BTreeMap<Vec<u8>, usize>,
    /// The last that the client opened.
    last: Option<usize>,
    /// The first that has not been opened ahead.
    next: usize,
    /// Files that the client opened one after the other, in the folder's order.
    in_row: u32,
}

impl Folder {
    fn push(&mut self, entry: Entry) {
        let names_bytes = self.names_bytes + entry.name.len();
        if self.entries.len() < ENTRIES_MAX && names_bytes <= NAMES_BYTES_MAX {
            self.places.insert(entry.name.clone(), self.entries.len());
            self.names_bytes = names_bytes;
            self.entries.push(entry);
        }
    }

    /// The file that comes behind this place.
    fn file_behind(&self, place: Option<usize>) -> Option<usize> {
        let first = place.map_or(0, |place| place + 1);
        let rest = self.entries.iter().enumerate().skip(first);
        let mut files = rest.filter(|(_, entry)| is_file(entry));
        files.next().map(|(at, _)| at)
    }
}

/// All of a connection.
#[derive(Debug, Default)]
pub struct Folders {
    /// In the order in which they were listed.
    folders: VecDeque<Folder>,
    /// And whether nothing has been listed since.
    open: BTreeMap<FileId, (Path, bool)>,
    /// The one in which the client opened a file last.
    current: Option<Path>,
}

impl Folders {
    /// A folder was opened.
    pub fn handle_opened(&mut self, file: FileId, path: Path) {
        if self.open.len() < OPEN_MAX {
            self.open.insert(file, (path, true));
        }
    }

    /// It was closed; what was listed stays known.
    pub fn handle_closed(&mut self, file: FileId) {
        self.open.remove(&file);
    }

    /// Those of these sessions and shares are gone.
    pub fn handle_gone(&mut self, is_gone: impl Fn((u64, u32)) -> bool) {
        self.open
            .retain(|_, ((session, tree, _), _)| !is_gone((*session, *tree)));
    }

    /// The server listed a part of it, from the first name on or from where it was.
    pub fn handle_listed(&mut self, file: FileId, is_first: bool, listed: Vec<Entry>) {
        let Some((path, is_fresh)) = self.open.get_mut(&file) else {
            return;
        };
        let is_first = std::mem::take(is_fresh) || is_first;
        let known = self.folders.iter().position(|folder| folder.path == *path);
        let mut folder = known.and_then(|at| self.folders.remove(at));
        if is_first {
            folder = None;
        }
        let mut folder = folder.unwrap_or_else(|| Folder {
            path: path.clone(),
            entries: Vec::new(),
            names_bytes: 0,
            places: BTreeMap::new(),
            last: None,
            next: 0,
            in_row: 0,
        });
        for entry in listed {
            folder.push(entry);
        }
        self.folders.push_back(folder);
        if self.folders.len() > FOLDERS_MAX {
            self.folders.pop_front();
        }
    }

    /// The client opens a file. How many it has opened in a row with that, in the order of its folder.
    pub fn handle_file(&mut self, session: u64, tree: u32, name: &[u8]) -> u32 {
        let (parent, leaf) = split(name);
        let path = (session, tree, parent.to_vec());
        let mut folders = self.folders.iter_mut();
        let Some(folder) = folders.find(|folder| folder.path == path) else {
            return 0;
        };
        let Some(place) = folder.places.get(leaf).copied() else {
            return 0;
        };
        folder.in_row = match folder.file_behind(folder.last) == Some(place) {
            true => folder.in_row.saturating_add(1),
            false => 1,
        };
        if folder.in_row == 1 {
            folder.next = place + 1;
        }
        folder.last = Some(place);
        folder.next = folder.next.max(place + 1);
        let in_row = folder.in_row;
        self.current = Some(path);
        in_row
    }

    /// Files opened ahead were in vain: it begins anew where the client is. False: it has done so already.
    pub fn handle_wasted(&mut self) -> bool {
        let Some(folder) = self.current().filter(|folder| folder.in_row > 0) else {
            return false;
        };
        folder.in_row = 0;
        folder.next = folder.last.map_or(0, |last| last + 1);
        true
    }

    /// The next small file for a client that opened so many in a row: its path and size. A folder, or a large file, comes
    /// first to whoever goes through all of it: nothing behind it is told before the client is there.
    pub fn next(&mut self, patience: u32) -> Option<(Path, u64)> {
        let folder = self.current().filter(|folder| folder.in_row >= patience)?;
        let (session, tree, parent) = &folder.path;
        let entry = folder.entries.get(folder.next)?;
        if !is_file(entry) || entry.size_bytes > SMALL_BYTES_MAX {
            return None;
        }
        let name = joined(parent, &entry.name);
        folder.next += 1;
        Some(((*session, *tree, name), entry.size_bytes))
    }

    fn current(&mut self) -> Option<&mut Folder> {
        let path = self.current.as_ref()?;
        self.folders.iter_mut().find(|folder| folder.path == *path)
    }
}

fn is_file(entry: &Entry) -> bool {
    entry.attributes & ATTRIBUTE_DIRECTORY == 0
}

/// A backslash in UTF-16.
const SEPARATOR: &[u8; 2] = b"\\\0";

/// The folder, and the name in it.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let places = name.chunks_exact(2).rposition(|unit| unit == SEPARATOR);
    match places {
        Some(at) => {
            let (parent, rest) = name.split_at(at * 2);
            (parent, rest.get(2..).unwrap_or_default())
        }
        None => (&[], name),
    }
}

fn joined(parent: &[u8], name: &[u8]) -> Vec<u8> {
    match parent.is_empty() {
        true => name.to_vec(),
        false => [parent, SEPARATOR, name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn listed(names: &[(&str, u64)]) -> Vec<Entry> {
        let entry = |(name, size_bytes): &(&str, u64)| Entry {
            name: wide(name),
            size_bytes: *size_bytes,
            attributes: if name.ends_with('/') {
                ATTRIBUTE_DIRECTORY
            } else {
                0
            },
        };
        names.iter().map(entry).collect()
    }

    fn folders(names: &[(&str, u64)]) -> Folders {
        let mut folders = Folders::default();
        let file = FileId::RELATED;
        folders.handle_opened(file, (1, 2, wide("d")));
        folders.handle_listed(file, true, listed(names));
        folders
    }

    fn next(folders: &mut Folders) -> Option<Vec<u8>> {
        folders.next(2).map(|((_, _, name), _)| name)
    }

    #[test]
    fn the_next_files_are_told_of_a_client_that_keeps_to_the_order() {
        let mut folders = folders(&[
            ("./", 0),
            ("../", 0),
            ("a", 1),
            ("b", 2),
            ("c", 3),
            ("d", 4),
        ]);
        assert_eq!(folders.handle_file(1, 2, &wide("d\\a")), 1);
        assert_eq!(next(&mut folders), None, "one is no row");
        assert_eq!(folders.handle_file(1, 3, &wide("d\\b")), 0, "another share");
        assert_eq!(folders.handle_file(1, 2, &wide("d\\b")), 2);
        assert_eq!(next(&mut folders), Some(wide("d\\c")));
        assert_eq!(folders.handle_file(1, 2, &wide("d\\c")), 3);
        assert_eq!(next(&mut folders), Some(wide("d\\d")));
        assert_eq!(next(&mut folders), None, "that is all");
        assert!(folders.handle_wasted() && !folders.handle_wasted());
        assert_eq!(next(&mut folders), None, "nobody wanted it");
        assert_eq!(folders.handle_file(1, 2, &wide("d\\b")), 1);
        assert_eq!(folders.handle_file(1, 2, &wide("d\\c")), 2);
        assert_eq!(next(&mut folders), Some(wide("d\\d")), "once more");
    }

    #[test]
    fn invariant_5_a_listing_without_end_is_not_kept_whole() {
        let mut folders = folders(&[]);
        let names = || (0..1000).map(|nth| (format!("{nth:0>200}"), 1));
        for _ in 0..20 {
            let names: Vec<_> = names().collect();
            let names: Vec<_> = names
                .iter()
                .map(|(name, size)| (name.as_str(), *size))
                .collect();
            folders.handle_listed(FileId::RELATED, false, listed(&names));
        }
        let kept: usize = folders
            .folders
            .iter()
            .map(|folder| folder.names_bytes)
            .sum();
        assert_eq!(kept, NAMES_BYTES_MAX / 400 * 400);
    }

    #[test]
    fn nothing_is_told_behind_what_takes_long() {
        let large = SMALL_BYTES_MAX + 1;
        let mut folders = folders(&[
            ("a", 1),
            ("b", 1),
            ("c", large),
            ("d", 1),
            ("e/", 0),
            ("f", 1),
        ]);
        folders.handle_file(1, 2, &wide("d\\a"));
        folders.handle_file(1, 2, &wide("d\\b"));
        assert_eq!(next(&mut folders), None);
        assert_eq!(folders.handle_file(1, 2, &wide("d\\c")), 3);
        assert_eq!(next(&mut folders), Some(wide("d\\d")));
        assert_eq!(next(&mut folders), None);
        folders.handle_file(1, 2, &wide("d\\d"));
        assert_eq!(folders.handle_file(1, 2, &wide("d\\f")), 5);
    }
}
