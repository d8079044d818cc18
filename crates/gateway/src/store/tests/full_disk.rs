//! The store on a file system that is too small for it, and that others fill. Needs root: it is a file system of its own.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::panic::resume_unwind;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::on_disk::{Place, counts};
use super::*;

/// Does something where the store's folder is a file system of so many bytes. Only the thread that does it sees that, so it is gone
/// when the thread is, whatever happens.
fn on_small_disk(place: &Place, bytes: u64, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).expect("a file system of its own needs root");
            let none = None::<&str>;
            let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
            mount(none, "/", none, private, none).unwrap();
            size(place, bytes, MsFlags::empty());
            work();
        });
        worker.join().unwrap_or_else(|panic| resume_unwind(panic));
    });
}

fn size(place: &Place, bytes: u64, flags: MsFlags) {
    let (kind, size) = (Some("tmpfs"), format!("size={bytes}"));
    mount(kind, &place.file(""), kind, flags, Some(size.as_str())).unwrap();
}

/// Takes all the room there is.
fn fill(place: &Place) {
    let mut file = File::create(place.file("of-somebody-else")).unwrap();
    let error = loop {
        if let Err(error) = file.write_all(&[1; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

fn save_all(store: &mut impl Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert!(save(store, number, 1, &lengths(50)), "{number}");
        store.sync().unwrap();
    }
}

fn numbers(store: &mut impl Store) -> Vec<u64> {
    load_all(store, &[1]).into_keys().collect()
}

#[test]
fn a_disk_that_is_full_holds_the_newest_of_what_fits_and_more_when_there_is_room() {
    let place = Place::new("full");
    let two_files = 2 * FILE_BYTES + FILE_BYTES / 2;
    on_small_disk(&place, two_files, || {
        let mut store = place.open(4).unwrap();
        save_all(&mut store, 0..60);
        assert_eq!(numbers(&mut store), (28..60).collect::<Vec<_>>());
        let told = counts(&store);
        assert!(told.full > 0 && told.failed == 0, "{told:?}");
        let problem = told.problem.unwrap();
        assert!(problem.starts_with("cannot reserve room in "), "{problem}");
        fill(&place);
        // What was reserved is still there to be written to.
        save_all(&mut store, 60..70);
        drop(store);
        let mut store = place.open(4).unwrap();
        assert_eq!(numbers(&mut store), (38..70).collect::<Vec<_>>());
        assert_eq!(counts(&store).failed, 0);
        size(&place, 2 * two_files, MsFlags::MS_REMOUNT);
        save_all(&mut store, 70..110);
        assert_eq!(numbers(&mut store), (46..110).collect::<Vec<_>>());
        assert_eq!(counts(&store).bad_blocks, 0);
    });
}

#[test]
fn a_disk_without_any_room_keeps_nothing_until_there_is_some() {
    let place = Place::new("fuller");
    on_small_disk(&place, FILE_BYTES / 2, || {
        let mut store = place.open(4).unwrap();
        fill(&place);
        assert!(!save(&mut store, 1, 1, &lengths(50)));
        assert!(counts(&store).full > 0);
        drop(store);
        // Not even a new label can be written.
        fs::remove_file(place.file("store")).unwrap();
        fill(&place);
        let error = place.open(4).err().unwrap().to_string();
        assert!(error.starts_with("cannot label "), "{error}");
        size(&place, 2 * FILE_BYTES, MsFlags::MS_REMOUNT);
        let mut store = place.open(4).unwrap();
        save_all(&mut store, 1..20);
        assert_eq!(numbers(&mut store), (4..20).collect::<Vec<_>>());
    });
}
