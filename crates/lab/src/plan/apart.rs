//! Names of cells that differ in nothing but how much they copy. No other says how much: kept results know their cells by name.

use std::collections::{BTreeMap, BTreeSet};

use super::cell::Cell;

/// Lets each say its size, its number of files, or both: whatever they differ in. So do the other configurations of their scenario,
/// which are held against them.
pub(super) fn tell_apart(cells: &mut [Cell]) {
    let (mut sizes, mut files) = (BTreeSet::new(), BTreeSet::new());
    let mut first: BTreeMap<String, &Cell> = BTreeMap::new();
    for cell in cells.iter() {
        let first = first.entry(cell.name()).or_insert(cell);
        if first.size_bytes != cell.size_bytes {
            sizes.insert(cell.scenario());
        }
        if first.files != cell.files {
            files.insert(cell.scenario());
        }
    }
    for cell in cells {
        let scenario = cell.scenario();
        if files.contains(&scenario) {
            cell.apart += &format!(" {} files", cell.files);
        }
        if sizes.contains(&scenario) {
            cell.apart += &format!(" {}", size_words(cell.size_bytes));
        }
    }
}

/// As a plan would write it, without a fraction.
pub(crate) fn size_words(bytes: u64) -> String {
    const UNITS: [(&str, u64); 6] = [
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1_000),
    ];
    let unit = UNITS.iter().find(|(_, each)| bytes.is_multiple_of(*each));
    match unit {
        Some((unit, each)) => format!("{} {unit}", bytes / each),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_in_the_greatest_unit() {
        for (bytes, expected) in [
            (10 << 20, "10 MiB"),
            (100_000_000, "100 MB"),
            (1_024_000, "1000 KiB"),
            (200_000, "200 kB"),
            (4 << 30, "4 GiB"),
            (1_001, "1001 B"),
        ] {
            assert_eq!(size_words(bytes), expected);
        }
    }
}
