//! The files of a store, and what is done with them. Tests do it with files that fail and forget.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use super::StoreError;
use crate::regular;

/// Files of segments by their numbers, and one small file that is always written whole.
pub trait Files: Clone + Send + 'static {
    /// Numbers of the files of segments.
    fn numbers(&self) -> io::Result<Vec<u32>>;
    /// How long a file is; an error if it is none that can be read.
    fn length(&self, file: u32) -> io::Result<u64>;
    /// Makes a file of this length, its room on disk reserved. After a crash it is there in full or not at all.
    fn create(&self, file: u32, bytes: u64) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, file: u32) -> io::Result<()>;
    /// Reads exactly so many bytes.
    fn read(&self, file: u32, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all bytes.
    fn write(&self, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// What was written to the file survives whatever comes.
    fn sync(&self, file: u32) -> io::Result<()>;
    /// The small file, if it is there.
    fn label(&self) -> io::Result<Option<Vec<u8>>>;
    /// Writes the small file: after a crash it is the old one or the new one.
    fn set_label(&self, bytes: &[u8]) -> io::Result<()>;
    /// Where all this is, for messages.
    fn path(&self) -> &Path;
    /// Where a file is, for messages.
    fn path_of(&self, file: u32) -> PathBuf {
        self.path().join(name_of(file))
    }
}

const LABEL: &str = "store";
const LABEL_NEW: &str = "store.new";
const LOCK: &str = "lock";
const PREFIX: &str = "segments-";
/// A file of segments that is being made: one at a time.
const SEGMENTS_NEW: &str = "segments.new";
/// A label is shorter.
const LABEL_BYTES_MAX: u64 = 4096;

fn name_of(file: u32) -> String {
    format!("{PREFIX}{file:08}")
}

/// The number of a file of segments, if the name is the one we give it.
fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name == name_of(number)).then_some(number)
}

/// The message of a file that goes by its folder's name otherwise.
fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{name}`: {error}"))
}

/// Makes a file with all of its room, or says why there is none.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let made = regular::open(path, &mut options).map_err(|error| named(SEGMENTS_NEW, &error))?;
    match fallocate(&made, FallocateFlags::empty(), 0, bytes) {
        // Not every file system can reserve.
        Err(Errno::OPNOTSUPP) => made.set_len(bytes)?,
        other => other?,
    }
    made.sync_all()
}

/// A folder of the file system.
#[derive(Clone)]
pub struct Folder {
    path: PathBuf,
    /// Held as long as the folder is used.
    _lock: Option<Arc<File>>,
}

impl Folder {
    /// The folder of a running gateway: made if it is not there, and used by nobody else meanwhile.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Disk { what, path, error }
        };
        let mut folder = fs::DirBuilder::new();
        let made = folder.recursive(true).mode(0o700).create(path);
        made.map_err(failed("cannot make", path))?;
        let place = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = regular::open(&place, &mut options);
        let lock = lock.map_err(failed("cannot open", &place))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => (),
            Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse(path.to_owned())),
            Err(error) => return Err(failed("cannot lock", &place)(error.into())),
        }
        // Of a gateway that was killed while it made one; it takes room that nobody counts.
        let _ = fs::remove_file(path.join(SEGMENTS_NEW));
        Ok(Self {
            path: path.to_owned(),
            _lock: Some(Arc::new(lock)),
        })
    }

    /// A folder to look at, whoever uses it.
    pub fn look(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            _lock: None,
        }
    }

    fn open_file(&self, file: u32, is_written: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(is_written);
        regular::open(&self.path_of(file), &mut options)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl Files for Folder {
    fn numbers(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn length(&self, file: u32) -> io::Result<u64> {
        let path = self.path_of(file);
        let facts = fs::metadata(&path).map_err(|error| regular::named_link(&path, error))?;
        regular::check(&facts)?;
        Ok(facts.len())
    }

    fn create(&self, file: u32, bytes: u64) -> io::Result<()> {
        let new = self.path.join(SEGMENTS_NEW);
        let made = make(&new, bytes).and_then(|()| fs::rename(&new, self.path_of(file)));
        made.inspect_err(|_| drop(fs::remove_file(&new)))?;
        self.sync_folder()
    }

    fn remove(&self, file: u32) -> io::Result<()> {
        match fs::remove_file(self.path_of(file)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.sync_folder(),
        }
    }

    fn read(&self, file: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.open_file(file, false)?.read_exact_at(into, offset)
    }

    fn write(&self, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open_file(file, true)?.write_all_at(bytes, offset)
    }

    fn sync(&self, file: u32) -> io::Result<()> {
        self.open_file(file, true)?.sync_data()
    }

    fn label(&self) -> io::Result<Option<Vec<u8>>> {
        let opened = regular::open(&self.path.join(LABEL), OpenOptions::new().read(true));
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| named(LABEL, &error))?,
        };
        let mut bytes = Vec::new();
        file.take(LABEL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LABEL_BYTES_MAX {
            // Not ours; it will be replaced.
            bytes.clear();
        }
        Ok(Some(bytes))
    }

    fn set_label(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.join(LABEL_NEW);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file =
            regular::open(&new, &mut options).map_err(|error| named(LABEL_NEW, &error))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.path.join(LABEL))?;
        self.sync_folder()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
