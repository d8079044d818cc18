//! What may happen to the files of a store while nobody looks: flipped bits, sectors that went elsewhere, files that were cut, lost,
//! copied from another store or put back from an old copy.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: u64 = 512;
/// Segments and, behind them, footers of a file.
const FOOTERS_AT: u64 = 16 << 20;
const FILE_BYTES: u64 = FOOTERS_AT + 16 * 2 * SECTOR_BYTES;
/// So much of a file is in use in these tests, about.
const USED_BYTES: u64 = 4 << 20;

/// Numbers that can be repeated.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// An offset in what is used of a file; every second one is in the footers.
    fn offset(&mut self) -> u64 {
        match self.below(2) {
            0 => self.below(USED_BYTES),
            _ => FOOTERS_AT + self.below(FILE_BYTES - FOOTERS_AT),
        }
    }
}

/// All files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Copies a folder with all below it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

/// Does one bad thing to a store; says which.
pub fn harm(store: &Path, other: &Path, old: &Path, dice: &mut Dice) -> String {
    let (segments, others): (Vec<_>, Vec<_>) =
        files(store).into_iter().partition(|file| is_segments(file));
    // Mostly one of segments.
    let some = match dice.below(4) {
        0 => &others,
        _ if segments.is_empty() => &others,
        _ => &segments,
    };
    let file = dice.pick(some).clone();
    let is_whole = file.metadata().unwrap().len() == FILE_BYTES;
    let what = match dice.below(8) {
        0..=2 if is_whole => flip(&file, dice),
        3 if is_whole => swap_sectors(&file, dice),
        4 => cut(&file, dice),
        5 => {
            fs::remove_file(&file).unwrap();
            "lost".to_owned()
        }
        6 => {
            let others = files(other);
            let foreign = dice.pick(&others);
            fs::copy(foreign, &file).unwrap();
            format!("replaced by {}", foreign.display())
        }
        7 if old.is_dir() => {
            fs::remove_dir_all(store).unwrap();
            copy(old, store);
            "put back with its folder from an old copy".to_owned()
        }
        _ => flip_anywhere(&file, dice),
    };
    format!("{} {what}", file.display())
}

fn is_segments(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("segments-"))
}

fn open(file: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap()
}

fn flip(path: &Path, dice: &mut Dice) -> String {
    let file = open(path);
    let count = 1 + dice.below(60);
    for _ in 0..count {
        flip_one(&file, dice.offset(), dice);
    }
    format!("has {count} bytes changed")
}

fn flip_anywhere(path: &Path, dice: &mut Dice) -> String {
    let file = open(path);
    let bytes = file.metadata().unwrap().len();
    if bytes == 0 {
        return "is empty".to_owned();
    }
    flip_one(&file, dice.below(bytes), dice);
    "has one byte changed".to_owned()
}

fn flip_one(file: &File, at: u64, dice: &mut Dice) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 + dice.below(255) as u8;
    file.write_all_at(&byte, at).unwrap();
}

fn swap_sectors(path: &Path, dice: &mut Dice) -> String {
    let file = open(path);
    let places = [dice.offset(), dice.offset()].map(|at| at / SECTOR_BYTES * SECTOR_BYTES);
    let sectors = places.map(|at| {
        let mut sector = [0; SECTOR_BYTES as usize];
        file.read_exact_at(&mut sector, at).unwrap();
        sector
    });
    file.write_all_at(&sectors[0], places[1]).unwrap();
    file.write_all_at(&sectors[1], places[0]).unwrap();
    "has two sectors swapped".to_owned()
}

fn cut(path: &Path, dice: &mut Dice) -> String {
    let file = open(path);
    let bytes = file.metadata().unwrap().len();
    let left = dice.below(bytes.max(1));
    file.set_len(left).unwrap();
    format!("is cut to {left} bytes")
}
