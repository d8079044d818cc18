//! `farhaul probe`: tests a circuit and says what is wrong with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use farhaul_lab::probe::campaign::{Campaign, Line};
use farhaul_lab::probe::datagram_flow::FlowPlan;
use farhaul_lab::probe::examine::{Single, TCP_MS_MIN, Target, examine, single, with_iperf3};
use farhaul_lab::probe::iperf3::Iperf3Plan;
use farhaul_lab::probe::sweep::FIRST_BYTES as SWEEP_FIRST_BYTES;
use farhaul_lab::probe::tcp_test::{Direction, TcpPlan, WINDOW_BYTES_MIN};
use farhaul_lab::probe::{PORT, ProbeError, Report, Server, ServerOptions, UdpPorts, text};

use crate::campaign_command::{CampaignCommand, ReportCommand};
use crate::failure::Failure;
use crate::lab_command::stop_on_signal;
use crate::print;
use crate::probe_peer_command::{self, PeerCommand};

const EXAMPLES: &str = "\
example: far end:   farhaul probe serve
         near end:  farhaul probe diagnose far-end.example
exit codes: 0 no fault, 10 fault found, 3 nobody there, 4 refused, 5 broken
protocol, 6 lost or silent, 7 interrupted, 2 wrong usage, 1 own trouble";

/// Of UDP, where nothing else is asked for.
pub(crate) const UDP_RATE_MBIT: f64 = 1.0;
pub(crate) const UDP_PAYLOAD_BYTES: u16 = 1400;

/// `farhaul probe`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProbeCommand {
    #[command(subcommand)]
    verb: ProbeVerb,
}

#[derive(Debug, Subcommand)]
enum ProbeVerb {
    /// Be the far end: wait for clients.
    Serve(Serve),
    /// Examine the circuit to a server and say what is wrong.
    #[command(after_help = EXAMPLES)]
    Diagnose(Diagnose),
    /// One TCP test.
    Tcp(Tcp),
    /// One UDP test.
    Udp(Udp),
    /// Throughput by window size, beside what window / RTT predicts.
    Sweep(Sweep),
    /// Transactions per second, on one connection and on new ones.
    Transact(Transact),
    /// Test with an iperf3 server.
    Iperf3(Iperf3),
    /// The same test many times: distribution, time series, charts.
    Campaign(CampaignCommand),
    /// What the file of a campaign shows so far.
    Report(ReportCommand),
    /// What the circuit to a gateway's peer carries, and what `peer.link` should say.
    Peer(PeerCommand),
    /// Print the JSON Schema of reports, or of campaigns.
    Schema {
        /// Which document.
        #[arg(value_enum, default_value = "report")]
        of: Document,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Document {
    /// Of a test or a diagnosis.
    Report,
    /// Of a campaign.
    Campaign,
    /// Of a line of a campaign's file.
    Line,
    /// Of a measurement through the tunnel.
    Peer,
}

impl Document {
    fn schema_text(self) -> String {
        match self {
            Self::Report => Report::schema_text(),
            Self::Campaign => Campaign::schema_text(),
            Self::Line => Line::schema_text(),
            Self::Peer => probe_peer_command::SCHEMA_TEXT.to_owned(),
        }
    }
}

#[derive(Debug, Args)]
struct Serve {
    /// Listen only here [default: all addresses].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// TCP port.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Be a sink and source for iperf 2 clients, too, on this TCP and UDP port
    /// [default: 5001].
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "5001")]
    iperf2: Option<u16>,
    /// Most clients at once.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Advertise no larger receive window, in bytes (8192, 64k, 1m).
    #[arg(long, value_name = "BYTES", value_parser = window)]
    window: Option<u32>,
    /// Datagrams of our own clients only to these ports, for a firewall: two for
    /// each client at once [default: the system chooses].
    #[arg(long, value_name = "FIRST-LAST", value_parser = UdpPorts::parse)]
    udp_ports: Option<UdpPorts>,
}

#[derive(Debug, Args)]
pub(crate) struct Far {
    /// Name or address of the server.
    host: String,
    /// TCP port of the server.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
struct Diagnose {
    #[command(flatten)]
    far: Far,
    /// Seconds of each TCP test, 1 at least; a long round trip makes it longer.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = diagnosis_seconds)]
    time: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// From here to the server.
    Up,
    /// From the server to here.
    Down,
    /// Both at the same time.
    Both,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::Up => Self::Up,
            Way::Down => Self::Down,
            Way::Both => Self::Both,
        }
    }
}

#[derive(Debug, Args)]
struct Tcp {
    #[command(flatten)]
    far: Far,
    /// Which way data goes.
    #[arg(long, value_enum, default_value = "up")]
    way: Way,
    /// Seconds.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    time: f64,
    /// Streams each way; several numbers (1,2,4,8) are tests one after the other.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    streams: Vec<u16>,
    /// Receivers advertise no more, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    window: Option<u32>,
    /// Send buffers hold this much, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    send_buffer: Option<u32>,
    /// Congestion control of the senders.
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Largest segment in bytes.
    #[arg(long, value_name = "BYTES")]
    mss: Option<u16>,
    /// DSCP of the client's packets.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..64))]
    dscp: u8,
}

#[derive(Debug, Args)]
struct Udp {
    #[command(flatten)]
    far: Far,
    /// Which way data goes.
    #[arg(long, value_enum, default_value = "up")]
    way: Way,
    /// Seconds.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    time: f64,
    /// Payload rate in Mbit/s; several (5,10,20) are tests one after the other.
    #[arg(long, value_name = "MBIT,...", value_delimiter = ',', default_values_t = [UDP_RATE_MBIT], value_parser = positive)]
    rate: Vec<f64>,
    /// Payload of a datagram in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = UDP_PAYLOAD_BYTES)]
    payload: u16,
}

#[derive(Debug, Args)]
struct Sweep {
    #[command(flatten)]
    far: Far,
    /// Which way data goes.
    #[arg(long, value_enum, default_value = "up")]
    way: Way,
    /// Seconds for each window size.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    time: f64,
    /// Largest window in bytes, 8k at least [default: twice what the circuit holds].
    #[arg(long, value_name = "BYTES", value_parser = sweep_most)]
    most: Option<u32>,
}

#[derive(Debug, Args)]
struct Transact {
    #[command(flatten)]
    far: Far,
    /// Seconds.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    time: f64,
}

#[derive(Debug, Args)]
struct Iperf3 {
    #[command(flatten)]
    far: Far,
    /// Which way data goes.
    #[arg(long, value_enum, default_value = "up")]
    way: Way,
    /// Whole seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    time: u64,
    /// Seconds before them that do not count.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    omit: u64,
    /// Streams each way.
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: u16,
    /// Datagrams in place of TCP.
    #[arg(long, conflicts_with = "mss")]
    udp: bool,
    /// Payload rate of each stream in Mbit/s [default: 1 for UDP, else no limit].
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    rate: Option<f64>,
    /// Buffers of both ends, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    window: Option<u32>,
    /// Largest segment in bytes.
    #[arg(long, value_name = "BYTES")]
    mss: Option<u16>,
    /// Payload of a write or a datagram in bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    payload: Option<u32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    const MOST: f64 = 3600.0;
    match positive(text)? {
        seconds if (0.001..=MOST).contains(&seconds) => Ok(seconds),
        _ => Err(format!("a test takes between 0.001 and {MOST} seconds")),
    }
}

fn diagnosis_seconds(text: &str) -> Result<f64, String> {
    const LEAST: f64 = TCP_MS_MIN as f64 / 1e3;
    match seconds(text)? {
        seconds if seconds >= LEAST => Ok(seconds),
        _ => Err(format!("a verdict needs a test of at least {LEAST} s")),
    }
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match number.is_finite() && number > 0.0 {
        true => Ok(number),
        false => Err("it must be more than 0".to_owned()),
    }
}

pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, shift) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 10),
        Some(digits) => (digits, 20),
        None => (lower.as_str(), 0),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "not a number of bytes, such as 8192, 64k or 1m".to_owned())?;
    let shifted = u64::from(number) << shift;
    u32::try_from(shifted).map_err(|_| "too many bytes".to_owned())
}

fn bytes_between(text: &str, least: u32) -> Result<u32, String> {
    const MOST: u32 = 1 << 30;
    match bytes(text)? {
        number if (least..=MOST).contains(&number) => Ok(number),
        _ => Err(format!("it must be between {least} and {MOST} bytes")),
    }
}

fn window(text: &str) -> Result<u32, String> {
    bytes_between(text, WINDOW_BYTES_MIN)
}

fn sweep_most(text: &str) -> Result<u32, String> {
    bytes_between(text, SWEEP_FIRST_BYTES)
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Usage(_) => Self::usage(error),
            other => Self::failed(other),
        }
    }
}

impl ProbeCommand {
    /// Does what was asked.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.verb {
            ProbeVerb::Serve(serve) => serve.run(),
            ProbeVerb::Diagnose(diagnose) => diagnose.run(),
            ProbeVerb::Tcp(tcp) => tcp.run(),
            ProbeVerb::Udp(udp) => udp.run(),
            ProbeVerb::Sweep(sweep) => {
                let each_ms = (sweep.time * 1e3) as u64;
                sweep
                    .far
                    .run(&Single::Sweep(sweep.way.into(), sweep.most, each_ms))
            }
            ProbeVerb::Transact(transact) => {
                let time = Duration::from_secs_f64(transact.time);
                transact.far.run(&Single::Transact(time))
            }
            ProbeVerb::Iperf3(iperf3) => iperf3.run(),
            ProbeVerb::Campaign(campaign) => campaign.run(),
            ProbeVerb::Report(report) => report.run(),
            ProbeVerb::Peer(peer) => peer.run(),
            ProbeVerb::Schema { of } => print::out(&of.schema_text()),
        }
    }
}

impl Serve {
    fn run(self) -> Result<(), Failure> {
        if self.port != 0 && self.iperf2 == Some(self.port) {
            let port = self.port;
            return Err(Failure::usage(format!(
                "iperf 2 needs a port of its own: `--port` and `--iperf2` are both {port}"
            )));
        }
        let mut taken = [Some(self.port), self.iperf2].into_iter().flatten();
        if let Some(ports) = self.udp_ports
            && let Some(port) = taken.find(|port| ports.has(*port))
        {
            return Err(Failure::usage(format!(
                "iperf clients send datagrams to port {port}: `--udp-ports` must leave it out"
            )));
        }
        let options = ServerOptions {
            address: self.listen,
            port: self.port,
            iperf2_port: self.iperf2,
            sessions_max: self.clients,
            window_bytes: self.window,
            udp_ports: self.udp_ports,
            ..ServerOptions::default()
        };
        let server = Server::listen(options, stop_on_signal()?)?;
        for address in server.addresses() {
            print::line(&format!("listening on {address}"))?;
        }
        for address in server.iperf2_addresses() {
            print::line(&format!("listening for iperf 2 on {address}"))?;
        }
        if let Some((first, last)) = self.udp_ports.map(UdpPorts::ends) {
            print::line(&format!("datagrams to UDP ports {first} to {last}"))?;
        }
        Ok(server.run()?)
    }
}

impl Diagnose {
    fn run(self) -> Result<(), Failure> {
        let is_quiet = self.far.json;
        let tell = |step: &str| {
            if !is_quiet {
                print::aside(step);
            }
        };
        let report = examine(&self.far.target()?, (self.time * 1e3) as u64, &tell);
        self.far.show(&report)
    }
}

impl Tcp {
    fn run(self) -> Result<(), Failure> {
        let mut plan = TcpPlan::new(self.way.into(), (self.time * 1e3) as u64);
        plan.window_bytes = self.window;
        plan.send_buffer_bytes = self.send_buffer;
        plan.congestion_control = self.congestion_control;
        plan.mss_bytes = self.mss;
        plan.tos = self.dscp << 2;
        let plans = self.streams.iter().map(|streams| TcpPlan {
            streams: *streams,
            ..plan.clone()
        });
        let plans = self.far.possible(steps(plans.collect(), TcpPlan::check))?;
        self.far.run(&Single::Tcp(plans))
    }
}

impl Udp {
    fn run(self) -> Result<(), Failure> {
        let (way, time) = (self.way.into(), self.time);
        let rates = self.rate.iter();
        let plans = rates.map(|mbit| FlowPlan::at_rate(way, self.payload, mbit * 1e6, time));
        let plans: Result<Vec<_>, _> = plans.collect();
        let plans = plans.and_then(|plans| steps(plans, FlowPlan::check));
        let plans = self.far.possible(plans)?;
        self.far.run(&Single::Flow(plans))
    }
}

/// Tests one after the other, all of them possible.
fn steps<Plan>(
    plans: Vec<Plan>,
    check: impl Fn(&Plan) -> Result<(), String>,
) -> Result<Vec<Plan>, String> {
    const MOST: usize = 32;
    if plans.len() > MOST {
        return Err(format!("at most {MOST} tests at a time"));
    }
    plans.iter().try_for_each(check)?;
    Ok(plans)
}

impl Iperf3 {
    fn run(self) -> Result<(), Failure> {
        let mbit = self.rate.or(self.udp.then_some(1.0));
        let plan = Iperf3Plan {
            direction: self.way.into(),
            streams: self.streams,
            duration_s: self.time,
            omit_s: self.omit,
            udp: self.udp,
            bit_per_s: mbit.map(|mbit| (mbit * 1e6).max(1.0) as u64),
            window_bytes: self.window,
            mss_bytes: self.mss,
            block_bytes: self.payload,
        };
        self.far.possible(plan.check())?;
        let target = self.far.target()?;
        self.far.show(&with_iperf3(&target, &plan, Duration::ZERO))
    }
}

/// Prints the document of a test that did not begin.
pub(crate) fn failed(target: &str, error: ProbeError) -> Failure {
    let report = Report::new(target).ended(Err(error));
    let printed = print::value(&report);
    report
        .error
        .iter()
        .for_each(|trouble| print::aside(&trouble.text));
    printed.err().unwrap_or(Failure::Verdict(report.exit_code))
}

impl Far {
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        Ok(Target {
            host: self.host.clone(),
            port: self.port,
            stop: Arc::clone(&stop_on_signal()?),
        })
    }

    /// What was asked for, if it is possible; if not, the document says why where
    /// one was asked for.
    pub(crate) fn possible<T>(&self, asked: Result<T, String>) -> Result<T, Failure> {
        let error = match asked {
            Ok(asked) => return Ok(asked),
            Err(why) => ProbeError::Usage(why),
        };
        match self.json {
            true => Err(failed(&self.host, error)),
            false => Err(error.into()),
        }
    }

    fn run(&self, test: &Single) -> Result<(), Failure> {
        self.show(&single(&self.target()?, test))
    }

    fn show(&self, report: &Report) -> Result<(), Failure> {
        match self.json {
            true => print::value(report)?,
            false => print::out(&text::of(report))?,
        }
        if let Some(trouble) = &report.error {
            print::aside(&trouble.text);
        }
        match report.exit_code {
            0 => Ok(()),
            code => Err(Failure::Verdict(code)),
        }
    }
}
