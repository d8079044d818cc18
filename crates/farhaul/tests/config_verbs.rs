//! keygen, check-config and print-config as an operator runs them.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not what they call

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("farhaul-verbs-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn farhaul(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .current_dir(folder)
        .args(words)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn keygen_prints_the_public_key_and_never_overwrites() {
    let folder = folder("keygen");
    let made = farhaul(&folder, &["keygen", "--out", "a.key"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let public = stdout(&made);
    assert!(
        public.starts_with("fh1-") && public.trim().len() == 52,
        "{public}"
    );
    let mode = fs::metadata(folder.join("a.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(
        stdout(&farhaul(&folder, &["keygen", "--show", "a.key"])),
        public
    );

    let before = fs::read(folder.join("a.key")).unwrap();
    let again = farhaul(&folder, &["keygen", "a.key"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        stderr(&again).contains("a.key exists already"),
        "{}",
        stderr(&again)
    );
    assert_eq!(fs::read(folder.join("a.key")).unwrap(), before);

    let nowhere = stderr(&farhaul(&folder, &["keygen", "not/there/a.key"]));
    assert!(
        nowhere.contains("cannot be written") && nowhere.contains("mkdir -p not/there"),
        "{nowhere}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn check_config_and_print_config() {
    let folder = folder("check");
    let key = stdout(&farhaul(&folder, &["keygen", "peer.key"]));
    farhaul(&folder, &["keygen", "own.key"]);
    let good = format!(
        "[site]\nname = \"a\"\nkey = \"own.key\"\n\n[[peer]]\nname = \"b\"\nkey = \"{}\"\nnetworks = [\"10.2.0.0/16\"]\n\n[intercept]\ninterfaces = [\"lo\"]\n",
        key.trim()
    );
    fs::write(folder.join("farhaul.toml"), &good).unwrap();
    let checked = farhaul(&folder, &["check-config"]);
    assert!(checked.status.success(), "{}", stdout(&checked));
    // The one interface that every machine has is not one to intercept on.
    let (warning, summary) = (
        stdout(&checked),
        "farhaul.toml: usable, 1 warning: site a, 1 peer",
    );
    assert!(warning.contains("farhaul.toml:11:15: warning: intercept.interfaces"));
    assert!(warning.contains(summary), "{warning}");

    let printed = farhaul(&folder, &["print-config"]);
    fs::write(folder.join("full.toml"), stdout(&printed)).unwrap();
    let again = farhaul(&folder, &["print-config", "full.toml"]);
    assert_eq!(stdout(&again), stdout(&printed));
    let json = farhaul(&folder, &["print-config", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["tunnel"]["dead_after"], "2500ms");
    assert_eq!(json["peer"][0]["name"], "b");

    let large = format!("{good}\n[store]\nmemory = \"100 TiB\"\n");
    fs::write(folder.join("large.toml"), large).unwrap();
    let here = farhaul(&folder, &["check-config", "large.toml"]);
    assert_eq!(here.status.code(), Some(1));
    let message = "store.memory: 100 TiB is more than this machine has (";
    assert!(stdout(&here).contains(message), "{}", stdout(&here));
    let elsewhere = farhaul(&folder, &["check-config", "large.toml", "--without-key"]);
    assert!(elsewhere.status.success(), "{}", stdout(&elsewhere));

    fs::write(folder.join("bad.toml"), good.replace("networks", "network")).unwrap();
    let bad = farhaul(&folder, &["check-config", "--config", "bad.toml"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).contains("bad.toml:8:1: error: unknown key `network`"));
    assert!(stdout(&bad).contains("did you mean `networks`?"));
    let bad = farhaul(&folder, &["check-config", "bad.toml", "--json"]);
    assert_eq!(bad.status.code(), Some(1));
    let bad: serde_json::Value = serde_json::from_str(&stdout(&bad)).unwrap();
    assert_eq!(bad["ok"], false);
    assert_eq!(bad["problems"][0]["line"], 8);

    fs::remove_file(folder.join("own.key")).unwrap();
    let missing = farhaul(&folder, &["check-config"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stdout(&missing).contains("farhaul keygen"));
    assert!(
        farhaul(&folder, &["check-config", "--without-key"])
            .status
            .success()
    );
    let none = farhaul(&folder, &["check-config", "none.toml"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("none.toml"), "{}", stderr(&none));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn control_characters_of_a_file_never_reach_the_terminal() {
    let folder = folder("control");
    let places = [
        "[site]\nname = \"a@b\"\nkey = \"k@y\"\n",
        "[si@te]\n",
        "\"na@me\" = 1\n[\"pe@er\"]\n",
        "[site]\nname = \"a\"\nkey = \"k\"\n[admin]\nsocket = \"s@k\"\nmetrics = \"1@2\"\n",
        "# comment @\nname =@ 1\n@@@\n",
    ];
    let raw = "\0\x01\x07\x08\t\x0b\x0c\r\x1b\x7f\u{9b}".chars();
    for control in raw {
        let escaped = format!("\\u{:04x}", u32::from(control));
        for text in places {
            for written in [control.to_string(), escaped.clone()] {
                fs::write(folder.join("x.toml"), text.replace('@', &written)).unwrap();
                for words in [&["check-config", "x.toml"][..], &["print-config", "x.toml"]] {
                    let output = farhaul(&folder, words);
                    let shown = stdout(&output) + &stderr(&output);
                    let odd = shown.chars().find(|c| c.is_control() && *c != '\n');
                    assert_eq!(
                        odd, None,
                        "{words:?} of {text:?} with {written:?}: {shown:?}"
                    );
                }
            }
        }
    }
    fs::remove_dir_all(folder).unwrap();
}
