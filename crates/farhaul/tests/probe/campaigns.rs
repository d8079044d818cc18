//! Campaigns: they go on, end with a document and a page, and say why they cannot
//! begin.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::schema::{fits, schema};
use crate::{CAMPAIGN, FARHAUL, LINE, Server, document, ended, probe};

/// A folder of a campaign; removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("farhaul-campaign-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self) -> String {
        self.0.join("c.jsonl").to_str().unwrap().to_owned()
    }

    /// Its runs so far, each held against the schema.
    fn runs(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let root = schema(LINE);
        let mut runs: Vec<Value> = lines.filter(|line: &Value| line["line"] == "run").collect();
        for run in &mut runs {
            run.as_object_mut().unwrap().remove("line");
            fits(run, &root["$defs"]["Run"], &root, "run").unwrap();
        }
        runs
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let begin = Instant::now();
        while !holds(&self.runs()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "no {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_campaign_goes_on_and_ends_with_document_and_page() {
    let (server, folder) = (Server::start(), Folder::new("whole"));
    let file = folder.file();
    let campaign = |more: &[&str]| {
        let words = [
            "campaign",
            "127.0.0.1",
            "--port",
            &server.port,
            "--file",
            &file,
        ];
        let settings = ["--way", "both", "--for", "30ms", "--circuit", "1000"];
        probe(&[&words[..], &settings, more].concat())
    };
    let windows = ["--windows", "16k,own"];
    let first = campaign(&[&windows[..], &["--runs", "3", "--json"]].concat());
    let first = document(&first, CAMPAIGN);
    assert_eq!(
        (&first["runs_done"], &first["runs_failed"]),
        (&3.into(), &0.into())
    );
    assert_eq!(first["groups"].as_array().unwrap().len(), 4);
    // A run's session is over before the next one begins.
    assert_eq!(first["runs_disturbed"], 0);
    let more = [&windows[..], &["--runs", "5", "--every", "10ms"]].concat();
    let more = campaign(&more);
    assert!(more.status.success());
    let told = String::from_utf8(more.stderr).unwrap();
    assert!(
        told.contains("run 5 of 5") && !told.contains('\x1b'),
        "{told}"
    );
    let table = String::from_utf8(more.stdout).unwrap();
    assert!(
        table.contains("5 of 5 runs") && table.contains("% of circuit"),
        "{table}"
    );
    let page = fs::read_to_string(folder.0.join("c.html")).unwrap();
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    assert_eq!(folder.runs().len(), 5);
    // The page and the document again, from the file alone.
    let again = document(&probe(&["report", &file, "--json"]), CAMPAIGN);
    assert_eq!(
        (&again["runs_done"], &again["starts"]),
        (&5.into(), &2.into())
    );
    let other = campaign(&["--runs", "5", "--json"]);
    let other = document(&other, CAMPAIGN);
    assert_eq!(
        (&other["exit_code"], &other["error"]["code"]),
        (&2.into(), &"usage".into())
    );
}

#[test]
fn a_campaign_outlives_its_server_and_an_interrupt_ends_it_with_a_document() {
    let (server, folder) = (Server::start(), Folder::new("outage"));
    let child = Command::new(FARHAUL)
        .args(["probe", "campaign", "127.0.0.1", "--port", &server.port])
        .args(["--runs", "100000", "--for", "30ms", "--json"])
        .args(["--file", &folder.file()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let has_failed = |run: &Value| !run["error"].is_null();
    folder.wait_for("good run", |runs| runs.iter().any(|run| !has_failed(run)));
    let port = server.port.clone();
    drop(server);
    folder.wait_for("failed run", |runs| runs.iter().any(has_failed));
    let _again = Server::at(&port, "32");
    folder.wait_for("good run after failed ones", |runs| {
        let last = runs.last();
        runs.iter().any(has_failed) && last.is_some_and(|run| !has_failed(run))
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let report = document(&ended(child), CAMPAIGN);
    assert_eq!(
        (&report["error"]["code"], &report["exit_code"]),
        (&"interrupted".into(), &7.into())
    );
    let runs = folder.runs();
    assert_eq!(report["runs_done"], runs.len());
    let failed = runs.iter().filter(|run| has_failed(run)).count();
    assert_eq!(report["runs_failed"], failed);
    assert!(folder.0.join("c.html").exists());
}

#[test]
fn a_campaign_that_cannot_begin_says_why() {
    let folder = Folder::new("wrong");
    let file = folder.file();
    for words in [
        &["campaign", "x"][..],
        &["campaign", "x", "--runs", "0"],
        &["campaign", "x", "--runs", "2", "--for", "0"],
        &["campaign", "x", "--runs", "2", "--windows", "1"],
        &["campaign", "x", "--runs", "2", "--windows", ""],
        &["campaign", "x", "--runs", "2", "--every", "2 weeks"],
        &["report", "/dev/null"],
    ] {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty());
    }
    let unknown = [
        "campaign",
        "no-such-host.invalid",
        "--runs",
        "9",
        "--file",
        &file,
    ];
    let unknown = document(&probe(&[&unknown[..], &["--json"]].concat()), CAMPAIGN);
    assert_eq!(unknown["error"]["code"], "unknown-host");
    assert_eq!(
        (&unknown["exit_code"], &unknown["runs_done"]),
        (&3.into(), &1.into())
    );
}
