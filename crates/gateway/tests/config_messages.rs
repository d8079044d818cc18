//! What an operator reads about a bad file, word for word.
//!
//! Each `config/bad/NAME.toml` has its messages in `NAME.txt`. After a wanted
//! change of wording run the test with `FARHAUL_WRITE_GOLDEN=1` and review the diff.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not what they call

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use farhaul_gateway::config::load::{LoadError, check};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn messages(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    match check(&text, Path::new(&name(path)), |_| None) {
        Ok(loaded) => loaded.warnings.to_string(),
        Err(LoadError::Invalid(problems)) => {
            assert!(problems.has_errors());
            problems.to_string()
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn bad_files_say_what_is_wrong_where_and_what_to_do() {
    let write = std::env::var_os("FARHAUL_WRITE_GOLDEN").is_some();
    let files = files("bad");
    assert!(files.len() >= 30, "{} fixtures", files.len());
    let mut differing = BTreeSet::new();
    for path in &files {
        let shown = messages(path);
        assert!(!shown.is_empty(), "{} is found good", name(path));
        let golden = path.with_extension("txt");
        if write {
            fs::write(&golden, &shown).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if shown != expected {
            println!(
                "--- {} expected\n{expected}\n--- shown\n{shown}",
                name(path)
            );
            differing.insert(name(path));
        }
    }
    assert!(differing.is_empty(), "messages differ: {differing:?}");
}

#[test]
fn every_message_names_file_line_and_column() {
    for path in files("bad") {
        let shown = messages(&path);
        let place = format!("{}:", name(&path));
        let heads = shown.lines().filter(|line| line.starts_with(&place));
        for head in heads.clone() {
            let mut numbers = head[place.len()..].split(':');
            let mut number = || numbers.next().unwrap().parse::<usize>().unwrap();
            assert!(number() >= 1 && number() >= 1, "{head}");
        }
        assert!(heads.count() >= 1, "{shown}");
    }
}

#[test]
fn good_files_are_good() {
    for path in files("good") {
        let shown = messages(&path);
        assert!(!shown.contains(": error: "), "{}: {shown}", name(&path));
    }
}
