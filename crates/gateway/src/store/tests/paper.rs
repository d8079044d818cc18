//! A disk of paper: files in memory that record what is done to them, fail when they are told to, and forget what was not synced when the
//! power goes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::store::embedded::FILE_BYTES;
use crate::store::files::Files;

pub(super) const SECTOR_BYTES: usize = 512;

/// One thing done to the files.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Create(u32),
    Remove(u32),
    Write(u32, u64, Vec<u8>),
    Sync(u32),
    Label(Vec<u8>),
}

/// What is on a disk: sectors that were ever written.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    pub(super) files: BTreeSet<u32>,
    pub(super) sectors: BTreeMap<(u32, u64), Vec<u8>>,
    pub(super) label: Option<Vec<u8>>,
}

impl Image {
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8], is_kept: &mut dyn FnMut() -> bool) {
        let mut at = 0;
        while at < bytes.len() {
            let position = offset + at as u64;
            let within = position as usize % SECTOR_BYTES;
            let now = (SECTOR_BYTES - within).min(bytes.len() - at);
            if is_kept() {
                let key = (file, position / SECTOR_BYTES as u64);
                let sector = self
                    .sectors
                    .entry(key)
                    .or_insert_with(|| vec![0; SECTOR_BYTES]);
                sector[within..within + now].copy_from_slice(&bytes[at..at + now]);
            }
            at += now;
        }
    }

    fn read(&self, file: u32, offset: u64, into: &mut [u8]) {
        let end = offset + into.len() as u64;
        into.fill(0);
        let sectors = offset / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64);
        for (&(_, nth), sector) in self
            .sectors
            .range((file, sectors.start)..(file, sectors.end))
        {
            let start = nth * SECTOR_BYTES as u64;
            for (at, &byte) in (start..).zip(sector) {
                if (offset..end).contains(&at) {
                    into[(at - offset) as usize] = byte;
                }
            }
        }
    }

    fn remove(&mut self, file: u32) {
        self.files.remove(&file);
        self.sectors.retain(|key, _| key.0 != file);
    }
}

#[derive(Default)]
pub(super) struct Disk {
    pub(super) now: Image,
    acts: Vec<Act>,
    /// Numbers of the acts that fail.
    pub(super) failing: BTreeSet<usize>,
    /// No file can be made any more.
    pub(super) is_full: bool,
    /// Blocks that cannot be read: file and offset.
    pub(super) unreadable: BTreeSet<(u32, u64)>,
}

/// Files in memory that remember what was done to them.
#[derive(Clone, Default)]
pub(super) struct Paper(pub(super) Arc<Mutex<Disk>>);

impl Paper {
    pub(super) fn of(image: Image) -> Self {
        let paper = Self::default();
        paper.0.lock().unwrap().now = image;
        paper
    }

    fn act(&self, act: Act) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        let number = disk.acts.len();
        let fails = disk.failing.contains(&number);
        match &act {
            // What fails may have been done in part.
            Act::Write(file, offset, bytes) => {
                let part = if fails { bytes.len() / 2 } else { bytes.len() };
                let (file, offset, bytes) = (*file, *offset, bytes[..part].to_vec());
                disk.now.write(file, offset, &bytes, &mut || true);
            }
            _ if fails => (),
            Act::Create(file) => drop(disk.now.files.insert(*file)),
            Act::Remove(file) => disk.now.remove(*file),
            Act::Sync(_) => (),
            Act::Label(bytes) => disk.now.label = Some(bytes.clone()),
        }
        disk.acts.push(act);
        match fails {
            true => Err(io::Error::other("planted")),
            false => Ok(()),
        }
    }

    /// What is on disk if the power fails after so many acts: what was synced, and of the rest what `is_kept` says.
    pub(super) fn crashed(&self, acts: usize, is_kept: &mut dyn FnMut() -> bool) -> Image {
        let disk = self.0.lock().unwrap();
        let mut image = Image::default();
        let mut loose: Vec<(u32, u64, &[u8])> = Vec::new();
        for act in &disk.acts[..acts] {
            match act {
                Act::Create(file) => drop(image.files.insert(*file)),
                Act::Remove(file) => {
                    image.remove(*file);
                    loose.retain(|write| write.0 != *file);
                }
                Act::Write(file, offset, bytes) => loose.push((*file, *offset, bytes)),
                Act::Sync(synced) => loose.retain(|&(file, offset, bytes)| {
                    if file == *synced {
                        image.write(file, offset, bytes, &mut || true);
                    }
                    file != *synced
                }),
                Act::Label(bytes) => image.label = Some(bytes.clone()),
            }
        }
        for (file, offset, bytes) in loose {
            image.write(file, offset, bytes, is_kept);
        }
        image
    }

    pub(super) fn acts(&self) -> usize {
        self.0.lock().unwrap().acts.len()
    }
}

impl Files for Paper {
    fn numbers(&self) -> io::Result<Vec<u32>> {
        Ok(self.0.lock().unwrap().now.files.iter().copied().collect())
    }
    fn length(&self, file: u32) -> io::Result<u64> {
        match self.0.lock().unwrap().now.files.contains(&file) {
            true => Ok(FILE_BYTES),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
    fn create(&self, file: u32, bytes: u64) -> io::Result<()> {
        assert_eq!(bytes, FILE_BYTES);
        if self.0.lock().unwrap().is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.act(Act::Create(file))
    }
    fn remove(&self, file: u32) -> io::Result<()> {
        self.act(Act::Remove(file))
    }
    fn read(&self, file: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().unwrap();
        assert!(offset + into.len() as u64 <= FILE_BYTES);
        let end = offset + into.len() as u64;
        let mut unreadable = disk.unreadable.iter();
        if unreadable.any(|&(bad, at)| bad == file && (offset..end).contains(&at)) {
            return Err(io::Error::other("planted"));
        }
        if !disk.now.files.contains(&file) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.now.read(file, offset, into);
        Ok(())
    }
    fn write(&self, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(offset + bytes.len() as u64 <= FILE_BYTES);
        self.act(Act::Write(file, offset, bytes.to_vec()))
    }
    fn sync(&self, file: u32) -> io::Result<()> {
        self.act(Act::Sync(file))
    }
    fn label(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().now.label.clone())
    }
    fn set_label(&self, bytes: &[u8]) -> io::Result<()> {
        self.act(Act::Label(bytes.to_vec()))
    }
    fn path(&self) -> &Path {
        Path::new("/paper")
    }
}
