//! The user behind sudo: what is made for them belongs to them, and nothing else does.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use crate::error::{During, LabError};

/// A folder that may be looked up in, and no more.
const THERE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// One that was made here: whoever has put a link in its place is not followed.
const MADE: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Who called sudo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    user: u32,
    group: u32,
}

impl Caller {
    /// As sudo says; `None` where nobody called it.
    pub(crate) fn of_sudo() -> Option<Self> {
        let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        Some(Self {
            user: id("SUDO_UID")?,
            group: id("SUDO_GID")?,
        })
    }

    /// Hands over what is open, never by its name: another file may have that by now. What stays root's can still be read, so
    /// failing is no error.
    pub(crate) fn give(self, opened: impl AsFd) {
        let _ = fchown(opened, Some(self.user), Some(self.group));
    }
}

/// Makes a folder, and those above it that are missing. Under sudo those that were made belong to who called it; one that was there
/// stays whose it is.
pub(crate) fn make_folder(folder: &Path) -> Result<(), LabError> {
    let made = make_missing(folder).during(|| format!("making {}", folder.display()))?;
    if let Some(caller) = Caller::of_sudo() {
        // The innermost first: nobody else may change what is in the others until then.
        made.iter().rev().for_each(|folder| caller.give(folder));
    }
    Ok(())
}

/// Those that were made, the outermost first.
fn make_missing(folder: &Path) -> io::Result<Vec<OwnedFd>> {
    let mut made = Vec::new();
    let mut at = openat(CWD, ".", THERE, Mode::empty())?;
    for part in folder.components() {
        at = match part {
            Component::RootDir => openat(CWD, "/", THERE, Mode::empty())?,
            part => step(&at, part.as_os_str(), &mut made)?,
        };
    }
    Ok(made)
}

fn step(at: &OwnedFd, name: &OsStr, made: &mut Vec<OwnedFd>) -> io::Result<OwnedFd> {
    let there = || openat(at, name, THERE, Mode::empty());
    match there() {
        Err(Errno::NOENT) => {}
        opened => return Ok(opened?),
    }
    match mkdirat(at, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
        // Somebody else has made it just now.
        Err(Errno::EXIST) => return Ok(there()?),
        ended => ended?,
    }
    let folder = openat(at, name, MADE, Mode::empty())?;
    made.push(folder.try_clone()?);
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// Inodes of what was made.
    fn made(folder: &Path) -> Vec<u64> {
        let made = make_missing(folder).unwrap().into_iter();
        made.map(|folder| File::from(folder).metadata().unwrap().ino())
            .collect()
    }

    #[test]
    fn only_folders_that_were_missing_are_made() {
        let base = std::env::temp_dir().join(format!("farhaul-caller-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let inode = |path: &str| fs::metadata(base.join(path)).unwrap().ino();
        assert!(made(&base).is_empty());
        assert_eq!(
            made(&base.join("a/./b//c")),
            ["a", "a/b", "a/b/c"].map(inode)
        );
        assert_eq!(made(&base.join("a/b/../d")), [inode("a/d")]);
        symlink(base.join("a"), base.join("link")).unwrap();
        assert!(made(&base.join("link")).is_empty());
        assert_eq!(made(&base.join("link/e")), [inode("a/e")]);
        assert!(made(Path::new("/")).is_empty());
        assert!(made(Path::new("")).is_empty());
        fs::write(base.join("file"), "").unwrap();
        symlink(base.join("nowhere"), base.join("dangling")).unwrap();
        for wrong in ["file", "file/f", "dangling", "dangling/f"] {
            assert!(make_missing(&base.join(wrong)).is_err(), "{wrong}");
        }
        assert!(!base.join("nowhere").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
