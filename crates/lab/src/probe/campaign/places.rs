//! Where a campaign writes: a file of runs and a page, which must not be the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::probe::error::ProbeError;

/// Symbolic links in a row that a kernel follows (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Refuses what is there and no regular file: opening a pipe waits for its other
/// end, and a page would replace a device.
pub(super) fn check_regular(path: &Path) -> Result<(), ProbeError> {
    match path.exists() && !path.is_file() {
        true => Err(ProbeError::Usage(format!(
            "{} is no regular file: name another",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Refuses a page that cannot be one, or would take the runs' place.
pub(super) fn check_page(page: &Path, runs: &Path) -> Result<(), ProbeError> {
    check_regular(page)?;
    match are_one(page, runs) {
        true => Err(ProbeError::Usage(format!(
            "the page {} would replace the runs in {}: name another with --html",
            page.display(),
            runs.display()
        ))),
        false => Ok(()),
    }
}

/// Whether two names lead to one file, there already or not yet.
fn are_one(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => {
            let place = leads_to(one, LINKS_MAX);
            place.is_some() && place == leads_to(other, LINKS_MAX)
        }
    }
}

/// The place at which opening a name finds or makes a file; `None` where it cannot.
fn leads_to(path: &Path, links_max: u32) -> Option<PathBuf> {
    let folder = match path.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    match fs::read_link(path) {
        Ok(target) => leads_to(&folder.join(target), links_max.checked_sub(1)?),
        Err(_) => Some(fs::canonicalize(folder).ok()?.join(path.file_name()?)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_of_one_file_are_told_from_names_of_two() {
        let folder = std::env::temp_dir().join(format!("farhaul-places-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("sub")).unwrap();
        let at = |name: &str| folder.join(name);
        symlink("runs", at("link")).unwrap();
        symlink("link", at("link-to-link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink(".", at("here")).unwrap();
        let same = [
            "runs",
            "./runs",
            "sub/../runs",
            "link",
            "link-to-link",
            "here/runs",
        ];
        let others = ["page", "sub/runs", "loop", "no-such-folder/runs", ".."];
        let is_same = |name: &str| are_one(&at(name), &at("runs"));
        let hold = || {
            assert_eq!(same.map(is_same), [true; 6]);
            assert_eq!(others.map(is_same), [false; 5]);
        };
        // What is not there yet, and what is.
        hold();
        fs::write(at("runs"), "").unwrap();
        hold();
        fs::hard_link(at("runs"), at("hard")).unwrap();
        assert!(is_same("hard"));
        fs::remove_dir_all(folder).unwrap();
    }
}
