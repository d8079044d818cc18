//! Requests beside bulk on a lossy link, with error correction and without.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod simulation;

use simulation::{ONE_WAY_NS, run};

#[test]
fn requests_beside_bulk_are_faster_with_repairs_and_bulk_hardly_slower() {
    let off = run("1%", 7, false, 120, 2);
    let on = run("1%", 7, true, 120, 2);
    assert!(on.answers > 300);
    let better_ms = off.p99_ms - on.p99_ms;
    assert!(
        better_ms >= ONE_WAY_NS as f64 / 1e6,
        "without repairs {off:?}, with them {on:?}"
    );
    assert!(on.p50_ms <= off.p50_ms, "the median must not pay");
    assert!(on.bulk as f64 >= off.bulk as f64 * 0.99);
}

#[test]
fn without_loss_nothing_is_spent() {
    let on = run("0%", 7, true, 20, 2);
    assert_eq!((on.repairs, on.recovered), (0, 0));
}
