//! A plan, whole: real clients and a real server over an emulated link, without and with gateways, and its report.
//! Needs root, and fails without. Nothing here depends on how fast the machine is.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");

fn plan(name: &str) -> String {
    format!("{}/../../plans/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

fn farhaul(words: &[&str]) -> Output {
    Command::new(FARHAUL).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("farhaul-study-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn document(&self, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.file(name)).unwrap()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn row<'a>(document: &'a Value, scenario: &str, config: &str, metric: &str) -> &'a Value {
    let rows = document["rows"].as_array().unwrap();
    let is_it = |row: &&Value| {
        row["scenario"].as_str().unwrap().contains(scenario)
            && row["config"] == config
            && row["metric"] == metric
    };
    rows.iter().find(is_it).unwrap()
}

#[test]
fn a_plan_is_run_whole_goes_on_where_it_was_and_has_a_report() {
    let folder = Folder::new("quick");
    let (out, name) = (folder.file(""), format!("t{}-study", std::process::id()));
    let (plan, only) = (plan("quick"), "smb2 read");
    let run = |more: &[&str]| {
        let words = ["lab", "run", &plan, "--out", &out, "--name", &name];
        farhaul(&[&words, more].concat())
    };
    // A part, then the rest.
    let first = run(&["--only", only]);
    let document = folder.document("quick.json");
    let direct = row(&document, only, "B", "throughput");
    let ours = row(&document, only, "A", "throughput");
    for row in [direct, ours] {
        assert!(
            row["value"].as_f64().unwrap() > 0.0,
            "{row}\n{}",
            said(&first)
        );
        assert!(row["value"].as_f64() < row["limit"].as_f64(), "{row}");
        assert_eq!(row["detail"]["equal"], true, "{row}");
        assert_eq!(row["detail"]["bytes"], 4 << 20, "{row}");
        assert_eq!(row["ok"], Value::Null, "{row}");
    }
    assert!(
        ours["detail"]["gateway"]["reads_answered"].as_u64() > Some(10),
        "{ours}"
    );
    assert!(row(&document, only, "A", "of_direct")["value"].as_f64() > Some(1.0));

    let second = run(&["--resume"]);
    assert!(second.status.success(), "{}", said(&second));
    let whole = folder.document("quick.json");
    assert_eq!(
        row(&whole, only, "A", "throughput"),
        ours,
        "it was not run again"
    );
    let old = row(&whole, "smb1 write", "T", "throughput");
    assert_eq!(old["detail"]["equal"], true, "{old}");
    assert_eq!(old["detail"]["bytes"], 2 << 20, "{old}");
    assert_eq!(whole["plan"], std::fs::read_to_string(&plan).unwrap());
    assert_eq!(whole["rows"].as_array().unwrap().len(), 4);

    let page = folder.file("report.html");
    let report = farhaul(&["lab", "report", &folder.file("quick.json"), "-o", &page]);
    assert!(report.status.success(), "{}", said(&report));
    let page = std::fs::read_to_string(page).unwrap();
    for expected in [
        "lockstep-smb2 read, 20 Mbit/s",
        "A: T and protocol",
        "config = [&quot;T&quot;]",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}

#[test]
fn what_cannot_be_run_or_shown_is_said_in_words() {
    let folder = Folder::new("wrong");
    let (plan, text) = (
        folder.file("p.toml"),
        "name = \"p\"\n\n[[cells]]\ncolour = 1\n",
    );
    std::fs::write(&plan, text).unwrap();
    let wrong = farhaul(&["lab", "run", &plan]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = said(&wrong);
    assert!(
        said.contains("p.toml: ") && said.contains("line 4"),
        "{said}"
    );
    let absent = farhaul(&["lab", "run", &folder.file("absent.toml")]);
    assert_eq!(absent.status.code(), Some(2));
    let page = folder.file("page.html");
    let report = farhaul(&["lab", "report", &plan, "-o", &page]);
    assert_eq!(report.status.code(), Some(1));
    assert!(!std::path::Path::new(&page).exists());
}

#[test]
fn a_plan_can_be_looked_at_without_running_it() {
    let list = farhaul(&[
        "lab",
        "run",
        &plan("wx2006-cifs"),
        "--list",
        "--only",
        "51.84M/250ms",
    ]);
    assert!(list.status.success());
    let said = said(&list);
    assert!(
        said.contains("51.84M/250ms lockstep-smb1 read rcvbuf 65536 A"),
        "{said}"
    );
    assert!(
        !said.contains("1.544M") && said.contains("minutes"),
        "{said}"
    );
}
