//! `farhaul sim` from outside: runs, shards, stopped runs, reports, logs of
//! others, and what it says to what it cannot use.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farhaul-sim-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sim(words: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .arg("sim")
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn succeed(words: &[&str], folder: &Path) -> String {
    let output = sim(words, folder);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn fail(words: &[&str], folder: &Path, code: i32) -> String {
    let output = sim(words, folder);
    assert_eq!(output.status.code(), Some(code), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The study of the project, a few seconds of it.
fn plan(folder: &Folder, more: &str) {
    let base = format!("{}/../../plans/waikato.toml", env!("CARGO_MANIFEST_DIR"));
    let text = format!(
        "like = \"{base}\"\nname = \"tiny\"\n{more}\n[study]\nduration_s = 10\nwarm_up_s = 2\ndrain_s = 60\n\
         [sweep]\nlink = [\"SS\"]\nload_mbit = [2.5]\nseed = {{ from = 1, to = 2 }}\n[report]\nis_waikato = false\n"
    );
    folder.write("tiny.toml", &text);
}

#[test]
fn shards_on_one_thread_or_more_make_the_whole_and_its_report() {
    let folder = Folder::new("shards");
    plan(&folder, "");
    succeed(&["run", "tiny.toml", "--jobs", "2"], &folder.0);
    for shard in ["0/3", "1/3", "2/3"] {
        succeed(&["run", "tiny.toml", "--shard", shard], &folder.0);
    }
    let shards = ["0", "1", "2"].map(|shard| format!("out/sim-tiny-{shard}-of-3.jsonl"));
    let words: Vec<&str> = ["merge"]
        .into_iter()
        .chain(shards.iter().map(String::as_str))
        .collect();
    let whole = folder.read("out/sim-tiny.jsonl");
    succeed(&words, &folder.0);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // Threads finish in any order; merged, results are in the plan's.
    assert_eq!(sorted(&folder.read("out/sim-tiny.jsonl")), sorted(&whole));

    succeed(&["report", "tiny.toml"], &folder.0);
    assert!(
        folder
            .read("out/sim-tiny.md")
            .contains("direct SS HTTP/1.0 bsd44-nodelay")
    );
    assert!(
        folder
            .read("out/sim-tiny-latency.svg")
            .ends_with("</svg>\n")
    );
    let document: serde_json::Value = serde_json::from_str(&folder.read("out/sim.json")).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["ok"] != false),
        "a rung does not hold"
    );
    assert!(
        rows.iter()
            .any(|row| row["metric"] == "p99 latency" && row["value"].is_f64())
    );

    let two = [shards[0].as_str(), shards[2].as_str()];
    let error = fail(&["merge", two[0], two[1]], &folder.0, 1);
    assert!(
        error.contains("points are missing") && error.contains("shard 1/3"),
        "{error}"
    );
    plan(&folder, "about = \"another\"");
    let error = fail(&["report", "tiny.toml"], &folder.0, 1);
    assert!(error.contains("run it again"), "{error}");
    let error = fail(&["run", "tiny.toml", "--resume"], &folder.0, 1);
    assert!(error.contains("of another plan"), "{error}");
}

#[test]
fn a_stopped_run_goes_on_and_loses_nothing() {
    let folder = Folder::new("resume");
    plan(&folder, "");
    succeed(&["run", "tiny.toml"], &folder.0);
    let whole = folder.read("out/sim-tiny.jsonl");
    let cut = whole.len() * 2 / 3;
    folder.write("out/sim-tiny.jsonl", &whole[..cut]);
    let said = succeed(&["run", "tiny.toml", "--resume"], &folder.0);
    let done = whole[..cut].matches('\n').count() - 1;
    assert!(
        done > 0 && said.contains(&format!("{} points to run, {done} done before", 8 - done)),
        "{said}"
    );
    assert_eq!(folder.read("out/sim-tiny.jsonl"), whole);
}

#[test]
fn logs_of_others_become_workloads() {
    let folder = Folder::new("prepare");
    let line = |second: u32, bytes: u32| {
        format!(
            "8682345{second:02}.500 500 10.0.0.5 TCP_MISS/200 {bytes} GET http://a.example/x - DIRECT/192.0.2.7 text/html\n"
        )
    };
    let log: String = (10..60).map(|second| line(second, 4000)).collect();
    folder.write("access.log", &format!("{log}damaged\n"));
    let said = succeed(&["prepare", "squid", "access.log"], &folder.0);
    assert!(
        said.contains("50 requests to 1 hosts") && said.contains("1 malformed"),
        "{said}"
    );
    plan(&folder, "");
    let text = folder.read("tiny.toml");
    let logged = "[workload]\nhosts = \"out/hosts.txt\"\nlog = \"out/requests.txt\"\ndays = 1\n";
    let base = fs::read_to_string(format!(
        "{}/../../plans/waikato.toml",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap();
    let (before, after) = (
        base.find("[workload]").unwrap(),
        base.find("[sweep]").unwrap(),
    );
    let base = format!("{}{logged}{}", &base[..before], &base[after..]);
    let base = folder.write("base.toml", &base);
    let from = text.find("like = ").unwrap();
    let to = text.find('\n').unwrap();
    let mut text = text.clone();
    text.replace_range(from..to, &format!("like = \"{}\"", base.display()));
    folder.write("tiny.toml", &text);
    succeed(&["run", "tiny.toml"], &folder.0);
    assert_eq!(folder.read("out/sim-tiny.jsonl").lines().count(), 1 + 8);

    folder.write("noise.log", &"noise\n".repeat(200));
    let error = fail(&["prepare", "squid", "noise.log"], &folder.0, 1);
    assert!(
        error.contains("more than 100 malformed lines") && error.contains("line 1:"),
        "{error}"
    );
    folder.write("empty.log", "");
    assert!(fail(&["prepare", "clf", "empty.log"], &folder.0, 1).contains("no request"));
    assert!(fail(&["prepare", "har", "empty.log"], &folder.0, 1).contains("no HAR"));
}

#[test]
fn wrong_words_and_plans_are_refused_before_anything_is_written() {
    let folder = Folder::new("wrong");
    plan(&folder, "");
    assert!(
        fail(&["run", "tiny.toml", "--shard", "3/3"], &folder.0, 2)
            .contains("0/4 for the first of four")
    );
    assert!(fail(&["run", "tiny.toml", "--jobs", "0"], &folder.0, 2).contains("--jobs"));
    assert!(fail(&["run", "gone.toml"], &folder.0, 1).contains("gone.toml"));
    folder.write("bad.toml", "name = \"bad\"\nstudy = 7\n");
    let error = fail(&["run", "bad.toml"], &folder.0, 1);
    assert!(
        error.contains("bad.toml") && error.contains("line 2"),
        "{error}"
    );
    assert!(!folder.0.join("out").exists());
}
