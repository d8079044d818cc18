//! The admin API over a real Unix socket, before an operator that only takes notes.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::client::{Client, ClientError};
use super::server::{BOUNDS, Bounds, serve_within};
use super::status::{
    FlowSide, FlowState, FlowStatus, Flows, MeasuredStatus, PeerState, PeerStatus, ReductionStatus,
    Status, WarmingStatus,
};
use super::{AdminSocket, MeasureRequest, Operator, WarmRequest, bind_metrics, serve_metrics};
use crate::event::{Event, FlowEnd, Reason};
use crate::metrics::Metrics;

/// A folder of its own per test, removed at its end.
pub(super) struct Folder(pub PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fh-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct Notes {
    bypass: Mutex<Vec<bool>>,
}

fn status() -> Status {
    Status {
        site: "har\"bour".into(),
        version: "0.1.0".into(),
        protocol: "1".into(),
        uptime_s: 42,
        peers: vec![
            PeerStatus {
                name: "hq".into(),
                state: PeerState::Up,
                rtt_ms: Some(200.5),
                lost_ratio: Some(0.01),
                payload_sent_bytes: 1000,
                payload_received_bytes: 2000,
                wire_sent_bytes: 500,
                wire_received_bytes: 600,
                repairs_sent: 70,
                datagrams_recovered: 8,
                loss_before_repair_ratio: Some(0.012),
                error_correction: Some("on".into()),
                repair_ratio: Some(0.004),
                flows: 1,
                reduction: Some(reduction()),
                ..PeerStatus::default()
            },
            PeerStatus {
                name: "mine".into(),
                ..PeerStatus::default()
            },
        ],
        ..Status::default()
    }
}

fn reduction() -> ReductionStatus {
    ReductionStatus {
        in_bytes: 1000,
        out_bytes: 80,
        compared_bytes: 990,
        known_bytes: 760,
        known_memory_bytes: 500,
        known_disk_bytes: 200,
        run_bytes: 60,
        new_bytes: 235,
        packed_bytes: 75,
        level: Some(-3),
        restored_bytes: 400,
        received_bytes: 30,
        store_bytes: 235,
        index_bytes: 26,
        ..ReductionStatus::default()
    }
}

fn flow() -> FlowStatus {
    FlowStatus {
        id: 7,
        peer: "hq".into(),
        client: "10.1.0.9:50000".into(),
        destination: "10.2.0.1:445".into(),
        side: FlowSide::Near,
        rule: "default smb".into(),
        class: "interactive".into(),
        class_now: "interactive".into(),
        state: FlowState::Optimised,
        reason: Reason::Optimised,
        protocol: "smb".into(),
        opaque_reason: String::new(),
        age_s: 3,
        idle_s: 1,
        sent_bytes: 10,
        received_bytes: 20,
    }
}

impl Operator for Notes {
    fn status(&self) -> Status {
        status()
    }
    fn flows(&self) -> Flows {
        Flows {
            flows: vec![flow()],
            recent_direct: Vec::new(),
        }
    }
    fn set_bypass(&self, on: bool) {
        self.bypass.lock().unwrap().push(on);
    }
    fn reset_flow(&self, id: u64) -> bool {
        id == 7
    }
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async { Err("farhaul.toml:3:1: unknown key".to_owned()) })
    }
    fn clear_cache(
        &self,
        peer: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let known = peer.is_none_or(|peer| peer == "hq");
        Box::pin(async move {
            known
                .then_some(())
                .ok_or_else(|| "there is no such peer".to_owned())
        })
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
        vec![warming(3, Some("sent")), warming(4, None)]
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
        "[site]\nname = \"harbour\"\n".to_owned()
    }
}

struct Running {
    client: Client,
    notes: Arc<Notes>,
    path: PathBuf,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
    _folder: Folder,
}

fn start(name: &str, bounds: Bounds) -> Running {
    let folder = Folder::new(name);
    let path = folder.0.join("gateway.sock");
    let socket = AdminSocket::bind(&path).unwrap();
    let notes = Arc::new(Notes::default());
    let (stop, shutdown) = watch::channel(false);
    let metrics = Arc::new(Metrics::new());
    let server = tokio::spawn(serve_within(
        bounds,
        socket,
        notes.clone(),
        metrics,
        shutdown,
    ));
    Running {
        client: Client::new(&path),
        notes,
        path,
        stop,
        server,
        _folder: folder,
    }
}

impl Running {
    /// Sends bytes as they are and reads what comes until the server closes.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        timeout(Duration::from_secs(20), stream.read_to_end(&mut answer))
            .await
            .unwrap()
            .unwrap();
        String::from_utf8(answer).unwrap()
    }
}

#[tokio::test]
async fn what_the_operator_says_arrives_as_it_was() {
    let running = start("says", BOUNDS);
    assert_eq!(running.client.status().await.unwrap(), status());
    assert_eq!(running.client.flows().await.unwrap().flows, [flow()]);
    assert!(
        running
            .client
            .config_toml()
            .await
            .unwrap()
            .starts_with("[site]")
    );
    assert!(
        running
            .client
            .metrics()
            .await
            .unwrap()
            .contains("farhaul_peer_up{peer=\"hq\"} 1\n")
    );
}

#[tokio::test]
async fn what_the_operator_is_asked_is_done_or_refused_with_words() {
    let running = start("asked", BOUNDS);
    running.client.set_bypass(true).await.unwrap();
    running.client.set_bypass(false).await.unwrap();
    assert_eq!(*running.notes.bypass.lock().unwrap(), [true, false]);

    running.client.reset_flow(7).await.unwrap();
    let error = running.client.reset_flow(8).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no flow 8");

    match running.client.reload().await.unwrap_err() {
        ClientError::Refused { status: 409, error } => assert!(error.contains(":3:1:")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_gateway_that_does_not_run_is_called_that() {
    let folder = Folder::new("absent");
    let client = Client::new(folder.0.join("gateway.sock"));
    let error = client.status().await.unwrap_err();
    assert!(matches!(error, ClientError::NotRunning(_)));
    assert!(error.to_string().contains("gateway.sock"), "{error}");

    let running = start("stops", BOUNDS);
    running.stop.send(true).unwrap();
    running.server.await.unwrap();
    assert!(!running.path.exists());
    assert!(matches!(
        running.client.status().await,
        Err(ClientError::NotRunning(_))
    ));
}

#[tokio::test]
async fn bad_requests_get_an_error_each() {
    let running = start("bad", BOUNDS);
    for (request, expected) in [
        ("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 404"),
        (
            "DELETE /v1/status HTTP/1.1\r\nhost: x\r\n\r\n",
            "HTTP/1.1 405",
        ),
        ("GET /v1/bypass HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 405"),
        (
            "POST /v1/flows/-1/reset HTTP/1.1\r\nhost: x\r\n\r\n",
            "HTTP/1.1 404",
        ),
        (
            "POST /v1/flows/99999999999999999999/reset HTTP/1.1\r\nhost: x\r\n\r\n",
            "HTTP/1.1 404",
        ),
        (
            "POST /v1/bypass HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 400",
        ),
        (
            "POST /v1/bypass HTTP/1.1\r\nhost: x\r\ncontent-length: 22\r\n\r\n{\"on\":true,\"extra\":1 }",
            "HTTP/1.1 400",
        ),
        ("nonsense\r\n\r\n", "HTTP/1.1 400"),
    ] {
        let answer = running.raw(request.as_bytes()).await;
        assert!(answer.starts_with(expected), "{request:?} -> {answer:?}");
    }
    assert!(running.notes.bypass.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_huge_request_is_refused_before_it_is_read() {
    let running = start("huge", BOUNDS);
    // Only announced, never sent: the answer cannot wait for it.
    let huge = "POST /v1/bypass HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n";
    assert!(
        running
            .raw(huge.as_bytes())
            .await
            .starts_with("HTTP/1.1 413")
    );

    let many = format!("GET /v1/status HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
    assert!(
        running
            .raw(many.as_bytes())
            .await
            .starts_with("HTTP/1.1 431")
    );

    // Without an end, neither headers nor chunks are taken for ever.
    for (start, more) in [
        (
            "GET /v1/status HTTP/1.1\r\n",
            "header: value\r\n".repeat(100),
        ),
        (
            "POST /v1/bypass HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            format!("400\r\n{}\r\n", "x".repeat(0x400)),
        ),
    ] {
        let mut stream = UnixStream::connect(&running.path).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut sent = 0;
        while stream.write_all(more.as_bytes()).await.is_ok() {
            sent += more.len();
            assert!(sent < 8 << 20, "the server takes all of {start:?}");
        }
    }
    assert_eq!(running.client.status().await.unwrap(), status());
}

#[tokio::test]
async fn slow_clients_are_cut_and_the_others_are_served() {
    let short = Duration::from_millis(300);
    let bounds = Bounds {
        connections_max: 4,
        header_timeout: short,
        exchange_timeout: short,
    };
    let running = start("slow", bounds);
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut stream = UnixStream::connect(&running.path).await.unwrap();
        stream
            .write_all(b"POST /v1/bypass HTTP/1.1\r\n")
            .await
            .unwrap();
        idle.push(stream);
    }
    let status = timeout(Duration::from_secs(20), running.client.status())
        .await
        .unwrap();
    assert_eq!(status.unwrap().site, "har\"bour");
    // Every idle one was closed by the server.
    for mut stream in idle {
        let mut rest = Vec::new();
        let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn those_who_say_nothing_keep_nobody_away() {
    // So long that nobody is served because somebody's time is over.
    let long = Duration::from_secs(600);
    let bounds = Bounds {
        connections_max: 32,
        header_timeout: long,
        exchange_timeout: long,
    };
    let running = start("mute", bounds);
    let mut mute = Vec::new();
    for _ in 0..200 {
        mute.push(UnixStream::connect(&running.path).await.unwrap());
        if mute.len() % 50 == 0 {
            let metrics = timeout(Duration::from_secs(20), running.client.metrics()).await;
            assert!(metrics.unwrap().unwrap().contains("farhaul_peer_up"));
        }
    }
    // The youngest may still ask.
    let mut last = mute.pop().unwrap();
    last.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn over_tcp_there_are_metrics_and_nothing_else() {
    let listener = bind_metrics("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let taken = bind_metrics(address).await.unwrap_err();
    assert!(taken.to_string().contains("admin.metrics"), "{taken}");

    let (_stop, shutdown) = watch::channel(false);
    let notes = Arc::new(Notes::default());
    tokio::spawn(serve_metrics(
        listener,
        notes.clone(),
        Arc::new(Metrics::new()),
        shutdown,
    ));
    let ask = async |request: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("version=0.0.4"),
        "{answer}"
    );
    for path in ["/v1/status", "/v1/config", "/v1/bypass"] {
        let answer = ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    let bypass = "POST /v1/bypass HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n{\"on\":true}";
    assert!(ask(bypass).await.starts_with("HTTP/1.1 404"));
    assert!(notes.bypass.lock().unwrap().is_empty());
}

#[test]
fn metrics_text_is_golden() {
    let metrics = Metrics::new();
    metrics.count(&Event::FlowOpened {
        flow: 1,
        peer: "hq".into(),
        client: "10.1.0.9:50000".parse().unwrap(),
        destination: "10.2.0.1:445".into(),
        rule: "default smb".into(),
    });
    for end in [FlowEnd::Closed, FlowEnd::Closed, FlowEnd::PeerLost] {
        metrics.count(&Event::FlowEnded {
            flow: 1,
            peer: "hq".into(),
            end,
            sent_bytes: 1,
            received_bytes: 2,
        });
    }
    metrics.count(&Event::WentDirect {
        client: "10.1.0.9:50000".parse().unwrap(),
        destination: "10.9.0.1:80".into(),
        reason: Reason::NoPeer,
    });
    metrics.count(&Event::Full {
        bound: "tunnel.flows_max",
    });
    metrics.count(&Event::LogDropped { lines: 5 });
    let text = metrics.render(&status());
    if std::env::var_os("FARHAUL_GOLDEN").is_some() {
        fs::write("src/admin/metrics.golden.txt", &text).unwrap();
    }
    assert_eq!(text, include_str!("metrics.golden.txt"));
}

#[test]
fn every_metric_is_described_before_it_appears() {
    let text = Metrics::new().render(&status());
    let mut described = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(!described.contains(&name), "{name} twice");
            described.push(name);
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(described.last(), Some(&name), "{line}");
        }
    }
}
