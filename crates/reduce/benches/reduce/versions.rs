//! Which packages an upstream version is made of, as `scripts/reduce-corpora.sh` noted it.

use std::path::Path;

/// Packages with their versions; none for a pair that is made on the spot.
pub fn of(pair: &str, nth: &str, folder: &Path) -> Vec<String> {
    let notes = std::fs::read_to_string(folder.join("versions.txt")).unwrap_or_default();
    let Some((family, _)) = pair.split_once('-') else {
        return Vec::new();
    };
    let mut packages = Vec::new();
    for (what, package) in notes.lines().filter_map(|line| line.split_once(": ")) {
        let package = package.to_owned();
        let name = what.split('.').next().unwrap_or_default();
        // A corpus that was made twice is noted twice.
        if name == format!("{family}-{nth}") && !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}
