//! How the code must read, as far as a machine can see it: every file says
//! what it is, none outgrows a reader, nothing is named after nothing.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, signature and braces included.
const FUNCTION_LINES_MAX: usize = 70;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "core", "common", "utils", "util", "manager", "helper", "helpers", "misc",
];
/// Files that were too long when the rule came. Only take lines away here.
const LONG_FILES: &[&str] = &[];
/// Functions that are one table, which a cut would make harder to read.
const LONG_FUNCTIONS: &[&str] = &["golden"];
/// Files that may hold unsafe code, and what for. Only make this longer where nothing else will do.
const UNSAFE_FILES: &[(&str, &str)] = &[
    ("farhaul/tests/link/main.rs", "system calls"),
    (
        "gateway/src/intercept/poll.rs",
        "a descriptor that tokio watches",
    ),
    ("gateway/src/reduction/pages.rs", "advice about memory"),
    ("lab/src/emulate/ethtool.rs", "system calls"),
    ("lab/src/emulate/packet_socket.rs", "system calls"),
    ("lab/src/emulate/realtime.rs", "system calls"),
    ("lab/src/emulate/signals.rs", "system calls"),
    ("lab/src/probe/datagram_socket.rs", "system calls"),
    ("lab/src/probe/socket_state.rs", "system calls"),
    ("lab/tests/probe_memory.rs", "an allocator that counts"),
    ("reduce/benches/reduce/main.rs", "advice about memory"),
    ("reduce/src/prefetch.rs", "a processor's instructions"),
    ("reduce/src/sampler_avx2.rs", "a processor's instructions"),
    ("reduce/src/sampler_avx512.rs", "a processor's instructions"),
    ("reduce/src/stream.rs", "a processor's instructions"),
    ("tunnel/src/fec/gf256_x86.rs", "a processor's instructions"),
];

fn sources() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned();
    let mut folders = vec![crates.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&crates).unwrap().to_owned(), text));
            }
        }
    }
    assert!(
        found.len() > 50,
        "the sources are not where this test looks"
    );
    found
}

fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn complain(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_file_begins_with_what_it_is() {
    let silent = |(_, text): &(PathBuf, String)| !text.starts_with("//!");
    let problems: Vec<String> = sources()
        .into_iter()
        .filter(silent)
        .map(|(path, _)| format!("{}: the first line must be `//! ...`", path.display()))
        .collect();
    complain(&problems);
}

#[test]
fn no_file_outgrows_a_reader() {
    let mut problems = Vec::new();
    let is_test = |path: &Path| path.iter().any(|part| part == "tests");
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        let lines = without_tests(&text).lines().count();
        let known = LONG_FILES.contains(&path.to_str().unwrap());
        if lines > FILE_LINES_MAX && !known {
            problems.push(format!(
                "{}: {lines} lines, at most {FILE_LINES_MAX}",
                path.display()
            ));
        }
        if lines <= FILE_LINES_MAX && known {
            problems.push(format!(
                "{}: short enough now, take it off the list",
                path.display()
            ));
        }
    }
    complain(&problems);
}

#[test]
fn no_function_outgrows_a_screen() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        for (line, name, lines) in functions(&text) {
            let known = LONG_FUNCTIONS.contains(&name.as_str());
            if lines > FUNCTION_LINES_MAX && !known {
                let place = format!("{}:{line}", path.display());
                problems.push(format!(
                    "{place}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
                ));
            }
        }
    }
    complain(&problems);
}

#[test]
fn nothing_is_named_after_nothing() {
    let empty = |path: &Path| {
        let stems = path
            .iter()
            .filter_map(|part| Path::new(part).file_stem()?.to_str());
        stems.into_iter().any(|stem| EMPTY_NAMES.contains(&stem))
    };
    let problems: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| empty(path))
        .map(|(path, _)| format!("{}: name it for what it does", path.display()))
        .collect();
    complain(&problems);
}

/// The lint keeps it out of every file that does not allow it; this list, out of files that should not.
#[test]
fn unsafe_code_is_where_it_is_known_to_be() {
    let allowing = |text: &str| {
        let mut lines = text.lines().map(str::trim_start);
        lines.any(|line| {
            let is_attribute = line.starts_with("#[") || line.starts_with("#![");
            is_attribute
                && ["allow(", "expect(", "warn("]
                    .iter()
                    .any(|word| line.contains(word))
                && line.contains("unsafe_code")
        })
    };
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| allowing(text))
        .map(|(path, _)| path.display().to_string())
        .collect();
    let is_known = |path: &str| UNSAFE_FILES.iter().any(|(known, _)| *known == path);
    let unknown = found.iter().filter(|path| !is_known(path));
    let unknown = unknown.map(|path| format!("{path}: allows unsafe code and is not on the list"));
    let gone = UNSAFE_FILES
        .iter()
        .filter(|(known, _)| !found.iter().any(|path| path == known));
    let gone =
        gone.map(|(known, _)| format!("{known}: allows no unsafe code, take it off the list"));
    complain(&unknown.chain(gone).collect::<Vec<_>>());
    assert!(allowing(
        "//! x\n  #[allow(unsafe_code, missing_docs)] // why\n"
    ));
    assert!(!allowing("//! x\n// #![allow(unsafe_code)] is refused\n"));
}

/// Line, name and length of every function that rustfmt has laid out: it ends
/// with a closing brace in the column its first line begins in.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let bare = line.trim_start();
        let Some(name) = function_name(bare) else {
            continue;
        };
        let indent = " ".repeat(line.len() - bare.len());
        let closing = format!("{indent}}}");
        let rest = lines.iter().skip(start);
        let Some(length) = rest.clone().position(|later| *later == closing) else {
            continue;
        };
        found.push((start + 1, name, length + 1));
    }
    found
}

/// The name, if the line begins a function.
fn function_name(line: &str) -> Option<String> {
    let visible = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (_, rest) = visible.split_once("fn ").filter(|(before, _)| {
        let mut words = before.split_whitespace();
        words.all(|word| ["async", "const", "unsafe", "extern"].contains(&word))
    })?;
    let end = rest.find(['(', '<'])?;
    Some(rest[..end].to_owned())
}

#[test]
fn functions_are_measured_from_signature_to_brace() {
    let text = "//! x\nimpl A {\n    pub(crate) async fn a(\n        b: u8,\n    ) {\n        c();\n    }\n}\nfn d() {\n}\n";
    let expected = vec![(3, "a".to_owned(), 5), (9, "d".to_owned(), 2)];
    assert_eq!(functions(text), expected);
}
