//! Opens files that must be regular ones. What else stands in their place is named, and nobody waits for it: a pipe has no end until
//! somebody writes to it, a device may have none at all.

use std::fs::{File, FileType, Metadata, OpenOptions, metadata, symlink_metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The kind of the errors that name something else. The system has it for wrong arguments, which nobody gives here.
pub(crate) const NOT_REGULAR: io::ErrorKind = io::ErrorKind::InvalidInput;

/// Opens a regular file, or makes it where `options` say so.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Looked at first: to open a device may do something.
    if let Ok(facts) = metadata(path) {
        check(&facts)?;
    }
    // And again, should it have changed meanwhile.
    let file = options
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| named_link(path, error))?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// What a link without an end is called.
pub const DANGLING: &str = "a symbolic link to what is not there";

/// Who is told that there is no such file, and sees one, should know that it is a link.
pub(crate) fn named_link(path: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::NotFound if symlink_metadata(path).is_ok() => {
            io::Error::new(kind, DANGLING)
        }
        _ => error,
    }
}

/// Refuses what is no regular file.
pub(crate) fn check(facts: &Metadata) -> io::Result<()> {
    match facts.is_file() {
        true => Ok(()),
        false => {
            let what = name_of(facts.file_type());
            Err(io::Error::new(
                NOT_REGULAR,
                format!("{what}, no regular file"),
            ))
        }
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}
