//! The operator's commands, as a person types them, before a gateway that only takes notes.

#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions only, not beside them

#[path = "probe/schema.rs"]
#[allow(clippy::indexing_slicing)]
mod schema;

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_gateway::admin::status::{
    Flows, MeasuredStatus, PeerState, PeerStatus, Status, WarmingStatus,
};
use farhaul_gateway::admin::{AdminSocket, MeasureRequest, Operator, WarmRequest, serve};
use farhaul_gateway::metrics::Metrics;
use tokio::sync::watch;

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Operator for Notes {
    fn status(&self) -> Status {
        let peer = PeerStatus {
            name: "hq".into(),
            state: PeerState::Up,
            ..PeerStatus::default()
        };
        Status {
            site: "harbour".into(),
            peers: vec![peer],
            next: Some("buy a longer cable".into()),
            ..Status::default()
        }
    }
    fn flows(&self) -> Flows {
        Flows::default()
    }
    fn set_bypass(&self, on: bool) {
        self.0.lock().unwrap().push(format!("bypass {on}"));
    }
    fn reset_flow(&self, id: u64) -> bool {
        self.0.lock().unwrap().push(format!("reset {id}"));
        id == 7
    }
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async { Err("gw.toml:3:1: unknown key".to_owned()) })
    }
    fn clear_cache(
        &self,
        peer: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let noted = format!("clear {}", peer.as_deref().unwrap_or("all"));
        self.0.lock().unwrap().push(noted);
        let is_known = peer.is_none_or(|peer| peer == "hq");
        let cleared = is_known.then_some(()).ok_or("there is no such peer");
        Box::pin(async move { cleared.map_err(str::to_owned) })
    }
    fn warm_cache(
        &self,
        wanted: WarmRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WarmingStatus, String>> + Send + '_>> {
        Box::pin(async move {
            let warming = WarmingStatus {
                flow: 3,
                peer: wanted.peer.ok_or("say which peer")?,
                path: wanted.path.display().to_string(),
                is_copy: wanted.copy,
                ..WarmingStatus::default()
            };
            Ok(warming)
        })
    }
    fn warmings(&self) -> Vec<WarmingStatus> {
        let warming = |flow, end: Option<&str>| WarmingStatus {
            flow,
            end: end.map(str::to_owned),
            ..WarmingStatus::default()
        };
        let copy = WarmingStatus {
            is_copy: true,
            path: "/images/desktop".to_owned(),
            ..warming(0, Some("ready"))
        };
        vec![warming(3, Some("sent")), warming(4, None), copy]
    }
    fn measure_peer(
        &self,
        wanted: MeasureRequest,
    ) -> Pin<Box<dyn Future<Output = Result<MeasuredStatus, String>> + Send + '_>> {
        Box::pin(async move {
            let measured = MeasuredStatus {
                flow: 5,
                peer: wanted.peer.ok_or("say which peer")?,
                seconds: wanted.seconds,
                ..MeasuredStatus::default()
            };
            Ok(measured)
        })
    }
    fn config_toml(&self) -> String {
        String::new()
    }
}

struct Gateway {
    notes: Arc<Notes>,
    socket: PathBuf,
    _stop: watch::Sender<bool>,
    _runtime: tokio::runtime::Runtime,
}

impl Gateway {
    fn start(name: &str) -> Gateway {
        let socket = std::env::temp_dir().join(format!("fh-{name}-{}.sock", std::process::id()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let notes = Arc::new(Notes::default());
        let (stop, shutdown) = watch::channel(false);
        let bound = runtime
            .block_on(async { AdminSocket::bind(&socket) })
            .unwrap();
        runtime.spawn(serve(
            bound,
            notes.clone(),
            Arc::new(Metrics::new()),
            shutdown,
        ));
        Gateway {
            notes,
            socket,
            _stop: stop,
            _runtime: runtime,
        }
    }

    fn run(&self, words: &str) -> Output {
        run(&format!("{words} --socket {}", self.socket.display()))
    }
}

fn run(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .args(words.split(' '))
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn status_and_flows_for_people_and_for_programs() {
    let gateway = Gateway::start("status");
    let page = out(&gateway.run("status"));
    assert!(
        page.starts_with("harbour ") && page.ends_with("next: buy a longer cable\n"),
        "{page}"
    );
    assert!(
        !page.contains('\x1b'),
        "colours without a terminal: {page:?}"
    );
    let json: Status = serde_json::from_str(&out(&gateway.run("status --json"))).unwrap();
    assert_eq!(json.peers[0].name, "hq");
    assert_eq!(out(&gateway.run("flows")), "no flows\n");
    assert_eq!(out(&gateway.run("flows --peer hq")), "no flows\n");
    for words in ["flows --peer mars", "flows --peer mars --json"] {
        let unknown = gateway.run(words);
        assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
        let told = String::from_utf8(unknown.stderr).unwrap();
        assert_eq!(told, "farhaul: there is no peer mars; there are: hq\n");
    }
    let json: Flows = serde_json::from_str(&out(&gateway.run("flows --json"))).unwrap();
    assert_eq!(json, Flows::default());
    let top = out(&gateway.run("top --count 1 --json"));
    let json: serde_json::Value = serde_json::from_str(&top).unwrap();
    assert_eq!(json["peers"][0]["name"], "hq");
}

#[test]
fn top_ends_when_nobody_reads_it() {
    let gateway = Gateway::start("unread");
    let mut top = Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .args(["top", "--socket"])
        .arg(&gateway.socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(top.stdout.take());
    // It would go on for ever; a test that fails must not.
    let ended = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        top.try_wait().unwrap()
    });
    let _ = top.kill();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

#[test]
fn switches_reach_the_gateway_and_its_refusals_come_back() {
    let gateway = Gateway::start("switch");
    assert!(out(&gateway.run("bypass on")).contains("new connections go direct"));
    assert_eq!(out(&gateway.run("bypass off")), "bypass is off\n");
    assert_eq!(out(&gateway.run("reset 7")), "flow 7 was reset\n");
    assert_eq!(
        failed(&gateway.run("reset 8")),
        "farhaul: there is no flow 8\n"
    );
    assert_eq!(
        failed(&gateway.run("reload")),
        "farhaul: gw.toml:3:1: unknown key\n"
    );
    assert_eq!(
        gateway.notes.take(),
        ["bypass true", "bypass false", "reset 7", "reset 8"]
    );
    assert_eq!(gateway.run("bypass maybe").status.code(), Some(2));
}

#[test]
fn the_cache_is_shown_warmed_and_cleared() {
    let gateway = Gateway::start("cache");
    let page = out(&gateway.run("cache stats"));
    assert!(page.starts_with("hq\n  no reduction:"), "{page}");
    let json = out(&gateway.run("cache stats --json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["peers"][0]["peer"], "hq");
    out(&gateway.run("cache clear"));
    out(&gateway.run("cache clear --peer hq"));
    let error = failed(&gateway.run("cache clear --peer elsewhere"));
    assert!(error.contains("there is no such peer"), "{error}");
    let page = out(&gateway.run("cache warm image --peer hq"));
    assert!(page.contains("as flow 3: sent"), "{page}");
    let json = out(&gateway.run("cache warm image --peer hq --detach --json"));
    let json: WarmingStatus = serde_json::from_str(&json).unwrap();
    assert!(json.path.starts_with('/') && json.path.ends_with("/image"));
    assert_eq!((json.flow, json.end), (3, None));
    let page = out(&gateway.run("cache warm /images/desktop --copy --peer hq"));
    assert!(
        page.contains("a peer that warms it need not send it"),
        "{page}"
    );
    let error = failed(&gateway.run("cache warm image"));
    assert!(error.contains("say which peer"), "{error}");
    let cleared = ["clear all", "clear hq", "clear elsewhere"];
    assert_eq!(gateway.notes.take(), cleared);
}

#[test]
fn a_measurement_that_cannot_begin_says_why() {
    let gateway = Gateway::start("measure");
    let error = failed(&gateway.run("probe peer"));
    assert!(error.contains("say which peer"), "{error}");
    // This gateway begins it and shows nothing of it ever after.
    let output = gateway.run("probe peer hq --time 2 --json");
    assert_eq!(output.status.code(), Some(1));
    let json: MeasuredStatus = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json.flow, json.seconds), (5, 2.0));
    assert!(json.end.unwrap().contains("forgotten"));
    let code = |words: &str| {
        let output = gateway.run(words);
        let report = serde_json::from_slice(&output.stdout).unwrap();
        let schema = schema::schema("probe-peer");
        schema::fits(&report, &schema, &schema, "report").unwrap();
        assert_eq!(report["exit_code"], output.status.code().unwrap());
        report["error"]["code"].clone()
    };
    assert_eq!(code("probe peer hq --json"), "not-measured");
    assert_eq!(code("probe peer --json"), "refused");
    for wrong in ["--time 0", "--rate -1", "--beside --rate 3", "--port 9"] {
        let output = gateway.run(&format!("probe peer hq {wrong}"));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let output = gateway.run("probe peer elsewhere --beside");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such peer"));
}

#[test]
fn what_is_on_disk_is_verified_without_a_gateway() {
    let folder = std::env::temp_dir().join(format!("fh-verify-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("peer/sent")).unwrap();
    let verify = format!("cache verify --path {}", folder.display());
    let page = out(&run(&verify));
    assert!(page.contains("0 blocks damaged"), "{page}");
    let json: serde_json::Value =
        serde_json::from_str(&out(&run(&format!("{verify} --json")))).unwrap();
    assert_eq!(json["stores"][0]["segments"], 0);
    // A pipe is named, and nobody waits for somebody who would write to it.
    let pipe = folder.join("peer/sent/store");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, mode, 0).unwrap();
    let damaged = run(&verify);
    assert_eq!(damaged.status.code(), Some(1));
    let page = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert!(page.contains("1 files unreadable\n"), "{page}");
    assert!(
        page.contains("peer/sent: `store`: a pipe, no regular file\n"),
        "{page}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_folder_without_a_store_is_refused_unless_it_is_to_be_made() {
    let site = Site::new("unmade");
    let refused = |path: &Path| {
        let output = run(&format!("cache verify --path {}", path.display()));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = format!("farhaul: no store in {}: ", path.display());
        assert!(error.starts_with(&told), "{error}");
    };
    let store = site.0.join("store");
    refused(&site.0);
    refused(&store);
    refused(&site.0.join("gateway.toml"));
    let output = run("cache verify");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("<--config <FILE>|--path <PATH>>"), "{error}");
    let disk = format!(
        "\n[store]\ndisk = {{ path = \"{}\", size = \"64 MiB\" }}\n",
        store.display()
    );
    let config = site.0.join("gateway.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + &disk).unwrap();
    let verify = format!("cache verify --config {}", config.display());
    assert_eq!(out(&run(&verify)), "nothing is on disk\n");
    std::fs::create_dir_all(&store).unwrap();
    assert_eq!(out(&run(&verify)), "nothing is on disk\n");
    std::fs::remove_dir(&store).unwrap();
    symlink(site.0.join("nowhere"), &store).unwrap();
    let output = run(&verify);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("a symbolic link to what is not there"),
        "{error}"
    );
}

/// What a path of the file system may be, and a document in JSON may not.
#[test]
fn names_that_are_not_utf_8_are_refused_or_shown_as_well_as_can_be() {
    let site = Site::new("bytes");
    let name = OsStr::from_bytes(b"\xff-store");
    let folder = site.0.join(name);
    std::fs::create_dir_all(folder.join("hq/sent")).unwrap();
    let farhaul = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.args(words).arg(&folder).output().unwrap()
    };
    let warm = farhaul(&["cache", "warm", "--socket", "/nowhere/gateway.sock"]);
    assert_eq!(warm.status.code(), Some(2), "{warm:?}");
    let error = String::from_utf8_lossy(&warm.stderr).into_owned();
    assert!(error.contains("only names in UTF-8"), "{error}");
    let verify = farhaul(&["cache", "verify", "--json", "--path"]);
    let document: serde_json::Value = serde_json::from_str(&out(&verify)).unwrap();
    let path = document["stores"][0]["path"].as_str().unwrap();
    assert!(path.ends_with("\u{fffd}-store/hq/sent"), "{path}");
}

#[test]
fn without_a_gateway_the_commands_say_where_they_looked() {
    for words in ["status", "flows", "top", "bypass on", "reset 7", "reload"] {
        let error = failed(&run(&format!("{words} --socket /nowhere/gateway.sock")));
        assert!(
            error.contains("/nowhere/gateway.sock") && error.contains("farhaul gateway"),
            "{error}"
        );
    }
}

/// A folder with a key and a configuration with one peer, removed at the end.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Site {
        let folder = std::env::temp_dir().join(format!("fh-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = folder.join("site.key");
        out(&run(&format!("keygen {}", key.display())));
        let peer = out(&run(&format!(
            "keygen {}",
            folder.join("peer.key").display()
        )));
        let text = format!(
            "[site]\nname = \"harbour\"\nkey = \"site.key\"\n\
             [tunnel]\nlisten = \"127.0.0.1:0\"\n\
             [[peer]]\nname = \"hq\"\naddress = \"127.0.0.1:1\"\nkey = \"{}\"\n\
             networks = [\"192.0.2.0/24\"]\n\
             [intercept]\nmode = \"explicit\"\n[[listen]]\nsocks = \"127.0.0.1:{}\"\n\
             [admin]\nsocket = \"{}\"\n",
            peer.trim(),
            free_port(),
            folder.join("gateway.sock").display()
        );
        std::fs::write(folder.join("gateway.toml"), text).unwrap();
        Site(folder)
    }

    fn doctor(&self, more: &str) -> Output {
        run(&format!(
            "doctor --config {}{more}",
            self.0.join("gateway.toml").display()
        ))
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn doctor_examines_a_real_machine_without_a_gateway() {
    use farhaul_gateway::doctor::{Report, Verdict};
    let site = Site::new("doctor");
    let report: Report = serde_json::from_slice(&site.doctor(" --json").stdout).unwrap();
    let verdict = |name: &str| {
        report
            .checks
            .iter()
            .find(|check| check.name == name)
            .map(|check| check.verdict)
    };
    assert_eq!(verdict("gateway"), Some(Verdict::Warn), "{report:#?}");
    for name in [
        "config",
        "key",
        "clock",
        "capabilities",
        "disk",
        "ports",
        "interception",
    ] {
        assert_eq!(verdict(name), Some(Verdict::Ok), "{name} in {report:#?}");
    }
    // Our own address as a peer's: this machine is ill.
    assert_eq!(verdict("peer hq"), Some(Verdict::Fail), "{report:#?}");
    let page = site.doctor("");
    assert_eq!(page.status.code(), Some(2));
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("\nfail  peer hq"), "{page}");
    assert!(
        page.contains("-> give the address of the other site's gateway"),
        "{page}"
    );
}

#[test]
fn doctor_shows_what_is_wrong_with_a_file_and_asks_for_one() {
    let site = Site::new("illdoctor");
    std::fs::write(site.0.join("gateway.toml"), "[site]\nnam = \"x\"\n").unwrap();
    let output = site.doctor("");
    assert_eq!(output.status.code(), Some(2));
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("fail  config") && page.contains("gateway.toml"),
        "{page}"
    );

    let output = run("doctor --socket /nowhere/gateway.sock");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("--config FILE")
    );
}
