//! `farhaul probe` as a program: documents that fit the published schema
//! whatever happens, exit codes of the table, nothing left running.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");

const REPORT: &str = "probe-report";
const CAMPAIGN: &str = "probe-campaign";
const LINE: &str = "probe-campaign-line";

fn schema_path(document: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    folder.join(format!("{document}.schema.json"))
}

fn schema(document: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(schema_path(document)).unwrap()).unwrap()
}

fn probe(words: &[&str]) -> Output {
    Command::new(FARHAUL)
        .arg("probe")
        .args(words)
        .output()
        .unwrap()
}

/// A server on a port of its own; ended when dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        Self::for_clients("32")
    }

    fn for_clients(most: &str) -> Self {
        Self::at("0", most)
    }

    fn at(port: &str, most: &str) -> Self {
        let mut child = Command::new(FARHAUL)
            .args(["probe", "serve", "--listen", "127.0.0.1"])
            .args(["--port", port, "--clients", most])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        assert!(port.parse::<u16>().is_ok(), "{line}");
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The report of a command, held against the schema, with its exit code.
fn report(output: &Output) -> Value {
    document(output, REPORT)
}

fn document(output: &Output, name: &str) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    let schema = schema(name);
    if let Err(problem) = fits(&report, &schema, &schema, "report") {
        panic!("{problem}");
    }
    assert_eq!(report["exit_code"], output.status.code().unwrap());
    report
}

/// As much of JSON Schema as ours uses; any other word in it is an error.
fn fits(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    let fail = |why: String| Err(format!("{at}: {why}: {value}"));
    let Some(words) = schema.as_object() else {
        // `true` allows everything.
        assert_eq!(schema, &Value::Bool(true), "{at}");
        return Ok(());
    };
    for (word, rule) in words {
        match word.as_str() {
            "$schema" | "title" | "description" | "format" | "$defs" | "default" => {}
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                fits(value, &root["$defs"][name], root, at)?;
            }
            "type" => {
                let one = || vec![rule.clone()];
                let any = rule.as_array().cloned().unwrap_or_else(one);
                if !any.iter().any(|name| is_a(value, name.as_str().unwrap())) {
                    return fail(format!("not of type {rule}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return fail(format!("none of {rule}"));
            }
            "const" if rule != value => return fail(format!("not {rule}")),
            "enum" | "const" => {}
            "anyOf" | "oneOf" => {
                let mut any = rule.as_array().unwrap().iter();
                if !any.any(|one| fits(value, one, root, at).is_ok()) {
                    return fail("fits no alternative".to_owned());
                }
            }
            "required" => {
                let missing = |name: &&Value| {
                    value.is_object() && value.get(name.as_str().unwrap()).is_none()
                };
                if let Some(name) = rule.as_array().unwrap().iter().find(missing) {
                    return fail(format!("{name} is missing"));
                }
            }
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    let known = rule
                        .get(name)
                        .ok_or_else(|| format!("{at}.{name} is unknown"))?;
                    fits(property, known, root, &format!("{at}.{name}"))?;
                }
            }
            "additionalProperties" if rule == &Value::Bool(false) => {}
            "items" => {
                for (nth, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(item, rule, root, &format!("{at}[{nth}]"))?;
                }
            }
            "minimum" | "maximum" | "minItems" | "maxItems" => {
                if !holds(value, word, rule) {
                    return fail(format!("{word} {rule} does not hold"));
                }
            }
            other => {
                return Err(format!(
                    "{at}: the schema has `{other}`, which this test does not know"
                ));
            }
        }
    }
    Ok(())
}

fn holds(value: &Value, word: &str, rule: &Value) -> bool {
    let items = |items: &Vec<Value>| Some(items.len() as f64);
    let number = value.as_array().map_or(value.as_f64(), items);
    let limit = rule.as_f64().unwrap();
    let is_least = word.starts_with("min");
    number.is_none_or(|number| {
        if is_least {
            number >= limit
        } else {
            number <= limit
        }
    })
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[test]
fn the_published_schemas_are_the_programs() {
    for (word, name) in [("report", REPORT), ("campaign", CAMPAIGN), ("line", LINE)] {
        let output = probe(&["schema", word]);
        assert!(output.status.success());
        let published = fs::read_to_string(schema_path(name)).unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            published,
            "write it anew: farhaul probe schema {word} > docs/reference/{name}.schema.json"
        );
    }
}

#[test]
fn single_tests_give_documents_that_fit_the_schema() {
    let server = Server::start();
    let port = server.port.as_str();
    let report_of = |words: &[&str]| {
        report(&probe(
            &[words, &["127.0.0.1", "--port", port, "--json"]].concat(),
        ))
    };
    let tcp = report_of(&["tcp", "--time", "0.3", "--way", "both", "--streams", "2"]);
    assert!(
        tcp["observations"]["tcp"][0]["down"]["mean_bit_per_s"]
            .as_f64()
            .unwrap()
            > 1e6
    );
    assert!(tcp["error"].is_null() && tcp["verdict"].is_null());
    let udp = report_of(&["udp", "--time", "0.3", "--rate", "2"]);
    assert!(
        udp["observations"]["flows"][0]["up"]["sent"]
            .as_u64()
            .unwrap()
            > 10
    );
    let transact = report_of(&["transact", "--time", "0.2"]);
    let made = &transact["observations"]["transactions"];
    assert!(made["on_new_connections"].as_u64().unwrap() >= 1, "{made}");
    let sweep = report_of(&["sweep", "--time", "0.1", "--most", "16k"]);
    assert_eq!(sweep["observations"]["sweep"].as_array().unwrap().len(), 3);
}

#[test]
fn failures_have_their_codes_and_documents() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let refused = probe(&["diagnose", "127.0.0.1", "--port", &port, "--json"]);
    assert_eq!(report(&refused)["error"]["code"], "unreachable");
    let unknown = probe(&["tcp", "no-such-host.invalid", "--json"]);
    assert_eq!(report(&unknown)["error"]["code"], "unknown-host");
    let server = Server::start();
    let odd = [
        "tcp",
        "127.0.0.1",
        "--port",
        &server.port,
        "--json",
        "--way",
        "down",
        "--congestion-control",
        "none",
    ];
    assert_eq!(report(&probe(&odd))["error"]["code"], "refused");
    for words in [
        &["tcp", "x", "--time", "0"][..],
        &["tcp", "x", "--time", "NaN"],
        &["tcp", "x", "--streams", "0"],
        &["tcp", "x", "--window", "1"],
        &["udp", "x", "--payload", "1"],
        &["udp", "x", "--rate", "-1"],
        &["diagnose"],
    ] {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty());
    }
    let taken = probe(&["serve", "--listen", "127.0.0.1", "--port", &server.port]);
    assert_eq!(taken.status.code(), Some(1));
}

fn start(server: &Server) -> Child {
    let words = [
        "probe",
        "diagnose",
        "127.0.0.1",
        "--port",
        &server.port,
        "--json",
        "--time",
        "60",
    ];
    Command::new(FARHAUL)
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The document of a client that has to end by itself.
fn ended(mut child: Child) -> Output {
    let mut stdout = Vec::new();
    let begin = Instant::now();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut stdout)
        .unwrap();
    let status = child.wait().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(60),
        "it took {:?}",
        begin.elapsed()
    );
    Output {
        status,
        stdout,
        stderr: Vec::new(),
    }
}

#[test]
fn an_interrupted_test_ends_with_a_document() {
    let server = Server::start();
    let child = start(&server);
    std::thread::sleep(Duration::from_millis(1500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(report(&ended(child))["error"]["code"], "interrupted");
}

#[test]
fn a_server_that_dies_in_the_middle_is_a_lost_one() {
    let server = Server::start();
    let child = start(&server);
    std::thread::sleep(Duration::from_millis(1500));
    drop(server);
    assert_eq!(report(&ended(child))["error"]["code"], "lost");
}

#[test]
fn a_client_that_is_killed_makes_room_for_the_next() {
    let server = Server::for_clients("1");
    let mut child = start(&server);
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().unwrap();
    child.wait().unwrap();
    let words = [
        "tcp",
        "127.0.0.1",
        "--port",
        &server.port,
        "--time",
        "0.1",
        "--json",
    ];
    let begin = Instant::now();
    while !probe(&words).status.success() {
        assert!(begin.elapsed() < Duration::from_secs(30), "still served");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A folder of a campaign; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("farhaul-campaign-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> String {
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
