//! Two sites are paired with `init` and `join`, as two operators would.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not what they call

mod new_file;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("farhaul-pair-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    for site in ["first", "second", "third"] {
        fs::create_dir_all(folder.join(site)).unwrap();
    }
    folder
}

fn farhaul(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .current_dir(folder)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .trim()
        .to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn good(folder: &Path, words: &[&str]) -> String {
    let output = farhaul(folder, words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    stdout(&output)
}

fn bad(folder: &Path, words: &[&str]) -> String {
    let output = farhaul(folder, words);
    assert!(!output.status.success(), "{words:?}: {}", stdout(&output));
    stderr(&output)
}

const INIT: &[&str] = &[
    "init",
    "--site",
    "harbour",
    "--networks",
    "10.1.0.0/16",
    "--peer-networks",
    "10.2.0.0/16,fd00:2::/48",
    "--mode",
    "transparent",
    "--interface",
    "lan0",
    "--elsewhere",
];
const JOIN: &[&str] = &["--site", "hq", "--mode", "explicit"];

fn with<'w>(words: &[&'w str], more: &[&'w str]) -> Vec<&'w str> {
    [words, more].concat()
}

fn config(folder: &Path) -> serde_json::Value {
    serde_json::from_str(&good(folder, &["print-config", "--json"])).unwrap()
}

#[test]
fn init_join_accept() {
    let all = folder("whole");
    let (first, second, third) = (all.join("first"), all.join("second"), all.join("third"));
    let token = good(&first, &with(INIT, &["--address", "hq.example.org:5000"]));
    assert!(token.starts_with("fhjoin1-"), "{token}");

    let answer = good(&second, &with(&["join", &token], JOIN));
    assert!(answer.starts_with("fhanswer1-"), "{answer}");
    let joined = config(&second);
    assert_eq!(joined["peer"][0]["address"], "hq.example.org:5000");
    assert_eq!(joined["peer"][0]["dial"], "us");
    assert_eq!(joined["accept"]["destinations"][1], "fd00:2::/48");
    // Asked again, it answers again and adds nothing.
    assert!(good(&second, &["join", &token]).starts_with("fhanswer1-"));
    assert_eq!(config(&second), joined);

    let before = fs::read_to_string(first.join("farhaul.toml")).unwrap();
    good(&first, &["init", "--accept", &answer]);
    let after = fs::read_to_string(first.join("farhaul.toml")).unwrap();
    assert!(after.starts_with(before.trim_end()), "{after}");
    let accepted = config(&first);
    assert_eq!(accepted["peer"][0]["name"], "hq");
    assert_eq!(accepted["peer"][0]["dial"], "peer");
    assert_eq!(accepted["tunnel"]["listen"], "[::]:5000");
    let public = good(&second, &["keygen", "--show", "hq.key"]);
    assert_eq!(accepted["peer"][0]["key"].as_str().unwrap(), public);
    let public = good(&first, &["keygen", "--show", "harbour.key"]);
    assert_eq!(joined["peer"][0]["key"].as_str().unwrap(), public);
    // The first names a LAN interface that the machine of this test lacks.
    let checked = good(&first, &["check-config"]);
    assert!(checked.contains("no `lan0` at the moment"), "{checked}");
    assert!(checked.contains("usable, 1 warning:"), "{checked}");
    let checked = good(&second, &["check-config"]);
    assert!(checked.contains("usable, 0 warnings"), "{checked}");

    // An answer counts once; a second peer needs a token of its own.
    assert!(bad(&first, &["init", "--accept", &answer]).contains("--another"));
    assert!(bad(&first, &with(INIT, &["--address", "none"])).contains("exists already"));
    let another = [
        "init",
        "--another",
        "--address",
        "hq.example.org:5000",
        "--peer-networks",
        "10.3.0.0/16",
    ];
    let token = good(&first, &another);
    let answer = good(
        &third,
        &with(&["join", &token], &["--site", "port", "--mode", "explicit"]),
    );
    good(
        &first,
        &["init", "--accept", &answer, "--peer-name", "the port"],
    );
    assert_eq!(config(&first)["peer"][1]["name"], "the port");
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn the_joining_side_waits_where_the_first_only_dials() {
    let all = folder("dials");
    let (first, second) = (all.join("first"), all.join("second"));
    let token = good(&first, &with(INIT, &["--address", "none"]));
    let error = bad(&second, &with(&["join", &token], JOIN));
    assert!(error.contains("--address is missing"), "{error}");
    assert!(!second.join("farhaul.toml").exists());
    let join = with(&["join", &token, "--address", "[2001:db8::7]:4433"], JOIN);
    let answer = good(&second, &join);
    good(&first, &["init", "--accept", &answer]);
    assert_eq!(config(&first)["peer"][0]["address"], "[2001:db8::7]:4433");
    assert_eq!(config(&second)["peer"][0]["dial"], "peer");
    assert_eq!(config(&second)["tunnel"]["listen"], "[::]:4433");
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn a_network_lies_at_one_site_only() {
    let all = folder("overlap");
    let (first, second) = (all.join("first"), all.join("second"));
    let mut twice = with(INIT, &["--address", "none"]);
    let own = twice.iter().position(|word| *word == "10.1.0.0/16");
    twice[own.unwrap()] = "fd00:2::/48";
    let error = bad(&first, &twice);
    assert!(
        error.contains("fd00:2::/48 cannot lie at this site"),
        "{error}"
    );
    assert!(!first.join("farhaul.toml").exists());

    let token = good(&first, &with(INIT, &["--address", "hq.example.org:4433"]));
    let theirs = with(
        &["join", &token, "--networks", "10.2.0.0/16,10.1.0.0/16"],
        JOIN,
    );
    let error = bad(&second, &theirs);
    assert!(
        error.contains("10.1.0.0/16 cannot lie at this site"),
        "{error}"
    );
    assert!(!second.join("farhaul.toml").exists());
    // A part of what the other site has may well be here.
    let part = with(&["join", &token, "--networks", "10.1.7.0/24"], JOIN);
    let output = farhaul(&second, &part);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("10.1.7.0/24, which is here, is a part of 10.1.0.0/16 at the other site"),
        "{said}"
    );
    // Nor can it be brought in when a file is there already.
    let error = bad(&second, &["join", &token, "--networks", "10.1.0.0/16"]);
    assert!(
        error.contains("its accept.destinations is 10.1.7.0/24"),
        "{error}"
    );
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn a_join_that_fails_leaves_no_file() {
    let all = folder("failed");
    let first = all.join("first");
    let token = good(&first, &with(INIT, &["--address", "hq.example.org:4433"]));
    // Beside the first site's own files, with its key by its name.
    let join = [
        "join",
        &token,
        "--config",
        "other.toml",
        "--site",
        "harbour",
        "--mode",
        "explicit",
    ];
    let error = bad(&first, &join);
    assert!(error.contains("made here"), "{error}");
    assert!(!first.join("other.toml").exists());
    good(&first, &["check-config"]);
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn who_names_a_lan_interface_has_said_which_mode_is_meant() {
    let all = folder("mode");
    let first = all.join("first");
    let words: Vec<&str> = INIT
        .iter()
        .copied()
        .filter(|word| !["--mode", "transparent"].contains(word))
        .collect();
    good(&first, &with(&words, &["--address", "none"]));
    let written = config(&first);
    assert_eq!(written["intercept"]["mode"], "transparent");
    assert_eq!(written["intercept"]["interfaces"][0], "lan0");
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn wrong_texts_change_nothing() {
    let all = folder("wrong");
    let (first, second, third) = (all.join("first"), all.join("second"), all.join("third"));
    let token = good(&first, &with(INIT, &["--address", "hq.example.org:4433"]));
    let other = good(
        &third,
        &with(INIT, &["--address", "third.example.org:4433"]),
    );
    let answer = good(&second, &with(&["join", &token], JOIN));
    let before = fs::read_to_string(first.join("farhaul.toml")).unwrap();

    let mut typo = answer.clone();
    typo.replace_range(30..31, if &answer[30..31] == "A" { "B" } else { "A" });
    assert!(bad(&first, &["init", "--accept", &typo]).contains("damaged"));
    assert!(bad(&first, &["init", "--accept", &token]).contains("this is a pairing token"));
    assert!(bad(&third, &["init", "--accept", &answer]).contains("another token"));
    assert!(bad(&first, &["join", &token]).contains("made here"));
    assert!(bad(&second, &["join", &other[..90]]).contains("damaged"));
    assert_eq!(
        fs::read_to_string(first.join("farhaul.toml")).unwrap(),
        before
    );
    good(&first, &["init", "--accept", &answer]);

    let missing = farhaul(&all, &["init", "--site", "x"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("--networks is missing"));
    assert!(!all.join("farhaul.toml").exists());
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn an_interface_that_is_not_there_is_refused_before_anything_is_written() {
    let all = folder("interface");
    let first = all.join("first");
    let words = with(INIT, &["--address", "hq.example.org:4433"]);
    let here: Vec<&str> = words
        .into_iter()
        .filter(|word| *word != "--elsewhere")
        .map(|word| if word == "lan0" { "nosuch0" } else { word })
        .collect();
    let refused = farhaul(&first, &here);
    assert_eq!(refused.status.code(), Some(2));
    let told = stderr(&refused);
    assert!(told.contains("no interface `nosuch0`; there "), "{told}");
    assert_eq!(fs::read_dir(&first).unwrap().count(), 0);
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn what_no_gateway_serves_is_refused_at_once() {
    let all = folder("never");
    let first = all.join("first");
    for (flag, value, why) in [
        ("--interface", "lo", "nobody's connections arrive"),
        ("--address", "239.1.1.1:4433", "is multicast"),
        ("--address", "0.0.0.0:4433", "is no address of a machine"),
        ("--address", "255.255.255.255:4433", "is broadcast"),
        ("--networks", "127.0.0.0/8", "is loopback"),
        ("--peer-networks", "ff00::/8", "is multicast"),
    ] {
        let mut words = with(INIT, &["--address", "hq.example.org:4433"]);
        let at = words.iter().position(|word| *word == flag).unwrap();
        words[at + 1] = value;
        let error = bad(&first, &words);
        assert!(error.contains(why), "{flag} {value}: {error}");
    }
    assert!(!first.join("farhaul.toml").exists());
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn two_sites_have_two_names() {
    let all = folder("names");
    let (first, second) = (all.join("first"), all.join("second"));
    let token = good(&first, &with(INIT, &["--address", "hq.example.org:4433"]));
    let same = ["join", &token, "--site", "harbour", "--mode", "explicit"];
    let error = bad(&second, &same);
    assert!(error.contains("so is the other one"), "{error}");
    assert!(!second.join("farhaul.toml").exists());
    // Called something else here, the first site finds out in turn.
    let answer = good(&second, &with(&same, &["--peer-name", "old-harbour"]));
    let error = bad(&first, &["init", "--accept", &answer]);
    assert!(error.contains("so is the other one"), "{error}");
    let renamed = ["init", "--accept", &answer, "--peer-name", "new-harbour"];
    good(&first, &renamed);
    fs::remove_dir_all(all).unwrap();
}

/// A file of the second site that knows the first one, by this token.
fn joined(all: &Path) -> String {
    let address = ["--address", "hq.example.org:4433"];
    let token = good(&all.join("first"), &with(INIT, &address));
    good(&all.join("second"), &with(&["join", &token], JOIN));
    token
}

#[test]
fn a_join_that_changes_nothing_says_so() {
    let all = folder("again");
    let second = all.join("second");
    let token = joined(&all);
    let before = fs::read_to_string(second.join("farhaul.toml")).unwrap();
    // As the first time, word by word, and with a part of what may be reached here.
    let same = with(
        &["join", &token, "--socks", "127.0.0.1:1080", "--peer-name"],
        &["harbour"],
    );
    let part = ["join", &token, "--networks", "10.2.9.0/24"];
    for words in [with(&same, JOIN), part.to_vec()] {
        let output = farhaul(&second, &words);
        let told = stderr(&output);
        assert!(output.status.success(), "{told}");
        assert!(stdout(&output).starts_with("fhanswer1-"));
        assert!(
            told.contains("farhaul.toml knows harbour (fh1-"),
            "{words:?}: {told}"
        );
        assert!(told.contains("already and is unchanged"), "{told}");
    }
    let json = good(&second, &["join", &token, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["added"], false);
    let after = fs::read_to_string(second.join("farhaul.toml")).unwrap();
    assert_eq!(after, before);
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn a_token_that_contradicts_the_file_gets_no_answer() {
    let all = folder("contradicts");
    let (first, second) = (all.join("first"), all.join("second"));
    joined(&all);
    let file = second.join("farhaul.toml");
    let before = fs::read_to_string(&file).unwrap();
    let another = |address: &str, networks: &str| {
        fs::write(
            first.join("farhaul.toml"),
            fs::read_to_string(first.join("farhaul.toml"))
                .unwrap()
                .replace("10.1.0.0/16", networks),
        )
        .unwrap();
        let words = ["init", "--another", "--peer-networks", "10.2.0.0/16"];
        good(&first, &with(&words, &["--address", address]))
    };
    let address = another("new.example.org:4433", "10.1.0.0/16");
    let error = bad(&second, &["join", &address]);
    let differs = "peer.address is hq.example.org:4433 here, new.example.org:4433 in the token. The file is unchanged";
    assert!(error.contains(differs), "{error}");
    let networks = another("hq.example.org:4433", "10.7.0.0/16");
    let error = bad(&second, &["join", &networks]);
    let differs = "peer.networks is 10.1.0.0/16 here, 10.7.0.0/16 in the token";
    assert!(error.contains(differs), "{error}");
    assert!(
        error.contains("edit the [[peer]] block of harbour"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    // Edited, it is answered; what the peer is called here is nobody else's business.
    let edited = before
        .replace("10.1.0.0/16", "10.7.0.0/16")
        .replace("name = \"harbour\"", "name = \"the harbour\"");
    fs::write(&file, &edited).unwrap();
    let answer = good(&second, &["join", &networks]);
    assert_eq!(fs::read_to_string(&file).unwrap(), edited);
    good(&first, &["init", "--accept", &answer]);
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn what_an_existing_file_contradicts_is_refused() {
    let all = folder("kept");
    let (first, second, third) = (all.join("first"), all.join("second"), all.join("third"));
    let token = joined(&all);
    let other = good(
        &third,
        &with(
            &["init", "--site", "port", "--networks", "10.3.0.0/16"],
            &["--address", "port.example.org:4433", "--mode", "explicit"],
        )
        .into_iter()
        .chain(["--peer-networks", "10.2.0.0/16"])
        .collect::<Vec<_>>(),
    );
    let before = fs::read_to_string(second.join("farhaul.toml")).unwrap();
    let refused = |folder: &Path, words: &[&str], told: &str| {
        let output = farhaul(folder, words);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(told), "{words:?}: {error}");
    };
    for (flag, given, told) in [
        ("--site", "elsewhere", "its site.name is hq"),
        ("--mode", "transparent", "its intercept.mode is explicit"),
        ("--interface", "lan0", "its intercept.interfaces is empty"),
        (
            "--socks",
            "127.0.0.1:9",
            "its listen.socks is 127.0.0.1:1080",
        ),
        (
            "--networks",
            "10.8.0.0/16",
            "its accept.destinations is 10.2.0.0/16, fd00:2::/48",
        ),
        ("--address", "192.0.2.1:4433", "nobody would dial it"),
    ] {
        for token in [&token, &other] {
            refused(&second, &["join", token, flag, given], told);
        }
        if flag != "--address" {
            refused(&second, &["init", "--another", flag, given], told);
        }
    }
    let renamed = ["join", &token, "--peer-name", "old-harbour"];
    refused(&second, &renamed, "as harbour; leave the flag out");
    assert_eq!(
        fs::read_to_string(second.join("farhaul.toml")).unwrap(),
        before
    );
    let answer = good(&second, &["join", &token]);
    for flag in ["--networks", "--peer-networks"] {
        let late = ["init", "--accept", &answer, flag, "10.1.0.0/16"];
        refused(&first, &late, "belongs to the token");
    }
    let unknown = ["init", "--another", "--peer-name", "hq"];
    refused(&first, &unknown, "give it with --accept ANSWER");
    good(&second, &["join", &other, "--site", "hq"]);
    fs::remove_dir_all(all).unwrap();
}
