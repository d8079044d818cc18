//! A lab with its gateway pair, asked and steered the way an operator would.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farhaul_lab::gateways::GatewayOverrides;
use farhaul_lab::netns::Namespace;
use farhaul_lab::topology::{SERVER, SERVER6};
use farhaul_lab::{Lab, LabOptions, Side, require_root};
use rustix::process::Signal;
use serde_json::Value;

/// The program under test.
pub const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");
/// Turns a hang into a failure; nothing takes this long, even on a busy machine.
pub const HANG: Duration = Duration::from_secs(40);

/// A lab and, usually, its pair of gateways. Dropping it removes everything.
pub struct World {
    pub lab: Lab,
}

impl World {
    /// A pair on a plain cable, with the lab's own configuration.
    pub fn up(test: &str) -> Self {
        Self::with(test, "", "")
    }

    /// A pair on a plain cable, with more configuration for each side.
    pub fn with(test: &str, a: &str, b: &str) -> Self {
        Self::over(None, test, a, b)
    }

    /// A pair on an emulated link.
    pub fn over(link: Option<&str>, test: &str, a: &str, b: &str) -> Self {
        let mut world = Self::bare(link, test);
        world.pair(a, b);
        world
    }

    /// The network alone.
    pub fn bare(link: Option<&str>, test: &str) -> Self {
        require_root("the end-to-end tests").unwrap_or_else(|error| panic!("{error}"));
        // A shared one may be on its way down while the next comes up.
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("e{}-{test}-{number}", std::process::id());
        let mut options = LabOptions::new(name, FARHAUL);
        options.link = link.map(str::to_owned);
        Self {
            lab: Lab::up(&options).unwrap(),
        }
    }

    /// Starts the pair and waits until it works.
    pub fn pair(&mut self, a: &str, b: &str) {
        let overrides = GatewayOverrides::sides(a, b).unwrap();
        self.lab.gateways_up(&overrides).unwrap();
    }

    /// Runs `work` in the client's namespace; sockets it makes stay there.
    pub fn client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.lab.client().unwrap().within(work).unwrap()
    }

    /// Runs `work` in the server's namespace.
    pub fn server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.lab.server().unwrap().within(work).unwrap()
    }

    /// The namespace of a side's gateway.
    pub fn gateway(&self, side: Side) -> Namespace {
        self.lab.gateway(side).unwrap()
    }

    /// Connects from the client, with time-outs that turn hangs into errors.
    pub fn try_connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.client(|| TcpStream::connect_timeout(&to, HANG))?;
        stream.set_read_timeout(Some(HANG))?;
        stream.set_write_timeout(Some(HANG))?;
        Ok(stream)
    }

    /// As [`World::try_connect`], and it must work.
    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        self.try_connect(to)
            .unwrap_or_else(|error| panic!("connecting to {to}: {error}"))
    }

    /// Connects and tells how long that took.
    pub fn connect_timed(&self, to: SocketAddr) -> (io::Result<TcpStream>, Duration) {
        self.client(|| {
            let start = Instant::now();
            let stream = TcpStream::connect_timeout(&to, HANG);
            let took = start.elapsed();
            if let Ok(stream) = &stream {
                stream.set_read_timeout(Some(HANG)).unwrap();
                stream.set_write_timeout(Some(HANG)).unwrap();
            }
            (stream, took)
        })
    }

    /// Whether the client's connection ends in its gateway, by what the kernel
    /// of that gateway says, not the gateway.
    pub fn is_tunnelled(&self, stream: &TcpStream) -> bool {
        self.ends_in(Side::A, stream.local_addr().unwrap())
    }

    /// Whether a gateway's kernel has a TCP socket connected to `application`.
    pub fn ends_in(&self, side: Side, application: SocketAddr) -> bool {
        let table = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let both = self.gateway(side).within(|| [table("tcp"), table("tcp6")]);
        let both = both.unwrap();
        both.into_iter()
            .flat_map(|text| sockets(&text.unwrap()))
            .any(|remote| remote == application)
    }

    /// `farhaul WORDS --socket ...` for a side's gateway.
    pub fn ask(&self, side: Side, words: &str) -> Output {
        Command::new(FARHAUL)
            .args(words.split_whitespace())
            .arg("--socket")
            .arg(self.lab.gateway_socket(side))
            .output()
            .unwrap()
    }

    /// As [`World::ask`], and it must succeed; its standard output.
    pub fn told(&self, side: Side, words: &str) -> String {
        let output = self.ask(side, words);
        assert!(output.status.success(), "farhaul {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// `farhaul status --json`.
    pub fn status(&self, side: Side) -> Value {
        serde_json::from_str(&self.told(side, "status --json")).unwrap()
    }

    /// `farhaul flows --json`.
    pub fn flows(&self, side: Side) -> Value {
        serde_json::from_str(&self.told(side, "flows --json")).unwrap()
    }

    /// What `/metrics` says over the admin socket, head included.
    pub fn metrics(&self, side: Side) -> String {
        self.got(side, "/metrics")
    }

    /// As [`World::status`], without a program that starts first: for who asks all the time.
    pub fn status_now(&self, side: Side) -> Value {
        self.got_json(side, "/v1/status")
    }

    /// The files that were sent to be remembered, and are.
    pub fn warmings(&self, side: Side) -> Value {
        self.got_json(side, "/v1/cache/warmings")
    }

    fn got_json(&self, side: Side, path: &str) -> Value {
        let answer = self.got(side, path);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap()
    }

    fn got(&self, side: Side, path: &str) -> String {
        let mut socket = UnixStream::connect(self.lab.gateway_socket(side)).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The sum of all series of a counter or gauge.
    pub fn metric(&self, side: Side, name: &str) -> u64 {
        let text = self.metrics(side);
        let series = text.lines().filter_map(|line| line.strip_prefix(name));
        let values = series.filter(|rest| rest.starts_with(['{', ' ']));
        values
            .map(|rest| rest.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// The flow of a client's address in a gateway's list.
    pub fn flow_of(&self, side: Side, client: SocketAddr) -> Option<Value> {
        let flows = self.flows(side);
        let list = flows["flows"].as_array().unwrap();
        let client = client.to_string();
        list.iter().find(|flow| flow["client"] == *client).cloned()
    }

    /// What `flows` says about a connection that went direct or failed.
    pub fn direct_event(&self, side: Side, client: SocketAddr) -> Option<Value> {
        let flows = self.flows(side);
        let list = flows["recent_direct"].as_array().unwrap();
        let client = client.to_string();
        let mut latest_first = list.iter().rev();
        latest_first
            .find(|happened| happened["event"]["client"] == *client)
            .map(|happened| happened["event"].clone())
    }

    /// The connection does not go through the tunnel, and the gateway says why.
    pub fn assert_direct(&self, stream: &TcpStream, reason: &str) {
        assert!(!self.is_tunnelled(stream), "it goes through the tunnel");
        let event = self.direct_event(Side::A, stream.local_addr().unwrap());
        let event = event.unwrap_or_else(|| panic!("no event for it: {}", self.flows(Side::A)));
        assert_eq!(event["reason"], reason, "{event}");
    }

    /// State of a side's only peer.
    pub fn peer_state(&self, side: Side) -> String {
        let status = self.status(side);
        status["peers"][0]["state"].as_str().unwrap().to_owned()
    }

    /// Waits until a side says that its peer is `state`.
    pub fn wait_peer(&self, side: Side, state: &str) -> Duration {
        until(&format!("peer of {side:?} {state}"), || {
            self.peer_state(side) == state
        })
    }

    /// A signal to a side's gateway.
    pub fn signal(&mut self, side: Side, signal: Signal) {
        self.lab.gateway_kill(side, signal).unwrap();
    }

    /// Everything a gateway could have left in its namespace; empty when it
    /// left nothing.
    pub fn residue(&self, side: Side) -> String {
        let namespace = self.gateway(side);
        let shown = |words: &[&str]| namespace.exec(words).unwrap_or_default();
        let mut residue = shown(&["nft", "list", "tables"]);
        for family in ["-4", "-6"] {
            let rules = shown(&["ip", family, "rule"]);
            let odd = |line: &&str| {
                ![
                    "from all lookup local",
                    "from all lookup main",
                    "from all lookup default",
                ]
                .iter()
                .any(|usual| line.trim_end().ends_with(usual))
            };
            residue.extend(rules.lines().filter(odd).map(|line| format!("{line}\n")));
            for table in ["250", "260"] {
                residue += &shown(&["ip", family, "route", "show", "table", table]);
            }
        }
        let mut processes: Vec<String> = Vec::new();
        for process in namespace.processes().unwrap() {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
            processes.extend(name.ok());
        }
        residue + &processes.concat()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for side in Side::BOTH {
                eprintln!("{}", self.lab.gateway_log_tail(side));
                for question in ["status --json", "flows --json"] {
                    let answer = self.ask(side, question).stdout;
                    let answer = String::from_utf8_lossy(&answer);
                    eprintln!("--- {question} of {side:?} ---\n{answer}");
                }
            }
            eprintln!("link: {:?}", self.lab.link_stats());
        }
    }
}

/// One world for the tests of a file that disturb nothing: made by the first,
/// removed with the last that holds it.
pub struct Shared(Mutex<Weak<World>>);

impl Shared {
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The world that is up, or the one `make` brings up.
    pub fn get(&self, make: impl FnOnce() -> World) -> Arc<World> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.upgrade().unwrap_or_else(|| {
            let world = Arc::new(make());
            *slot = Arc::downgrade(&world);
            world
        })
    }
}

/// Remote addresses in `/proc/net/tcp` or `/proc/net/tcp6`.
fn sockets(table: &str) -> Vec<SocketAddr> {
    let remote = |line: &str| {
        let (address, port) = line.split_whitespace().nth(2)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        // Words in the byte order of the machine, printed as numbers.
        let words: Vec<u8> = (0..address.len())
            .step_by(8)
            .filter_map(|at| u32::from_str_radix(address.get(at..at + 8)?, 16).ok())
            .flat_map(u32::to_ne_bytes)
            .collect();
        let ip: IpAddr = match <[u8; 4]>::try_from(words.as_slice()) {
            Ok(v4) => v4.into(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).into(),
        };
        Some(SocketAddr::new(ip.to_canonical(), port))
    };
    table.lines().skip(1).filter_map(remote).collect()
}

/// The server, over IPv4.
pub fn v4(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER.into(), port)
}

/// The server, over IPv6.
pub fn v6(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER6.into(), port)
}

/// Waits until `condition` holds; tells how long that took.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG, "never: {what}");
        sleep(Duration::from_millis(20));
    }
    start.elapsed()
}
