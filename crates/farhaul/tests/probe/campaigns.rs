//! Campaigns: they go on, end with a document and a page, and say why they cannot
//! begin.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::schema::{fits, schema};
use crate::{CAMPAIGN, Deaf, FARHAUL, LINE, Server, document, ended, probe};

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

/// A campaign with a server here, and its file.
fn campaign_words<'a>(port: &'a str, file: &'a str) -> [&'a str; 6] {
    ["campaign", "127.0.0.1", "--port", port, "--file", file]
}

#[test]
fn a_campaign_goes_on_and_ends_with_document_and_page() {
    let (server, folder) = (Server::start(), Folder::new("whole"));
    let file = folder.file();
    let campaign = |more: &[&str]| {
        let words = campaign_words(&server.port, &file);
        let settings = ["--way", "both", "--for", "300ms", "--circuit", "1000"];
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
    let unwritable = probe(&["report", &file, "--json", "--html", "/proc/no.html"]);
    let unwritable = document(&unwritable, CAMPAIGN);
    assert_eq!(
        (&unwritable["runs_done"], &unwritable["error"]["code"]),
        (&5.into(), &"local".into())
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
        .args(["--runs", "100000", "--for", "200ms", "--json"])
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
fn a_campaign_of_datagrams_tells_their_loss() {
    let (server, folder) = (Server::start(), Folder::new("udp"));
    let file = folder.file();
    let words = campaign_words(&server.port, &file);
    let settings = [
        "--udp",
        "--rate",
        "4",
        "--payload",
        "500",
        "--for",
        "100ms",
        "--way",
        "both",
    ];
    let campaign = |more: &[&str]| probe(&[&words[..], &settings, more].concat());
    let first = document(&campaign(&["--runs", "3", "--json"]), CAMPAIGN);
    assert_eq!(
        (&first["runs_done"], &first["runs_failed"]),
        (&3.into(), &0.into())
    );
    assert_eq!(first["subject"]["test"]["udp"]["payload_bytes"], 500);
    let groups = first["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    for group in groups {
        let percent = group["lost_percent"]["max"].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&percent), "{group}");
        assert!(
            group["bit_per_s"]["median"].as_f64().unwrap() > 1e5,
            "{group}"
        );
        assert!(group["window_rate_bit_per_s"].is_null(), "{group}");
    }
    for run in folder.runs() {
        // A hundred of 500 bytes in a tenth of a second, if nobody is held up.
        let datagrams = run["up"]["datagrams"].as_u64().unwrap();
        assert!((2..=100).contains(&datagrams), "{run}");
    }
    let more = campaign(&["--runs", "4"]);
    assert!(more.status.success());
    let table = String::from_utf8(more.stdout).unwrap();
    assert!(
        table.contains("4 of 4 runs of 0.1 s UDP both, 4 Mbit/s") && table.contains("lost p95"),
        "{table}"
    );
    let page = fs::read_to_string(folder.0.join("c.html")).unwrap();
    assert!(page.contains("Datagrams lost per run, down"));
    let tcp = probe(&[&words[..], &["--runs", "9", "--json"]].concat());
    assert_eq!(document(&tcp, CAMPAIGN)["error"]["code"], "usage");
}

/// The real iperf3, which does one test at a time; ended when dropped.
struct RealIperf3 {
    child: Child,
    port: String,
}

impl RealIperf3 {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let mut child = Command::new("iperf3")
            .args(["-s", "-B", "127.0.0.1", "--forceflush", "-p", &port])
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 is installed by scripts/setup.sh");
        // A trial connection would be taken for a test: its own words are read.
        let mut stdout = child.stdout.take().unwrap();
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains("listening on") {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            heard.push(byte[0]);
        }
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Self { child, port }
    }
}

impl Drop for RealIperf3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_campaign_with_the_real_iperf3_goes_on_back_to_back() {
    let (server, folder) = (RealIperf3::start(), Folder::new("iperf3"));
    let file = folder.file();
    let campaign = |file: &str, more: &[&str]| {
        let words = campaign_words(&server.port, file);
        let settings = ["--iperf3", "--json", "--for", "1s"];
        document(&probe(&[&words[..], &settings, more].concat()), CAMPAIGN)
    };
    let tcp = campaign(
        &file,
        &["--runs", "4", "--windows", "64k,own", "--streams", "2"],
    );
    assert_eq!(
        (&tcp["runs_done"], &tcp["runs_failed"]),
        (&4.into(), &0.into()),
        "{tcp}"
    );
    for group in tcp["groups"].as_array().unwrap() {
        assert_eq!(group["runs"], 2);
        assert!(group["min_rtt_us"].as_u64().unwrap() > 0, "{group}");
        assert!(group["bit_per_s"]["min"].as_f64().unwrap() > 1e6, "{group}");
    }
    assert!(folder.runs().iter().all(|run| run["up"]["lost"].is_null()));
    let datagrams = Folder::new("iperf3-udp");
    let udp = [
        "--runs",
        "2",
        "--udp",
        "--rate",
        "4",
        "--payload",
        "1000",
        "--way",
        "down",
    ];
    let udp = campaign(&datagrams.file(), &udp);
    assert_eq!(
        (&udp["runs_done"], &udp["runs_failed"]),
        (&2.into(), &0.into()),
        "{udp}"
    );
    let [group] = &udp["groups"].as_array().unwrap()[..] else {
        panic!("{udp}")
    };
    assert!(
        group["lost_percent"]["max"].as_f64().unwrap() <= 100.0,
        "{group}"
    );
    for run in datagrams.runs() {
        assert!(run["down"]["datagrams"].as_u64().unwrap() > 100, "{run}");
    }
}

#[test]
fn a_campaign_that_cannot_begin_says_why() {
    let folder = Folder::new("wrong");
    let file = folder.file();
    let refused = |words: &[&str]| {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty());
    };
    refused(&["campaign", "x"]);
    refused(&["campaign", "x", "--runs", "0"]);
    refused(&["report", "/dev/null"]);
    for (bad, code, exit_code) in [("/dev/null", "usage", 2), ("/no/such", "local", 1)] {
        let report = document(&probe(&["report", bad, "--json"]), super::REPORT);
        assert_eq!(
            (&report["error"]["code"], &report["exit_code"]),
            (&code.into(), &exit_code.into())
        );
    }
    for words in [&["--windows", ""][..], &["--every", "2 weeks"]] {
        refused(&[&["campaign", "x", "--runs", "2"], words].concat());
    }
    for words in [
        "--for 0",
        "--windows 1",
        "--rate 5",
        "--payload 500",
        "--udp --streams 2",
        "--udp --windows 64k",
        "--udp --payload 70000",
        "--udp --rate 0",
        "--udp --for 1ms",
        "--udp --rate 0.001",
        "--iperf3 --udp --rate 1e-300",
        "--udp --for 1h --rate 900",
        "--iperf3 --for 1500ms",
        "--iperf3 --for 500ms",
        "--iperf3 --udp --windows own,8k",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        refused(&[&["campaign", "x", "--runs", "2"], &words[..]].concat());
    }
    let words = ["campaign", "no-such-host.invalid", "--runs", "9"];
    let unknown = [&words[..], &["--file", &file, "--json"]].concat();
    let unknown = document(&probe(&unknown), CAMPAIGN);
    assert_eq!(unknown["error"]["code"], "unknown-host");
    assert_eq!(
        (&unknown["exit_code"], &unknown["runs_done"]),
        (&3.into(), &1.into())
    );
}

/// What refuses a document of a campaign or a report of none, as a usage error.
fn refusal(words: &[&str], schema: &str) -> String {
    let seen = document(&probe(&[words, &["--json"]].concat()), schema);
    assert_eq!(
        (&seen["error"]["code"], &seen["exit_code"]),
        (&"usage".into(), &2.into()),
        "{words:?}"
    );
    seen["error"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_page_takes_nobodys_place() {
    let (server, folder) = (Server::start(), Folder::new("page"));
    let file = folder.file();
    let words = [&campaign_words(&server.port, &file)[..], &["--for", "50ms"]].concat();
    let with = |more: &[&'static str]| [&words[..], more].concat();
    assert!(probe(&with(&["--runs", "1"])).status.success());
    let begun = fs::read_to_string(&file).unwrap();
    let name = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let (pipe, fifo_link, hard) = (name("pipe"), name("pipe-link"), name("hard"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    std::os::unix::fs::symlink("pipe", &fifo_link).unwrap();
    fs::hard_link(&file, &hard).unwrap();
    for (page, why) in [
        (&pipe, "no regular file"),
        (&fifo_link, "no regular file"),
        (&file, "would replace the runs"),
        (&hard, "would replace the runs"),
        (&name("./c.jsonl"), "would replace the runs"),
    ] {
        let campaign = [&words[..], &["--runs", "2", "--html", page]].concat();
        let report = ["report", &file, "--html", page];
        for (words, schema) in [(&campaign[..], CAMPAIGN), (&report, super::REPORT)] {
            let text = refusal(words, schema);
            assert!(text.contains(why), "{words:?}: {text}");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), begun);
    let is_pipe = |path| fs::metadata(path).unwrap().file_type().is_fifo();
    assert!(is_pipe(&pipe) && is_pipe(&fifo_link));
    // A file that is there only in name, whose page has that name of itself.
    let page = name("q.html");
    let words = campaign_words(&server.port, &page);
    let text = refusal(&[&words[..], &["--runs", "2"]].concat(), CAMPAIGN);
    assert!(text.contains("would replace the runs"), "{text}");
    assert!(!fs::exists(&page).unwrap());
    // Whose other end nobody opens.
    let text = refusal(&["report", &pipe], super::REPORT);
    assert!(text.contains("no regular file"), "{text}");
}

#[test]
fn an_iperf3_where_ours_was_wanted_is_named() {
    let (server, folder) = (RealIperf3::start(), Folder::new("not-ours"));
    let file = folder.file();
    let words = ["campaign", "127.0.0.1", "--port", &server.port, "--json"];
    let wrong = probe(&[&words[..], &["--runs", "9", "--file", &file]].concat());
    let wrong = document(&wrong, CAMPAIGN);
    assert_eq!(
        (&wrong["error"]["code"], &wrong["exit_code"]),
        (&"protocol".into(), &5.into())
    );
    let text = wrong["error"]["text"].as_str().unwrap();
    assert!(text.contains("campaign --iperf3"), "{text}");
}

#[test]
fn a_missing_iperf3_is_named() {
    let nobody = Deaf::new();
    let port = nobody.port.as_str();
    let folder = Folder::new("no-iperf3");
    let file = folder.file();
    let words = ["campaign", "127.0.0.1", "--port", port, "--iperf3"];
    let none = [&words[..], &["--runs", "9", "--file", &file, "--json"]].concat();
    let none = document(&probe(&none), CAMPAIGN);
    assert_eq!(
        (&none["error"]["code"], &none["exit_code"]),
        (&"unreachable".into(), &3.into())
    );
    let text = none["error"]["text"].as_str().unwrap();
    assert!(
        text.contains("no iperf3 server") && text.contains("iperf3 -s"),
        "{text}"
    );
}
