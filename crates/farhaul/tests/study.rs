//! A plan, whole: real clients and a real server over an emulated link, without and with gateways, and its report.
//! Needs root, and fails without. Nothing here depends on how fast the machine is.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, symlink};
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

    /// Lets a document and its rows say that they were made from this commit.
    fn made_from(&self, name: &str, commit: &str) {
        let mut document = self.document(name);
        document["commit"] = commit.into();
        for row in document["rows"].as_array_mut().unwrap() {
            row["detail"]["commit"] = commit.into();
        }
        std::fs::write(self.file(name), document.to_string()).unwrap();
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
        assert_eq!(row["detail"]["smb_dialect"], "2.1", "{row}");
        assert_eq!(row["detail"]["tcp_rmem"][2], 6_291_456, "{row}");
        assert_eq!(row["detail"]["tcp_rmem_server"][1], 131_072, "{row}");
    }
    assert!(
        ours["detail"]["gateway"]["reads_answered"].as_u64() > Some(10),
        "{ours}"
    );
    assert!(row(&document, only, "A", "of_direct")["value"].as_f64() > Some(1.0));

    // As if it had been made from other sources.
    folder.made_from("quick.json", "0123456789ab");
    let kept = folder.document("quick.json");
    let second = run(&["--only", "smb1 write"]);
    assert!(second.status.success(), "{}", said(&second));
    let more = folder.document("quick.json");
    for config in ["B", "A"] {
        let [before, after] = [&kept, &more].map(|file| row(file, only, config, "throughput"));
        assert_eq!(after, before, "it was not asked for");
    }
    let old = row(&more, "smb1 write", "T", "throughput");
    assert_eq!(old["detail"]["equal"], true, "{old}");
    assert_eq!(old["detail"]["bytes"], 2 << 20, "{old}");
    assert_eq!(old["detail"]["smb_dialect"], "NT LM 0.12", "{old}");
    assert_ne!(old["detail"]["commit"], "0123456789ab", "of this run");
    assert_ne!(more["commit"], "0123456789ab", "of the last run");

    let third = run(&["--resume"]);
    assert!(third.status.success(), "{}", said(&third));
    let whole = folder.document("quick.json");
    let again = row(&whole, "smb1 write", "T", "throughput");
    assert_eq!(again, old, "it was not run again");
    assert_eq!(whole["plan"], std::fs::read_to_string(&plan).unwrap());
    assert_eq!(whole["rows"].as_array().unwrap().len(), 9 + 6);
    who_jumps_about_is_told_apart(&whole);
    small_files_are_all_there(&whole);
    the_report_has_them_all(&folder);
}

fn who_jumps_about_is_told_apart(document: &Value) {
    let work = "smb1 random";
    for config in ["B", "A"] {
        let row = row(document, work, config, "throughput");
        assert_eq!(row["detail"]["equal"], true, "{row}");
        assert_eq!(row["detail"]["ended"], "whole", "{row}");
        assert_eq!(row["detail"]["bytes"], 64 * 4096, "{row}");
        assert_eq!(row["detail"]["read_requests"], 64, "{row}");
    }
    let bytes = row(document, work, "A", "extra_bytes");
    assert!(bytes["value"].as_f64() >= Some(0.0), "{bytes}");
    let extra = row(document, work, "A", "extra_reads");
    assert!(
        extra["detail"]["reads_made"].as_f64() > Some(0.0),
        "{extra}"
    );
}

fn small_files_are_all_there(document: &Value) {
    for (work, config) in [
        ("folder", "B"),
        ("folder", "A"),
        ("browse", "B"),
        ("browse", "A"),
    ] {
        let row = row(document, work, config, "time");
        assert!(row["value"].as_f64() > row["limit"].as_f64(), "{row}");
        assert_eq!(row["detail"]["equal"], true, "{row}");
        assert_eq!(row["detail"]["files_done"], 20, "{row}");
        assert_eq!(row["detail"]["smb_dialect"], "3.1.1", "{row}");
    }
}

fn the_report_has_them_all(folder: &Folder) {
    let page = folder.file("report.html");
    let report = farhaul(&["lab", "report", &folder.file("quick.json"), "-o", &page]);
    assert!(report.status.success(), "{}", said(&report));
    let page = std::fs::read_to_string(page).unwrap();
    for expected in [
        "lockstep-smb2 read, 20 Mbit/s",
        "A: T and protocol",
        "config = [&quot;T&quot;]",
        "20M/25ms smbclient browse",
        "(2 rows: 0123456789ab)",
        "dialect 2.1; window of at most",
        "tcp_rmem 4096 131072 6291456",
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

/// A copy of a folder that is cut counts the files that are there.
#[test]
fn of_a_folder_whose_time_is_up_the_pace_counts() {
    let folder = Folder::new("late");
    let (plan, out, name) = (
        folder.file("late.toml"),
        folder.file(""),
        format!("t{}-late", std::process::id()),
    );
    // 400 files of four round trips take 160 s.
    let text = "name = 'late'\n[[cells]]\nrate = ['20mbit']\ndelay = ['50ms']\nclient = ['smbclient']\n\
                work = ['folder']\nconfig = ['B']\nfiles = 400\nsize = '400 kB'\ncell_s = 12\n";
    std::fs::write(&plan, text).unwrap();
    let output = farhaul(&["lab", "run", &plan, "--out", &out, "--name", &name]);
    let document = folder.document("late.json");
    let row = row(&document, "folder", "B", "time");
    assert_eq!(row["detail"]["ended"], "late", "{row} {}", said(&output));
    assert!(row["detail"]["files_done"].as_u64() < Some(400), "{row}");
    assert!(row["value"].as_f64() > Some(100.0), "{row}");
    assert_eq!(row["detail"]["faults"], 0, "{row}");
}

/// Gateways answer blocks before they have crossed the link; what has not does not count.
#[test]
fn of_a_write_whose_time_is_up_what_the_server_has_counts() {
    let folder = Folder::new("cut");
    let (plan, out, name) = (
        folder.file("cut.toml"),
        folder.file(""),
        format!("t{}-cut", std::process::id()),
    );
    // 16 MiB take 35 s.
    let text = "name = 'cut'\n[[cells]]\nrate = ['4mbit']\ndelay = ['20ms']\nclient = ['lockstep-smb2']\n\
                work = ['write']\nconfig = ['A']\nsize = '16 MiB'\ncell_s = 10\n";
    std::fs::write(&plan, text).unwrap();
    let output = farhaul(&["lab", "run", &plan, "--out", &out, "--name", &name]);
    let document = folder.document("cut.json");
    let row = row(&document, "write", "A", "throughput");
    assert_eq!(row["detail"]["ended"], "late", "{row} {}", said(&output));
    assert!(row["detail"]["bytes"].as_u64() > Some(0), "{row}");
    assert!(row["value"].as_f64() <= row["limit"].as_f64(), "{row}");
    assert_eq!(row["detail"]["faults"], 0, "{row}");
}

/// Whoever may run it by sudo is given what it makes, and no folder that was there.
#[test]
fn only_what_was_made_belongs_to_who_called_sudo() {
    const CALLER: u32 = 65_534;
    let folder = Folder::new("sudo");
    let (plan, name) = (
        folder.file("one.toml"),
        format!("t{}-sudo", std::process::id()),
    );
    let text = "name = 'one'\n[[cells]]\nrate = ['20mbit']\ndelay = ['0ms']\nclient = ['lockstep-smb2']\n\
                config = ['B']\nsize = '1 MiB'\n";
    std::fs::write(&plan, text).unwrap();
    let run = |out: &str| {
        let words = ["lab", "run", &plan, "--resume", "--name", &name, "--out"];
        let caller = CALLER.to_string();
        Command::new(FARHAUL)
            .args(words)
            .arg(folder.file(out))
            .env("SUDO_UID", &caller)
            .env("SUDO_GID", &caller)
            .output()
            .unwrap()
    };
    let owner = |path: &str| {
        let seen = std::fs::symlink_metadata(folder.file(path)).unwrap();
        assert!(!seen.is_symlink(), "{path}");
        (seen.uid(), seen.gid())
    };
    let (root, caller) = ((0, 0), (CALLER, CALLER));
    std::fs::create_dir(folder.file("kept")).unwrap();
    symlink("kept", folder.file("link")).unwrap();
    let made = run("link/new/deep");
    assert!(made.status.success(), "{}", said(&made));
    assert_eq!(owner("kept"), root);
    for path in ["kept/new", "kept/new/deep", "kept/new/deep/one.json"] {
        assert_eq!(owner(path), caller, "{path}");
    }
    // Into what is there; nothing is left to be run.
    let theirs = folder.file("kept/theirs.json");
    std::fs::copy(folder.file("kept/new/deep/one.json"), theirs).unwrap();
    symlink("theirs.json", folder.file("kept/one.json")).unwrap();
    let again = run("link");
    assert!(again.status.success(), "{}", said(&again));
    let found = ["kept", "kept/theirs.json", "kept/one.json"].map(owner);
    assert_eq!(found, [root, root, caller]);
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
