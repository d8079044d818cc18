//! The store in a folder of the file system where somebody has put something else, or cut something off.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// A folder that is gone when the test is over.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new(name: &str) -> Self {
        let folder = format!("farhaul-store-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("peer/sent")).unwrap();
        Self(path)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join("peer/sent").join(name)
    }

    fn pipe(&self, name: &str) {
        let _ = fs::remove_file(self.file(name));
        mknodat(CWD, self.file(name), FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    pub(super) fn open(&self, files: u64) -> Result<Embedded<Folder>, StoreError> {
        Embedded::open(Folder::open(&self.file(""))?, options(files))
    }

    /// What is wrong with it, as `farhaul cache verify` says.
    fn wrong(&self) -> Vec<(PathBuf, String)> {
        let verified = verify(&self.0).unwrap().remove(0);
        assert_eq!(verified.bad_blocks, 0);
        let files = verified.unreadable.into_iter();
        files.map(|file| (file.path, file.why)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn counts(store: &impl Store) -> Counts {
    store.catalog().lock().unwrap().counts()
}

#[test]
fn what_is_no_file_is_named_and_left_alone_and_the_store_goes_on_without_it() {
    let place = Place::new("pipes");
    place.pipe("segments-00000000");
    fs::create_dir(place.file("segments-00000002")).unwrap();
    fs::create_dir(place.file("segments-00000009")).unwrap();
    let mut store = place.open(3).unwrap();
    for number in 0..20 {
        assert!(save(&mut store, number, 1, &lengths(50)));
        store.sync().unwrap();
    }
    assert_eq!(load_all(&mut store, &[1]).len(), FILE_SLOTS as usize);
    drop(store);
    let store = place.open(3).unwrap();
    let counts = counts(&store);
    assert_eq!((counts.unusable_files, counts.full), (3, 0));
    let problem = counts.problem.unwrap();
    assert!(
        problem.ends_with(
            "segments-00000009: a folder, no regular file: the store does without it; remove it"
        ),
        "{problem}"
    );
    let wrong = place.wrong();
    let what: Vec<&str> = wrong.iter().map(|(_, what)| what.as_str()).collect();
    let folder = "a folder, no regular file";
    assert_eq!(what, ["a pipe, no regular file", folder, folder]);
    assert_eq!(wrong[0].0, place.file("segments-00000000"));
}

#[test]
fn what_is_in_the_way_of_a_file_is_told_of_also_when_the_store_was_cleared() {
    let place = Place::new("barred");
    drop(place.open(3).unwrap());
    fs::create_dir(place.file("segments-00000001")).unwrap();
    symlink(place.file("nowhere"), place.file("segments-00000002")).unwrap();
    let mut store = place.open(3).unwrap();
    let before = counts(&store);
    assert_eq!(before.barred_files, 2);
    let problem = before.problem.unwrap();
    assert!(
        problem.contains("segments-00000002: a symbolic link to what is not there: "),
        "{problem}"
    );
    store.clear().unwrap();
    let after = counts(&store);
    assert_eq!(after.barred_files, 2);
    let problem = after.problem.unwrap();
    assert!(
        problem.ends_with("segments-00000001 and 1 more are in the way of files of segments"),
        "{problem}"
    );
}

#[test]
fn a_file_that_was_cut_short_is_named_once_and_made_again() {
    let place = Place::new("cut");
    let mut store = place.open(2).unwrap();
    for number in 0..20 {
        assert!(save(&mut store, number, 1, &lengths(50)));
    }
    store.sync().unwrap();
    drop(store);
    let file = File::options()
        .write(true)
        .open(place.file("segments-00000000"));
    file.unwrap().set_len(5000).unwrap();
    assert_eq!(
        place.wrong(),
        [(
            place.file("segments-00000000"),
            format!("cut short, 5000 of {FILE_BYTES} bytes are left"),
        )]
    );
    let mut store = place.open(2).unwrap();
    let problem = counts(&store).problem.unwrap();
    assert!(
        problem.starts_with("cannot use ")
            && problem.contains("segments-00000000: cut short, 5000 of"),
        "{problem}"
    );
    assert!(problem.ends_with("what it held is forgotten"), "{problem}");
    assert_eq!(counts(&store).unusable_files, 1);
    assert_eq!(
        load_all(&mut store, &[1]).len(),
        4,
        "those of the other file"
    );
    assert!(place.wrong().is_empty());
    for number in 20..40 {
        assert!(save(&mut store, number, 1, &lengths(50)));
    }
    store.sync().unwrap();
    drop(store);
    let mut store = place.open(2).unwrap();
    assert_eq!(
        (counts(&store).unusable_files, counts(&store).problem),
        (0, None)
    );
    assert_eq!(load_all(&mut store, &[1]).len(), 24);
    assert!(place.wrong().is_empty());
}

/// A gateway that is killed while it makes a file leaves none that is empty, so an empty one is told of, wherever it is.
#[test]
fn a_file_that_was_cut_to_nothing_is_told_of() {
    let place = Place::new("emptied");
    let mut store = place.open(2).unwrap();
    assert!(save(&mut store, 1, 1, &lengths(50)));
    store.sync().unwrap();
    drop(store);
    let file = place.file("segments-00000000");
    File::create(&file).unwrap();
    let why = format!("cut short, 0 of {FILE_BYTES} bytes are left");
    assert_eq!(place.wrong(), [(file.clone(), why)]);
    let store = place.open(2).unwrap();
    let problem = counts(&store).problem.unwrap();
    assert!(problem.ends_with("what it held is forgotten"), "{problem}");
    assert_eq!(counts(&store).unusable_files, 1);
    assert!(!file.exists());
}

#[test]
fn a_file_that_was_not_made_to_its_end_is_no_trouble_and_takes_no_room() {
    let place = Place::new("begun");
    drop(place.open(1).unwrap());
    let new = place.file("segments.new");
    fs::write(&new, "begun").unwrap();
    assert!(place.wrong().is_empty());
    let mut store = place.open(1).unwrap();
    assert!(!new.exists());
    assert!(save(&mut store, 1, 1, &lengths(50)));
    store.sync().unwrap();
    assert!(!new.exists());
    assert_eq!(
        (counts(&store).unusable_files, counts(&store).problem),
        (0, None)
    );
}

#[test]
fn a_file_appears_when_all_of_its_room_is_there() {
    let place = Place::new("made");
    let folder = Folder::open(&place.file("")).unwrap();
    // Longer than any file system allows.
    assert!(folder.create(0, i64::MAX as u64).is_err());
    assert_eq!(folder.numbers().unwrap(), [0; 0]);
    assert!(!place.file("segments.new").exists());
    folder.create(0, FILE_BYTES).unwrap();
    assert_eq!(folder.length(0).unwrap(), FILE_BYTES);
}

#[test]
fn files_that_are_removed_meanwhile_are_no_longer_counted_and_made_again() {
    let place = Place::new("removed");
    let mut store = place.open(3).unwrap();
    for number in 0..40 {
        assert!(save(&mut store, number, 1, &lengths(50)));
        store.sync().unwrap();
    }
    fs::remove_file(place.file("segments-00000000")).unwrap();
    fs::remove_file(place.file("segments-00000001")).unwrap();
    assert_eq!(store.load(key(3), &mut Vec::new()).unwrap(), lengths(0));
    let used = |store: &Embedded<Folder>| store.catalog().lock().unwrap().used_bytes();
    assert_eq!(used(&store), 8 << 20);
    let problem = counts(&store).problem.unwrap();
    let told = "segments-00000000 and 1 more were removed: what they held is forgotten";
    assert!(problem.ends_with(told), "{problem}");
    assert_eq!(
        (counts(&store).unusable_files, counts(&store).bad_blocks),
        (2, 0)
    );
    for number in 40..80 {
        assert!(save(&mut store, number, 1, &lengths(50)));
    }
    store.sync().unwrap();
    assert_eq!((used(&store), counts(&store).failed), (48 << 20, 0));
    assert_eq!(load_all(&mut store, &[1]).len(), 48);
}

#[test]
fn a_file_that_is_removed_before_it_is_written_to_costs_what_it_held() {
    let place = Place::new("unwritten");
    let mut store = place.open(2).unwrap();
    let file = place.file("segments-00000000");
    assert!(save(&mut store, 0, 1, &lengths(50)));
    fs::remove_file(&file).unwrap();
    assert!(store.sync().is_err());
    assert!(save(&mut store, 1, 1, &lengths(50)));
    store.sync().unwrap();
    fs::remove_file(&file).unwrap();
    assert!(!save(&mut store, 2, 1, &lengths(50)));
    assert!(save(&mut store, 2, 1, &lengths(50)));
    store.sync().unwrap();
    let there = load_all(&mut store, &[1]);
    assert_eq!(there, BTreeMap::from([(2, lengths(50))]));
}

#[test]
fn a_label_or_a_lock_that_is_a_pipe_keeps_nobody_waiting() {
    let place = Place::new("label");
    drop(place.open(1).unwrap());
    place.pipe("store");
    let refused = place.open(1).err().unwrap().to_string();
    assert!(
        refused.starts_with("cannot read the label of "),
        "{refused}"
    );
    assert!(
        refused.ends_with("`store`: a pipe, no regular file"),
        "{refused}"
    );
    assert_eq!(place.wrong()[0].1, "`store`: a pipe, no regular file");
    fs::remove_file(place.file("store")).unwrap();
    place.pipe("store.new");
    let refused = place.open(1).err().unwrap().to_string();
    assert!(
        refused.ends_with("`store.new`: a pipe, no regular file"),
        "{refused}"
    );
    place.pipe("lock");
    let refused = place.open(1).err().unwrap().to_string();
    assert!(
        refused.ends_with("lock: a pipe, no regular file"),
        "{refused}"
    );
}

#[test]
fn segments_without_label_are_told_of() {
    let place = Place::new("unlabelled");
    let mut store = place.open(1).unwrap();
    assert!(save(&mut store, 1, 1, &lengths(50)));
    store.sync().unwrap();
    drop(store);
    assert_eq!(place.wrong(), []);
    fs::remove_file(place.file("store")).unwrap();
    let [(_, why)] = <[_; 1]>::try_from(place.wrong()).unwrap();
    assert!(why.starts_with("`store`, which says"), "{why}");
    fs::write(place.file("store"), "something else").unwrap();
    assert_eq!(place.wrong()[0].1, why);
    let store = place.open(1).unwrap();
    let problem = counts(&store).problem.unwrap();
    let told = "`store`, which says of what the segments are, is damaged, or of another version: what they held is forgotten";
    assert!(problem.ends_with(told), "{problem}");
    assert_eq!(counts(&store).unusable_files, 1);
    drop(store);
    // Nothing is lost where there was nothing.
    fs::write(place.file("store"), "something else").unwrap();
    assert_eq!(counts(&place.open(1).unwrap()).problem, None);
}
