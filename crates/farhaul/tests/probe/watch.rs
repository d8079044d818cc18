//! Watch mode: what a terminal shows of a campaign, line by line.

use std::process::{Command, Stdio};

use crate::campaigns::Folder;
use crate::{FARHAUL, Server};

/// What a terminal gets of a campaign of three runs, prepared by a command of `stty`.
fn shown(name: &str, term: &str, stty: &str) -> String {
    let (server, folder) = (Server::start(), Folder::new(name));
    let campaign = format!(
        "stty {stty}; exec {FARHAUL} probe campaign 127.0.0.1 --port {} --file {} \
         --runs 3 --for 100ms --every 2500ms > /dev/null",
        server.port,
        folder.file()
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &campaign, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", term)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    shown
}

/// Each time the line was written, without what cleared the rest of the old one.
fn writings(shown: &str) -> Vec<&str> {
    let parts = shown.split("\x1b[K");
    let whole = parts.filter_map(|part| Some(part.rsplit_once('\r')?.1));
    whole.filter(|line| line.starts_with("run ")).collect()
}

#[test]
fn a_terminal_shows_one_line_that_is_written_anew() {
    let shown = shown("watch", "xterm", "cols 60");
    let lines = writings(&shown);
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    for start in [
        "run 1 of 3 begins",
        "run 1 of 3, ",
        "run 2 in 2 s; run 1 of 3, ",
        "run 3 in 1 s; run 2 of 3, ",
        "run 3 of 3, ",
    ] {
        assert!(has(start), "{start}: {lines:?}");
    }
    // The whole line is longer; one that wraps is not covered by the next one.
    let widths = || lines.iter().map(|line| line.chars().count());
    assert_eq!(widths().max(), Some(59), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with('…')), "{lines:?}");
    // What is printed next begins on a line of its own.
    assert!(shown.ends_with("\x1b[K\r\n"), "{shown:?}");
    assert!(!shown.contains("farhaul: "), "{shown:?}");
}

#[test]
fn a_terminal_of_unknown_width_has_eighty_columns() {
    let shown = shown("watch-serial", "vt100", "cols 0");
    let lines = writings(&shown);
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert_eq!(widest, Some(79), "{lines:?}");
}

#[test]
fn a_terminal_that_cannot_clear_a_line_gets_plain_ones() {
    let shown = shown("watch-dumb", "dumb", "cols 60");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    let plain = shown.lines().filter(|line| line.contains("farhaul: run "));
    // The first and the last; another one only every ten seconds.
    assert!((2..=3).contains(&plain.count()), "{shown:?}");
    assert!(shown.contains("run 3 of 3"), "{shown:?}");
}
