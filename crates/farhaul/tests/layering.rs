//! Invariant 1 of ARCHITECTURE.md: dependencies point one way, and the pure
//! crates know neither each other nor anything that does I/O.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on of this workspace, and why not more.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "farhaul-link",
        &[],
        "a model of a circuit needs nothing but numbers",
    ),
    (
        "farhaul-reduce",
        &[],
        "bytes in, bytes out: no circuit, no tunnel",
    ),
    (
        "farhaul-tunnel",
        &[],
        "the protocol must not know what carries or fills it",
    ),
    (
        "farhaul-optimise",
        &[],
        "an optimiser must work over any transport",
    ),
    (
        "farhaul-sim",
        &["farhaul-link", "farhaul-tunnel"],
        "it simulates the machines, not the gateway",
    ),
    (
        "farhaul-gateway",
        &[
            "farhaul-link",
            "farhaul-optimise",
            "farhaul-reduce",
            "farhaul-tunnel",
        ],
        "what runs at a site must not contain the instruments that judge it",
    ),
    (
        "farhaul-lab",
        &["farhaul-link"],
        "the lab judges the real gateway process; linking it would test something else",
    ),
    (
        "farhaul",
        &[
            "farhaul-gateway",
            "farhaul-lab",
            "farhaul-link",
            "farhaul-sim",
        ],
        "the binary is a command line; engines are reached through gateway, lab and sim",
    ),
];

/// Test builds may use more: virtual time over a link, and the lab's result
/// documents for what a bench measures.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("farhaul-tunnel", &["farhaul-link"]),
    ("farhaul-gateway", &["farhaul-lab"]),
    ("farhaul-reduce", &["farhaul-lab"]),
];

const PURE: &[&str] = &[
    "farhaul-link",
    "farhaul-reduce",
    "farhaul-tunnel",
    "farhaul-optimise",
    "farhaul-sim",
];

/// Crates that bring clock, sockets, threads or global randomness.
const IMPURE: &[&str] = &[
    "tokio",
    "noq",
    "quinn",
    "socket2",
    "rustix",
    "nix",
    "libc",
    "mio",
    "hyper",
    "getrandom",
    "rand",
    "nfq",
    "chrono",
    "time",
    "rayon",
    "crossbeam",
];

/// `std` paths a pure crate may not name outside its tests.
const IMPURE_STD: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "std::process",
    "std::os::",
];

struct Package {
    folder: String,
    normal: Vec<String>,
    test: Vec<String>,
}

fn packages() -> BTreeMap<String, Package> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let read = |package: &Value| {
        let of_kind = |kind: Option<&str>| {
            let all = package["dependencies"].as_array().unwrap().iter();
            all.filter(|dependency| dependency["kind"].as_str() == kind)
                .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let manifest = package["manifest_path"].as_str().unwrap();
        let package_name = package["name"].as_str().unwrap().to_owned();
        let folder = manifest.trim_end_matches("Cargo.toml").to_owned();
        (
            package_name,
            Package {
                folder,
                normal: of_kind(None),
                test: of_kind(Some("dev")),
            },
        )
    };
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(read)
        .collect()
}

fn is_ours(name: &str) -> bool {
    name == "farhaul" || name.starts_with("farhaul-")
}

#[test]
fn dependencies_point_one_way() {
    let packages = packages();
    assert!(packages.len() >= 5, "cargo metadata lists the workspace");
    for (name, package) in &packages {
        let rule = ALLOWED.iter().find(|(crate_name, _, _)| crate_name == name);
        let (_, allowed, why) =
            rule.unwrap_or_else(|| panic!("{name} is new: give it a line in ALLOWED"));
        for dependency in package
            .normal
            .iter()
            .filter(|dependency| is_ours(dependency))
        {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}: {why}"
            );
        }
        let in_tests = ALLOWED_IN_TESTS
            .iter()
            .find(|(crate_name, _)| crate_name == name);
        for dependency in package.test.iter().filter(|dependency| is_ours(dependency)) {
            let is_allowed = allowed.contains(&dependency.as_str())
                || in_tests.is_some_and(|(_, more)| more.contains(&dependency.as_str()));
            assert!(
                is_allowed,
                "the tests of {name} must not depend on {dependency}: {why}"
            );
        }
    }
}

#[test]
fn pure_crates_read_no_clock_socket_file_or_global_randomness() {
    let packages = packages();
    let mut looked_at = 0;
    for name in PURE {
        let Some(package) = packages.get(*name) else {
            continue;
        };
        for dependency in &package.normal {
            assert!(
                !IMPURE.contains(&dependency.as_str()),
                "{name} is pure (time and randomness are arguments) but depends on {dependency}"
            );
        }
        let mut folders = vec![std::path::PathBuf::from(&package.folder).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    looked_at += 1;
                    assert_pure(name, &path);
                }
            }
        }
    }
    assert!(
        looked_at >= 2,
        "only {looked_at} source files of pure crates were found"
    );
}

fn assert_pure(name: &str, path: &std::path::Path) {
    let text = std::fs::read_to_string(path).unwrap();
    // Unit tests close a file; they may use what they like.
    let code = text.split("#[cfg(test)]").next().unwrap();
    for (at, line) in code.lines().enumerate() {
        let line_code = line.split("//").next().unwrap();
        for word in IMPURE_STD {
            assert!(
                !line_code.contains(word),
                "{}:{}: {name} is pure and must not use {word}",
                path.display(),
                at + 1
            );
        }
    }
}
