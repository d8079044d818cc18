//! Interception in real network namespaces: client - router - server, with a
//! small gateway on the router that decides by destination port.
//!
//! Needs root and fails without it. No libtest harness, because the gateway
//! and its guard must be processes of their own that can be killed: this
//! program starts itself in those roles.
//! `cargo test -p farhaul-gateway --test intercept [-- WORD]` runs the tests
//! whose name contains WORD.
#![allow(clippy::unwrap_used)] // all of this is a test, though no libtest one

mod death;
mod far_side;
mod place;
mod role;
mod verdicts;

use std::panic::catch_unwind;
use std::process::ExitCode;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().and_then(|word| word.into_string().ok());
    match first.as_deref() {
        Some("--role-guard") => return role::guard(arguments.collect()),
        Some("--role-gateway") => return role::gateway(arguments.collect()),
        _ => {}
    }
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    run(filter.as_deref().unwrap_or(""))
}

fn run(filter: &str) -> ExitCode {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests build network namespaces: run them as root"
    );
    let tests: Vec<Test> = [verdicts::TESTS, death::TESTS, far_side::TESTS].concat();
    let mut failed = Vec::new();
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(filter)) {
        let start = std::time::Instant::now();
        let passed = catch_unwind(test).is_ok();
        let result = if passed { "ok" } else { "FAILED" };
        println!(
            "test {name} ... {result} ({:.1} s)",
            start.elapsed().as_secs_f64()
        );
        if !passed {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
