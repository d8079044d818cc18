//! Copies of files that a peer may warm: `farhaul cache warm FILE --copy` at the site that has one.
//!
//! The gateway reads the file once and remembers the hash of each segment. A peer that warms a file hears the hashes, and leaves out
//! what it finds among them; we read it from the file again. Nothing depends on the file staying as it is: every frame has its own hash,
//! and what differs is asked for. Why it is so: `docs/design/cache-warm.md`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::reduction::{CopyPlace, SegmentHash};

/// Segments of a copy, the last one shorter.
pub(crate) const SEGMENT_BYTES: usize = 1 << 20;
/// Files.
const COPIES_MAX: usize = 64;
/// Segments of all files: 64 GiB.
pub(crate) const SEGMENTS_MAX: usize = 65_536;

/// A file, and the hashes of its segments.
struct Known {
    path: PathBuf,
    file: Arc<File>,
    hashes: Vec<SegmentHash>,
}

/// All files of which this site has copies.
#[derive(Default)]
pub(crate) struct Copies {
    files: Vec<Known>,
    /// File and number of the segment with this hash.
    places: HashMap<SegmentHash, (usize, usize)>,
}

/// Bytes in a file.
#[derive(Debug)]
pub(crate) struct Stretch {
    file: Arc<File>,
    start: u64,
    length: usize,
}

impl Stretch {
    /// Blocks.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.start)?;
        Ok(bytes)
    }
}

pub(crate) fn segment_hash(bytes: &[u8]) -> SegmentHash {
    let mut half = [0; 16];
    half.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    half
}

impl Copies {
    /// Takes a file that was read, instead of an older one of that path.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        file: File,
        hashes: Vec<SegmentHash>,
    ) -> Result<(), String> {
        let others = self.files.iter().filter(|known| known.path != path);
        let segments: usize = others.clone().map(|known| known.hashes.len()).sum();
        if others.count() >= COPIES_MAX || segments + hashes.len() > SEGMENTS_MAX {
            return Err(format!(
                "a gateway knows copies of {COPIES_MAX} files and {} GiB at most; a restart forgets them",
                SEGMENTS_MAX >> 10
            ));
        }
        self.files.retain(|known| known.path != path);
        self.files.push(Known {
            path: path.to_owned(),
            file: Arc::new(file),
            hashes,
        });
        self.places.clear();
        for (nth, known) in self.files.iter().enumerate() {
            let segments = known.hashes.iter().enumerate();
            self.places
                .extend(segments.map(|(segment, hash)| (*hash, (nth, segment))));
        }
        Ok(())
    }

    /// Where bytes are; `None` if no file has them.
    pub(crate) fn find(&self, place: &CopyPlace, length: usize) -> Option<Stretch> {
        let &(nth, segment) = self.places.get(&place.hash)?;
        Some(Stretch {
            file: self.files.get(nth)?.file.clone(),
            start: segment as u64 * SEGMENT_BYTES as u64 + u64::from(place.offset),
            length,
        })
    }

    /// What a peer hears of them: how many hashes (4 bytes), and these.
    pub(crate) fn list(&self) -> Bytes {
        let mut list = BytesMut::with_capacity(4 + 16 * self.places.len());
        list.put_u32(self.places.len() as u32);
        self.places.keys().for_each(|hash| list.put_slice(hash));
        list.freeze()
    }
}

/// The peer's bytes are no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoList;

/// A peer's list, once it is whole.
pub(crate) fn read_list(mut list: &[u8]) -> Result<Option<HashSet<SegmentHash>>, NoList> {
    let Ok(count) = list.try_get_u32() else {
        return Ok(None);
    };
    let (hashes, rest) = list.as_chunks::<16>();
    match (count as usize, hashes.len()) {
        (count, _) if count > SEGMENTS_MAX => Err(NoList),
        (count, there) if there < count => Ok(None),
        (count, there) if there == count && rest.is_empty() => {
            Ok(Some(hashes.iter().copied().collect()))
        }
        _ => Err(NoList),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(name: &str, segments: usize) -> (PathBuf, File, Vec<SegmentHash>) {
        let path = std::env::temp_dir().join(format!("fh-copies-{}-{name}", std::process::id()));
        let bytes: Vec<u8> = (0..segments * SEGMENT_BYTES)
            .map(|at| (at * at / 1000 + name.len()) as u8)
            .collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (
            path,
            file,
            bytes.chunks(SEGMENT_BYTES).map(segment_hash).collect(),
        )
    }

    #[test]
    fn bytes_are_found_by_their_segment() {
        let mut copies = Copies::default();
        for (name, segments) in [("a", 2), ("bb", 1)] {
            let (path, file, hashes) = copy(name, segments);
            copies.add(&path, file, hashes).unwrap();
        }
        let (path, file, hashes) = copy("bb", 1);
        copies.add(&path, file, hashes.clone()).unwrap();
        assert_eq!(copies.files.len(), 2, "one is of the same path");
        let place = |offset| CopyPlace {
            hash: hashes[0],
            offset,
        };
        let found = copies.find(&place(1000), 3).unwrap().read().unwrap();
        let right = [1000usize, 1001, 1002].map(|at| (at * at / 1000 + 2) as u8);
        assert_eq!(found, right);
        assert!(
            copies
                .find(&place(SEGMENT_BYTES as u32 - 1), 3)
                .unwrap()
                .read()
                .is_err()
        );
        let unknown = CopyPlace {
            hash: [0; 16],
            offset: 0,
        };
        assert!(copies.find(&unknown, 3).is_none());
    }

    #[test]
    fn invariant_5_copies_are_bounded() {
        let mut copies = Copies::default();
        let (_, file, _) = copy("c", 0);
        for nth in 0..COPIES_MAX {
            let file = file.try_clone().unwrap();
            copies
                .add(Path::new(&nth.to_string()), file, Vec::new())
                .unwrap();
        }
        let more = |copies: &mut Copies, path: &str, segments| {
            copies.add(
                Path::new(path),
                file.try_clone().unwrap(),
                vec![[1; 16]; segments],
            )
        };
        assert!(more(&mut copies, "another", 0).is_err());
        assert!(more(&mut copies, "0", SEGMENTS_MAX).is_ok());
        assert!(more(&mut copies, "1", 1).is_err());
    }

    #[test]
    fn invariant_6_only_a_list_is_read() {
        let mut copies = Copies::default();
        let (path, file, hashes) = copy("dd", 3);
        copies.add(&path, file, hashes.clone()).unwrap();
        let list = copies.list();
        for end in 0..list.len() {
            assert_eq!(read_list(&list[..end]), Ok(None), "{end}");
        }
        assert_eq!(read_list(&list), Ok(Some(hashes.into_iter().collect())));
        assert_eq!(read_list(&[&list[..], &[0]].concat()), Err(NoList));
        assert_eq!(read_list(&[1, 0, 0, 0]), Err(NoList));
        assert_eq!(read_list(&[0; 4]), Ok(Some(HashSet::new())));
    }
}
