//! A short calibration with the real emulator on real packets: every part
//! gives its rows, and what does not depend on an idle machine holds.
//! Needs root, and fails without.

#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions only, not beside them

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Runs one part; returns its rows.
fn calibrate(part: &str) -> Vec<Value> {
    let name = format!("t{}-{part}", std::process::id());
    let folder =
        std::env::temp_dir().join(format!("farhaul-calibrate-{part}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .args(["lab", "calibrate", "--quick", "--only", part, "--out"])
        .arg(&folder)
        .args(["--name", &name])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let path: PathBuf = folder.join("calibrate.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(
        !left.contains(&format!("fh-{name}-")),
        "left behind: {left}"
    );
    document["rows"].as_array().unwrap().clone()
}

fn of_metric<'a>(rows: &'a [Value], metric: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["metric"] == metric).collect()
}

#[test]
fn losses_are_those_of_the_profile_and_nothing_is_copied_or_swapped() {
    let rows = calibrate("loss");
    let losses = of_metric(&rows, "loss");
    assert_eq!(losses.len(), 7);
    for row in losses {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{row}"));
        let sent = number(&row["detail"]["sent"]);
        let expected = sent * number(&row["limit"]) / 100.0;
        let lost = number(&row["detail"]["lost"]);
        // Five standard deviations: other frames share the random stream, so
        // the same seed does not always lose the same packets of ours.
        assert!((lost - expected).abs() <= 5.0 * expected.sqrt(), "{row}");
    }
    for row in of_metric(&rows, "copied_or_swapped") {
        assert_eq!(row["ok"], true, "{row}");
    }
    assert_eq!(of_metric(&rows, "lateness_p99").len(), 1);
}

#[test]
fn no_packet_is_early_and_every_way_is_captured() {
    let rows = calibrate("delay");
    assert_eq!(of_metric(&rows, "rtt").len(), 8);
    let one_ways = of_metric(&rows, "one_way");
    assert_eq!(one_ways.len(), 14);
    for row in one_ways {
        let (least, nominal) = (row["min"].as_f64(), row["limit"].as_f64());
        assert!(least.is_some() && least >= nominal, "{row}");
        // A busy machine makes packets late, but not half of them by much.
        let median = row["median"].as_f64().unwrap();
        assert!(median <= nominal.unwrap() + 20.0, "{row}");
    }
}

#[test]
fn what_makes_every_row_impossible_is_said_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .args(["lab", "calibrate", "--quick", "--name", "Bad_Name"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.matches("Bad_Name").count(), 1, "{error}");
    assert!(output.stdout.is_empty());
}
