//! SOCKS5, HTTP CONNECT and port forwards, as curl and others use them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use farhaul_lab::Side;
use rustix::process::Signal;

use crate::apps::{Service, assert_echo, content, digest, echo, greet_and_echo, greeting};
use crate::world::{Shared, World, until, v4};

const SOCKS: &str = "10.1.0.1:1080";
const PROXY: &str = "10.1.0.1:3128";
/// Leads to the web server.
const FORWARD: &str = "10.1.0.1:8445";
/// Leads to itself.
const CIRCLE: &str = "10.1.0.1:8447";
/// Leads to where nobody listens.
const NOWHERE: &str = "10.1.0.1:8446";
const WEB: u16 = 3003;
const ECHO: u16 = 3004;
const REFUSED: u16 = 3005;
/// A name that only the far site knows.
const FAR_NAME: &str = "files.far.example";

const LISTEN: &str = "
[intercept]
mode = 'explicit'
[[listen]]
socks = '10.1.0.1:1080'
[[listen]]
connect = '10.1.0.1:3128'
[[listen]]
forward = '10.1.0.1:8445'
target = '10.2.0.2:3003'
[[listen]]
forward = '10.1.0.1:8446'
target = '10.2.0.2:3005'
[[listen]]
forward = '0.0.0.0:8447'
target = '10.1.0.1:8447'
";

static UP: Shared = Shared::new();

/// A pair with explicit listeners only. 10.2.0.77 may be asked for, but is not
/// there.
fn pair(test: &str) -> World {
    let mut world = World::bare(None, test);
    world.pair(LISTEN, "[tunnel]\nopen_timeout = '10s'");
    world
}

fn up() -> Arc<World> {
    UP.get(|| pair("explicit"))
}

/// A web server for one file.
fn web(world: &World) -> Service {
    let body = content(1, 1_500_000);
    Service::start(&world.lab.server().unwrap(), WEB, move |mut stream, _| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let len = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes());
        let _ = stream.write_all(&body);
    })
}

/// Fetches the file with curl; its exit code says how that went.
fn curl(world: &World, words: &str) -> (Option<i32>, Vec<u8>) {
    let mut command = world.lab.client().unwrap().command("curl");
    command.args([
        "--silent",
        "--show-error",
        "--max-time",
        "60",
        "--noproxy",
        "",
    ]);
    let output = command.args(words.split_whitespace()).output().unwrap();
    (output.status.code(), output.stdout)
}

fn assert_fetched(world: &World, words: &str) {
    let (code, body) = curl(world, words);
    assert_eq!(code, Some(0), "curl {words}");
    assert_eq!(
        digest(&body),
        digest(&content(1, 1_500_000)),
        "curl {words}"
    );
}

/// Asks a SOCKS listener for an IPv4 destination; its reply code.
fn socks(world: &World, to: SocketAddr) -> (u8, TcpStream) {
    let SocketAddr::V4(v4) = to else {
        panic!("an IPv4 address is needed")
    };
    let mut request = vec![5, 1, 0, 1];
    request.extend(v4.ip().octets());
    request.extend(v4.port().to_be_bytes());
    socks_ask(world, &request)
}

fn socks_named(world: &World, name: &str, port: u16) -> (u8, TcpStream) {
    let mut request = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
    request.extend(name.as_bytes());
    request.extend(port.to_be_bytes());
    socks_ask(world, &request)
}

fn socks_ask(world: &World, request: &[u8]) -> (u8, TcpStream) {
    let mut stream = world.connect(SOCKS.parse().unwrap());
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    stream.write_all(request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[3], 1, "the bound address must be IPv4");
    (reply[1], stream)
}

/// Asks a CONNECT listener; its status line.
fn connect(world: &World, to: &str) -> (String, TcpStream) {
    let mut stream = world.connect(PROXY.parse().unwrap());
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    (head.lines().next().unwrap().to_owned(), stream)
}

/// Lets one gateway resolve [`FAR_NAME`], by the file that `ip netns exec`
/// shows its programs.
struct FarName(PathBuf);

impl FarName {
    fn new(world: &World) -> Self {
        let namespace = world.gateway(Side::B);
        let folder = PathBuf::from("/etc/netns").join(namespace.name());
        std::fs::create_dir_all(&folder).unwrap();
        let known = Self(folder.clone());
        std::fs::write(folder.join("hosts"), format!("10.2.0.2 {FAR_NAME}\n")).unwrap();
        known
    }
}

impl Drop for FarName {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        // Ours only where it is empty now.
        let _ = std::fs::remove_dir("/etc/netns");
    }
}

#[test]
fn curl_fetches_through_every_explicit_way() {
    let mut world = World::bare(None, "curl");
    let _name = FarName::new(&world);
    world.pair(LISTEN, "");
    let _web = web(&world);
    let before = world.status(Side::A)["peers"][0]["payload_received_bytes"].clone();
    let url = format!("http://10.2.0.2:{WEB}/");
    let far = format!("http://{FAR_NAME}:{WEB}/");
    let ways = [
        format!("--socks5 {SOCKS} {url}"),
        format!("--socks5-hostname {SOCKS} {url}"),
        format!("--socks5-hostname {SOCKS} {far}"),
        format!("--proxy http://{PROXY} -p {url}"),
        format!("--proxy http://{PROXY} -p {far}"),
        format!("http://{FORWARD}/"),
    ];
    for way in &ways {
        assert_fetched(&world, way);
    }
    let after = world.status(Side::A)["peers"][0]["payload_received_bytes"].clone();
    let through = after.as_u64().unwrap() - before.as_u64().unwrap();
    assert!(
        through >= 6 * 1_500_000,
        "{through} bytes through the tunnel"
    );
}

#[test]
fn proxied_connections_are_flows_with_the_gateway_as_source() {
    let world = up();
    let _service = Service::start(&world.lab.server().unwrap(), ECHO, greet_and_echo);
    let (code, mut stream) = socks(&world, v4(ECHO));
    assert_eq!(code, 0);
    // Replies need not know the way back to the client of a proxy.
    assert_eq!(greeting(&mut stream).unwrap().ip().to_string(), "10.2.0.1");
    assert_echo(&mut stream, &content(2, 400_000));
    let own = stream.local_addr().unwrap();
    let flow = world.flow_of(Side::A, own).unwrap();
    assert_eq!(flow["state"], "optimised", "{flow}");
    let (status, mut stream) = connect(&world, &format!("10.2.0.2:{ECHO}"));
    assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
    greeting(&mut stream).unwrap();
    assert_echo(&mut stream, &content(3, 400_000));
}

#[test]
fn proxies_say_why_a_destination_was_not_reached() {
    let world = up();
    assert_eq!(socks(&world, v4(REFUSED)).0, 5, "connection refused");
    assert_eq!(
        socks(&world, "10.2.0.77:80".parse().unwrap()).0,
        4,
        "host unreachable"
    );
    assert_eq!(
        socks_named(&world, "nobody.invalid", 80).0,
        4,
        "no such name"
    );
    let (status, _) = connect(&world, &format!("10.2.0.2:{REFUSED}"));
    assert!(status.starts_with("HTTP/1.1 502 "), "{status}");
    let (status, _) = connect(&world, "10.2.0.77:80");
    assert!(status.starts_with("HTTP/1.1 502 "), "{status}");
    // A forward has no words: the client is cut off, never left hanging.
    // On a busy machine before it has seen that it was connected.
    let read = world.try_connect(NOWHERE.parse().unwrap());
    let error = read.and_then(|mut stream| stream.read(&mut [0]));
    let error = error.expect_err("a clean end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn proxies_do_not_lead_to_a_gateways_own_loopback() {
    let world = up();
    let _near = world
        .gateway(Side::A)
        .within(|| std::net::TcpListener::bind("127.0.0.1:3100").unwrap());
    let _far = world
        .gateway(Side::B)
        .within(|| std::net::TcpListener::bind("127.0.0.1:3100").unwrap());
    for loopback in ["127.0.0.1:3100", "127.1.2.3:3100", "0.0.0.0:3100"] {
        let (code, _) = socks(&world, loopback.parse().unwrap());
        assert_eq!(code, 2, "{loopback} must not be allowed by the rule set");
    }
    assert_eq!(socks_named(&world, "localhost", 3100).0, 2);
    let (status, _) = connect(&world, "localhost:3100");
    assert!(status.starts_with("HTTP/1.1 403 "), "{status}");
    let (status, _) = connect(&world, "[::ffff:127.0.0.1]:3100");
    assert!(status.starts_with("HTTP/1.1 403 "), "{status}");
}

#[test]
fn while_the_peer_is_down_explicit_ways_are_relayed() {
    let mut world = pair("relayed");
    let _web = web(&world);
    let _service = Service::start(&world.lab.server().unwrap(), ECHO, echo);
    world.signal(Side::B, Signal::KILL);
    world.wait_peer(Side::A, "down");
    let url = format!("http://10.2.0.2:{WEB}/");
    for way in [
        format!("--socks5 {SOCKS} {url}"),
        format!("--proxy http://{PROXY} -p {url}"),
        format!("http://{FORWARD}/"),
    ] {
        assert_fetched(&world, &way);
    }
    let (code, mut stream) = socks(&world, v4(ECHO));
    assert_eq!(code, 0);
    assert_echo(&mut stream, &content(4, 400_000));
    let own = stream.local_addr().unwrap();
    let event = world.direct_event(Side::A, own).unwrap();
    assert_eq!(event["reason"], "peer-down", "{event}");
    assert_eq!(world.status(Side::A)["flows"]["direct"], 1);
    assert_eq!(socks(&world, v4(REFUSED)).0, 5, "connection refused");
    assert_eq!(
        socks(&world, "10.2.0.77:80".parse().unwrap()).0,
        4,
        "host unreachable"
    );
    let (status, _) = connect(&world, &format!("10.2.0.2:{REFUSED}"));
    assert!(status.starts_with("HTTP/1.1 502 "), "{status}");
    world.lab.gateway_start(Side::B).unwrap();
    world.lab.wait_peers_up().unwrap();
    // The relayed one stays where it is.
    assert_echo(&mut stream, b"still here");
    assert_fetched(&world, &format!("--socks5 {SOCKS} {url}"));
}

#[test]
fn nothing_is_relayed_to_a_listener_of_the_gateway_itself() {
    let world = up();
    // The reset may come before the client looks at its connection.
    if let Ok(mut circle) = world.try_connect(CIRCLE.parse().unwrap()) {
        let error = circle.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    let (code, _) = socks(&world, CIRCLE.parse().unwrap());
    assert_eq!(code, 2, "not allowed by ruleset");
    until("nothing to be relayed any more", || {
        world.status(Side::A)["flows"]["direct"] == 0
    });
    let recent = world.status(Side::A)["recent"].to_string();
    assert!(recent.contains("of this gateway itself"), "{recent}");
}
