//! The binary's manners: exit codes and where errors go.

use std::process::{Command, Output};

fn farhaul(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .args(words)
        .output()
        .expect("the binary starts")
}

#[test]
fn wrong_usage_is_2_and_says_who_speaks() {
    for words in [&["no-such-verb"][..], &["--no-such-option"], &[]] {
        let output = farhaul(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("farhaul: "), "{stderr}");
        assert!(!stderr.contains("error:"), "{stderr}");
    }
}

#[test]
fn negative_values_of_a_link_are_named() {
    for words in [
        "run a b loss -1%",
        "set delay -.5ms",
        "run a b --seed 3 rate -5mbit",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = farhaul(&[&["link"], &words[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last = words.last().unwrap();
        assert!(
            stderr.contains(&format!("`{last}`: a negative value is impossible")),
            "{stderr}"
        );
    }
}

#[test]
fn help_and_version_are_0_on_standard_output() {
    for words in ["--help", "--version"] {
        let output = farhaul(&[words]);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            String::from_utf8(output.stdout)
                .expect("the binary starts")
                .contains("farhaul")
        );
        assert!(output.stderr.is_empty());
    }
}
