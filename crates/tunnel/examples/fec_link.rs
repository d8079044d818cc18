//! Requests beside bulk on lossy links, with error correction and without: a table.
#![allow(clippy::unwrap_used)]

#[path = "../tests/fec_link/simulation.rs"]
mod simulation;

use simulation::{ONE_WAY_NS, run};

fn main() {
    println!(
        "loss            size   p50 off/on      p99 off/on      better RTT  bulk    repairs recovered n"
    );
    for loss in [
        "0%",
        "0.5%",
        "1%",
        "5%",
        "bursts 0.5% 3",
        "bursts 1% 3",
        "bursts 5% 3",
    ] {
        for datagrams in [7, 46] {
            let off = run(loss, datagrams, false, 400, 1);
            let on = run(loss, datagrams, true, 400, 1);
            let better = (off.p99_ms - on.p99_ms) / (2.0 * ONE_WAY_NS as f64 / 1e6);
            println!(
                "{loss:15} {datagrams:4}  {:6.1} {:6.1}  {:6.1} {:6.1}  {better:6.2}  {:+.3}%  {} {} {}",
                off.p50_ms,
                on.p50_ms,
                off.p99_ms,
                on.p99_ms,
                (on.bulk as f64 / off.bulk as f64 - 1.0) * 100.0,
                on.repairs,
                on.recovered,
                on.answers
            );
        }
    }
}
