//! What a first file is written beside, and what is left where it cannot be.

use std::fs;
use std::path::Path;

use super::{INIT, JOIN, bad, farhaul, folder, good, stderr, with};

/// What lies in a folder, by name.
fn listing(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn two_files_of_one_folder_share_no_key() {
    let all = folder("shared");
    let (first, second) = (all.join("first"), all.join("second"));
    let address = ["--address", "hq.example.org:4433"];
    let token = good(&first, &with(INIT, &address));
    let before = listing(&first);
    let mut other = with(INIT, &address);
    for (config, site) in [
        ("b.toml", "harbour"),
        ("b.toml", "Harbour"),
        ("b.conf", "harbour"),
    ] {
        other[2] = site;
        let error = bad(&first, &with(&other, &["--config", config]));
        let told = format!("farhaul.toml uses the key harbour.key, which {config} would use, too");
        assert!(error.contains(&told), "{error}");
        assert_eq!(listing(&first), before);
    }
    // The token that waits is still good.
    let answer = good(&second, &with(&["join", &token], JOIN));
    good(&first, &["init", "--accept", &answer]);
    // Another name, or another folder, is another gateway.
    other[2] = "port";
    good(&first, &with(&other, &["--config", "b.toml"]));
    good(
        &all,
        &with(INIT, &with(&address, &["--config", "third/a.toml"])),
    );
    // Nor does a join share one: here the token's own.
    let error = bad(
        &second,
        &with(&["join", &token, "--config", "b.toml"], JOIN),
    );
    assert!(
        error.contains("farhaul.toml uses the key hq.key"),
        "{error}"
    );
    assert!(
        error.contains("farhaul join TOKEN, with --config farhaul.toml"),
        "{error}"
    );
    assert!(!second.join("b.toml").exists());
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn a_key_that_is_left_is_used_again_and_said_to_be() {
    let all = folder("left");
    let (first, second) = (all.join("first"), all.join("second"));
    let init = with(INIT, &["--address", "hq.example.org:4433"]);
    let token = good(&first, &init);
    good(&second, &with(&["join", &token], JOIN));
    let public = good(&first, &["keygen", "--show", "harbour.key"]);
    for (folder, words) in [
        (&first, init.clone()),
        (&second, with(&["join", &token], JOIN)),
    ] {
        fs::remove_file(folder.join("farhaul.toml")).unwrap();
        let output = farhaul(folder, &words);
        let told = stderr(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("the key that is there, "), "{told}");
    }
    assert_eq!(good(&first, &["keygen", "--show", "harbour.key"]), public);
    // A token that another gateway waits for is not its to replace.
    fs::remove_file(first.join("farhaul.toml")).unwrap();
    fs::rename(first.join("harbour.key"), first.join("old.key")).unwrap();
    let before = listing(&first);
    let error = bad(&first, &init);
    assert!(
        error.contains("harbour.pairing holds a token of another gateway, harbour (fh1-"),
        "{error}"
    );
    assert_eq!(listing(&first), before);
    fs::remove_file(first.join("harbour.pairing")).unwrap();
    good(&first, &init);
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn a_file_that_cannot_be_written_leaves_no_key() {
    let all = folder("unwritable");
    let (first, second) = (all.join("first"), all.join("second"));
    let init = with(INIT, &["--address", "hq.example.org:4433"]);
    let token = good(&second, &init);
    let join = with(&["join", &token], JOIN);
    std::os::unix::fs::symlink("nowhere/a.toml", first.join("link.toml")).unwrap();
    fs::create_dir(first.join("harbour.pairing")).unwrap();
    let before = listing(&first);
    for (config, told) in [
        ("nowhere/a.toml", "make its folder first: mkdir -p nowhere"),
        (
            "link.toml",
            "a symbolic link to nowhere/a.toml, which is not there",
        ),
        (
            ".",
            "that is a folder; name the file, as in --config ./farhaul.toml",
        ),
    ] {
        for words in [&init, &join] {
            let error = bad(&first, &with(words, &["--config", config]));
            assert!(error.contains(told), "{error}");
            assert_eq!(listing(&first), before);
        }
    }
    let error = bad(&first, &init);
    assert!(error.contains("harbour.pairing is a folder"), "{error}");
    assert_eq!(listing(&first), before);
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn a_flag_of_the_other_mode_is_refused() {
    let all = folder("unused");
    let first = all.join("first");
    let explicit = with(
        &with(&INIT[..7], &["--mode", "explicit"]),
        &["--address", "none"],
    );
    let transparent = with(INIT, &["--address", "none"]);
    for (words, more, told) in [
        (
            &explicit,
            &["--elsewhere"][..],
            "--elsewhere: explicit mode takes",
        ),
        (
            &explicit,
            &["--interface", "lan0"],
            "--interface lan0: explicit mode takes",
        ),
        (
            &transparent,
            &["--socks", "127.0.0.1:9"],
            "--socks 127.0.0.1:9: transparent mode has no proxy",
        ),
    ] {
        let output = farhaul(&first, &with(words, more));
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(told), "{error}");
        assert_eq!(fs::read_dir(&first).unwrap().count(), 0);
    }
    good(&first, &with(&explicit, &["--socks", "127.0.0.1:9"]));
    fs::remove_dir_all(all).unwrap();
}
