//! The processes under test: a gateway that decides by destination port, and
//! the guard it starts.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use farhaul_gateway::config::meaning::{ClientAddress, Intercept, InterceptMode, Network};
use farhaul_gateway::dial::{Source, dial};
use farhaul_gateway::intercept::{
    Attempt, BEAT_INTERVAL, GuardProgram, Interceptor, Taken, Verdict, disarm_reset, guard,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

/// Relayed to the server, with the client's address.
pub const RELAY: u16 = 2080;
/// As [`RELAY`], decided after 2.5 s.
pub const RELAY_LATE: u16 = 2081;
pub const DIRECT: u16 = 2082;
pub const REFUSED: u16 = 2083;
pub const HOST_UNREACHABLE: u16 = 2084;
pub const NETWORK_UNREACHABLE: u16 = 2085;
pub const SILENT: u16 = 2086;
/// Never decided.
pub const UNDECIDED: u16 = 2087;
pub const ALL: [u16; 8] = [
    RELAY,
    RELAY_LATE,
    DIRECT,
    REFUSED,
    HOST_UNREACHABLE,
    NETWORK_UNREACHABLE,
    SILENT,
    UNDECIDED,
];

pub fn guard(arguments: Vec<OsString>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    match runtime.block_on(guard::run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Options `key=value`: interfaces, networks (comma lists), queue, table, mark.
pub fn gateway(arguments: Vec<OsString>) -> ExitCode {
    let options: HashMap<String, String> = arguments
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .map(|word| {
            let (key, value) = word.split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(options))
}

async fn serve(options: HashMap<String, String>) -> ExitCode {
    let get =
        |key: &str, default: &str| options.get(key).map_or(default, String::as_str).to_owned();
    let config = Intercept {
        mode: InterceptMode::Transparent,
        interfaces: list(&get("interfaces", "lan1"))
            .map(str::to_owned)
            .collect(),
        client_address: ClientAddress::Keep,
        mark: get("mark", "262144000").parse().unwrap(),
        table: get("table", "250").parse().unwrap(),
        queue: get("queue", "250").parse().unwrap(),
    };
    let networks = networks(&get("networks", "10.2.0.0/16,fd02::/32"));
    let (sender, taken) = mpsc::channel(1024);
    let guard = GuardProgram::current("--role-guard").unwrap();
    let mut interceptor = match Interceptor::start(&config, &networks, guard, sender).await {
        Ok(interceptor) => interceptor,
        Err(error) => {
            println!("error {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut beating = Some(tokio::spawn(interceptor.lease().keep()));
    println!("ready {:?}", interceptor.warnings());
    tokio::spawn(decide(taken));
    let mut health = interceptor.health();
    tokio::spawn(async move {
        while health.changed().await.is_ok() {
            println!("health {:?}", health.borrow_and_update().clone());
        }
    });
    let mut commands = commands();
    while let Some(line) = commands.recv().await {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("networks", list) => {
                interceptor
                    .set_networks(&self::networks(list))
                    .await
                    .unwrap();
                println!("networks");
            }
            ("stats", _) => {
                println!(
                    "stats {}",
                    serde_json::to_string(&interceptor.stats()).unwrap()
                );
            }
            ("nobeat", _) => beating.take().unwrap().abort(),
            _ => break,
        }
    }
    interceptor.stop().await;
    println!("stopped");
    ExitCode::SUCCESS
}

/// Lines of standard input, until its end.
fn commands() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(8);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn decide(mut taken: mpsc::Receiver<Taken>) {
    let mut undecided = Vec::new();
    while let Some(taken) = taken.recv().await {
        match taken {
            Taken::Attempt { attempt, verdict } => {
                let port = attempt.destination.port();
                if port == UNDECIDED {
                    undecided.push(verdict);
                } else {
                    say("attempt", attempt);
                    answer(port, verdict);
                }
            }
            Taken::Connection { attempt, stream } => {
                say("connection", attempt);
                tokio::spawn(relay(attempt, stream));
            }
        }
    }
}

fn say(what: &str, attempt: Attempt) {
    let Attempt {
        client,
        destination,
        dscp,
    } = attempt;
    println!("{what} {client} {destination} {dscp}");
}

fn answer(port: u16, verdict: oneshot::Sender<Verdict>) {
    let decision = match port {
        RELAY => Verdict::Proxy,
        REFUSED => Verdict::Refused,
        HOST_UNREACHABLE => Verdict::HostUnreachable,
        NETWORK_UNREACHABLE => Verdict::NetworkUnreachable,
        SILENT => Verdict::Silent,
        RELAY_LATE => {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(2500)).await;
                let _ = verdict.send(Verdict::Proxy);
            });
            return;
        }
        _ => Verdict::Direct,
    };
    let _ = verdict.send(decision);
}

async fn relay(attempt: Attempt, mut near: TcpStream) {
    let source = Source::Client(attempt.client);
    let mut far = match dial(attempt.destination, source, Duration::from_secs(5)).await {
        Ok(far) => far,
        Err(failure) => return println!("dial {failure:?}"),
    };
    if tokio::io::copy_bidirectional(&mut near, &mut far)
        .await
        .is_ok()
    {
        let _ = (disarm_reset(&near), disarm_reset(&far));
    }
}

pub fn networks(text: &str) -> Vec<Network> {
    list(text)
        .map(|network| {
            let (address, bits) = network.split_once('/').unwrap();
            Network {
                address: address.parse().unwrap(),
                prefix_bits: bits.parse().unwrap(),
            }
        })
        .collect()
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|word| !word.is_empty())
}

/// A client's address as the gateway prints it.
pub fn printed(stream: &std::net::TcpStream) -> SocketAddr {
    stream.local_addr().unwrap()
}

// The interval is part of the promise: a lease survives a few lost beats.
const _: () = assert!(BEAT_INTERVAL.as_millis() * 5 < 700);
