//! The study's numbers, kept: a change of engine, TCP or proxies that moves
//! them shows in review. `FARHAUL_SNAPSHOT=write cargo test -p farhaul-sim
//! --test snapshot` writes them anew; count `MODEL_VERSION` up when they move, or
//! `PAIR_VERSION` when only the pairs do. Both stand in the first line.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use farhaul_sim::plan::{self, Plan};

/// Twelve experiments and the modern ones, short and small.
const SHORTER: &str = r#"
name = "snapshot"
[study]
duration_s = 20
warm_up_s = 5
drain_s = 60
[sweep]
load_mbit = [5]
seed = { from = 1, to = 1 }
"#;

fn lines(base: &str) -> String {
    let read = |name: &str| {
        let path = format!("{}/../../plans/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    };
    let plan = Plan::parse(&format!("like = \"{base}.toml\"\n{SHORTER}"), &read).unwrap();
    let mut text = format!("{base}, 20 s, 5 Mbit/s, seed 1, {}\n", plan.model());
    for point in plan.points() {
        let result = plan::run(&plan, point);
        assert_eq!(
            (result.unanswered, &result.error),
            (0, &None),
            "{}",
            point.config()
        );
        let _ = writeln!(
            text,
            "{:<40} mean {:.3} median {:.3} p99 {:.3} s, queue {} B, sessions {}, {} packet events, {}",
            point.config(),
            result.mean_s.unwrap(),
            result.median_s.unwrap(),
            result.p99_s.unwrap(),
            result.queue_bytes_max,
            result.sessions_max,
            result.packet_events,
            result.trace
        );
    }
    text
}

fn compare(base: &str) {
    let path = format!("{}/tests/snapshots/{base}.txt", env!("CARGO_MANIFEST_DIR"));
    let now = lines(base);
    if std::env::var("FARHAUL_SNAPSHOT").is_ok_and(|word| word == "write") {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    for (kept, now) in kept.lines().zip(now.lines()) {
        assert_eq!(kept, now, "{path} says otherwise");
    }
    assert_eq!(kept.lines().count(), now.lines().count());
}

#[test]
fn the_twelve_experiments_give_what_they_gave() {
    compare("waikato");
}

#[test]
fn todays_experiments_give_what_they_gave() {
    compare("waikato-today");
}
