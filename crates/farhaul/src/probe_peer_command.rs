//! `farhaul probe peer`: what the circuit to a gateway's peer carries, and what `peer.link` should say.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use farhaul_gateway::admin::MeasureRequest;
use farhaul_gateway::admin::client::{Client, ClientError};
use farhaul_gateway::admin::status::{MeasuredStatus, MeasuredWay};
use farhaul_lab::probe::examine::{Target, examine};
use farhaul_lab::probe::report::Trouble;
use farhaul_lab::probe::{PORT, ProbeError, Report, text};
use serde::Serialize;

use crate::ask::{Where, block_on};
use crate::failure::Failure;
use crate::lab_command::stop_on_signal;
use crate::print;
use crate::probe_command::positive;
use crate::table::clean;

const MEASURED_EVERY: Duration = Duration::from_millis(300);
const TCP_MS: u64 = 5000;
/// Name of the document's format; a field that changes its meaning changes it.
const SCHEMA: &str = "farhaul-probe-peer/1";
/// The schema of the document through the tunnel, as it is published.
pub(crate) const SCHEMA_TEXT: &str = include_str!("../../../docs/reference/probe-peer.schema.json");

const EXAMPLES: &str = "\
Through the tunnel: in class background, so that users go first; the peer lets only its own peers do it, one at a time,
and not again for as long as the last one took. With --beside: the whole examination of `farhaul probe diagnose`,
which fills the circuit for some 20 s without regard to anybody; needs `farhaul probe serve` on the peer's machine.
exit codes: 0 measured, 1 not, 7 interrupted; with --beside those of `farhaul probe diagnose`";

/// `farhaul probe peer`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PeerCommand {
    /// The peer's name in the configuration [default: the only one].
    name: Option<String>,
    /// Seconds of each direction through the tunnel, 1 to 30.
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0, value_parser = positive)]
    time: f64,
    /// Send no more than this through the tunnel, Mbit/s.
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    rate: Option<f64>,
    /// Examine the circuit beside the tunnel.
    #[arg(long, conflicts_with = "rate")]
    beside: bool,
    /// TCP port of the test server on the peer's machine.
    #[arg(long, default_value_t = PORT, requires = "beside")]
    port: u16,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    gateway: Where,
}

impl PeerCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.beside {
            true => self.beside(),
            false => self.through(),
        }
    }

    fn through(self) -> Result<(), Failure> {
        let stop = stop_on_signal()?;
        let wanted = MeasureRequest {
            peer: self.name.clone(),
            seconds: self.time,
            bit_per_s_max: self.rate.map(|mbit| mbit * 1e6),
        };
        let mut measured = MeasuredStatus {
            peer: self.name.clone().unwrap_or_default(),
            seconds: self.time,
            ..MeasuredStatus::default()
        };
        let begun = self
            .gateway
            .client()
            .and_then(|client| block_on(measure(&client, &wanted, &stop, &mut measured)));
        let outcome = match begun {
            Ok(outcome) => outcome,
            Err(failure) => Err(Unmeasured::Local(failure.words())),
        };
        if let Err(why) = &outcome {
            measured.end.get_or_insert_with(|| why.to_string());
        }
        let report = PeerReport::of(measured, &outcome);
        match (&outcome, self.json) {
            (_, true) => print::value(&report)?,
            (Ok(()) | Err(Unmeasured::Ended(_)), false) => print::out(&page(&report.measured))?,
            (Err(_), false) => {}
        }
        match &outcome {
            Ok(()) => return Ok(()),
            Err(Unmeasured::Ended(_)) => {}
            Err(why) => print::aside(&why.to_string()),
        }
        Err(Failure::Verdict(report.exit_code))
    }

    fn beside(self) -> Result<(), Failure> {
        let (name, host) = match self.name_and_host() {
            Err(failure) if self.json => {
                let mut report = Report::new(self.name.as_deref().unwrap_or_default());
                report.error = Some(trouble("local", failure.words()));
                report.exit_code = 1;
                print::value(&report)?;
                return Err(failure);
            }
            other => other?,
        };
        let target = Target {
            host,
            port: self.port,
            stop: stop_on_signal()?.clone(),
        };
        let report = examine(&target, TCP_MS, &|step| {
            if !self.json {
                print::aside(step);
            }
        });
        match (self.json, &report.link_profile) {
            (true, _) => print::value(&report)?,
            (false, Some(words)) => print::out(&format!(
                "{}\nIn the [[peer]] block of {}:\n  link = \"{words}\"\n",
                text::of(&report),
                clean(&name)
            ))?,
            (false, None) => print::out(&text::of(&report))?,
        }
        if let Some(trouble) = &report.error {
            print::aside(&trouble.text);
        }
        match report.exit_code {
            0 => Ok(()),
            code => Err(Failure::Verdict(code)),
        }
    }

    /// The peer, and where its gateway is.
    fn name_and_host(&self) -> Result<(String, String), Failure> {
        let status = self.gateway.ask(async |client| client.status().await)?;
        let mut peers = status.peers.iter();
        let peer = match &self.name {
            Some(name) => peers.find(|peer| peer.name == *name),
            None => peers.next().filter(|_| status.peers.len() == 1),
        };
        let peer = peer.ok_or_else(|| {
            Failure::failed("the gateway has no such peer, or several: `farhaul status` lists them")
        })?;
        let host = host_of(&peer.address).ok_or_else(|| {
            Failure::failed(format!("no address of {} is known yet", clean(&peer.name)))
        })?;
        Ok((peer.name.clone(), host))
    }
}

/// Why nothing, or not all, was measured.
#[derive(Debug)]
enum Unmeasured {
    /// Our own side.
    Local(String),
    /// The gateway does not answer, or refuses.
    Gateway(ClientError),
    /// A signal.
    Interrupted,
    /// It began, and ended otherwise.
    Ended(String),
}

impl Unmeasured {
    fn code(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Gateway(ClientError::Refused { .. }) => "refused",
            Self::Gateway(_) => "unreachable",
            Self::Interrupted => "interrupted",
            Self::Ended(_) => "not-measured",
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => ProbeError::Interrupted.exit_code(),
            _ => 1,
        }
    }
}

impl fmt::Display for Unmeasured {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(why) | Self::Ended(why) => to.write_str(why),
            Self::Gateway(error) => error.fmt(to),
            Self::Interrupted => to.write_str("interrupted"),
        }
    }
}

impl From<ClientError> for Unmeasured {
    fn from(error: ClientError) -> Self {
        Self::Gateway(error)
    }
}

/// The document of a measurement through the tunnel, whatever happened.
#[derive(Debug, Serialize)]
struct PeerReport {
    schema: &'static str,
    #[serde(flatten)]
    measured: MeasuredStatus,
    error: Option<Trouble>,
    exit_code: u8,
}

impl PeerReport {
    fn of(measured: MeasuredStatus, outcome: &Result<(), Unmeasured>) -> Self {
        let error = outcome.as_ref().err();
        Self {
            schema: SCHEMA,
            measured,
            exit_code: error.map_or(0, Unmeasured::exit_code),
            error: error.map(|why| trouble(why.code(), why.to_string())),
        }
    }
}

fn trouble(code: &str, text: String) -> Trouble {
    Trouble {
        code: code.to_owned(),
        text,
    }
}

/// Begins a measurement and waits for its end; `measured` is what is known of it.
async fn measure(
    client: &Client,
    wanted: &MeasureRequest,
    stop: &AtomicBool,
    measured: &mut MeasuredStatus,
) -> Result<(), Unmeasured> {
    *measured = client.measure_peer(wanted).await?;
    while measured.end.is_none() {
        if stop.load(Ordering::Relaxed) {
            // Nobody would hear of it; where it has just ended there is none.
            let _ = client.reset_flow(measured.flow).await;
            return Err(Unmeasured::Interrupted);
        }
        tokio::time::sleep(MEASURED_EVERY).await;
        let status = client.status().await?;
        let mut found = status.peers.into_iter().filter_map(|peer| peer.measured);
        match found.find(|known| known.flow == measured.flow) {
            Some(known) => *measured = known,
            None => measured.end = Some("the gateway has forgotten it".to_owned()),
        }
    }
    match measured.end.as_deref() {
        Some("measured") | None => Ok(()),
        Some(end) => Err(Unmeasured::Ended(end.to_owned())),
    }
}

/// The host of an address with a port.
fn host_of(address: &str) -> Option<String> {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return Some(address.ip().to_string());
    }
    let (host, _) = address.rsplit_once(':')?;
    (!host.is_empty()).then(|| host.to_owned())
}

fn page(measured: &MeasuredStatus) -> String {
    let mut text = format!(
        "through the tunnel to {}, {} s each way, class background: {}\n",
        clean(&measured.peer),
        measured.seconds,
        clean(measured.end.as_deref().unwrap_or("under way"))
    );
    let ways = [("there", &measured.there), ("back", &measured.back)];
    for (name, way) in ways {
        if let Some(way) = way {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<6} {}", way_words(way));
        }
    }
    if let Some(ms) = measured.rtt_ms {
        let _ = writeln!(text, "  round trip {ms:.1} ms without queues");
    }
    if let Some(words) = &measured.proposal {
        let (peer, words) = (clean(&measured.peer), clean(words));
        let _ = writeln!(
            text,
            "\nIn the [[peer]] block of {peer}:\n  link = \"{words}\""
        );
        text.push_str("and, if nobody else uses this circuit:\n  owned = true\n");
    }
    if let Some(note) = &measured.note {
        let _ = writeln!(text, "\nnote: {}", clean(note));
    }
    text
}

fn way_words(way: &MeasuredWay) -> String {
    let mut text = format!("{:.3} Mbit/s in Ethernet frames", way.bit_per_s / 1e6);
    if let Some(loss) = way.loss_ratio {
        let _ = write!(text, ", {:.2} % lost without load", loss * 100.0);
    }
    if let Some(ms) = way.queue_ms {
        let _ = write!(text, ", {ms:.1} ms in queues");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses() {
        let host = |address| host_of(address).unwrap_or_default();
        assert_eq!(host("198.51.100.7:4433"), "198.51.100.7");
        assert_eq!(host("[2001:db8::7]:4433"), "2001:db8::7");
        assert_eq!(host("hq.example:4433"), "hq.example");
        assert_eq!(host(""), "");
    }

    #[test]
    fn a_page_ends_with_the_line_to_write() {
        let way = |bit_per_s| {
            Some(MeasuredWay {
                bit_per_s,
                loss_ratio: Some(0.01),
                queue_ms: Some(1.2),
                phase: "steady".to_owned(),
            })
        };
        let mut measured = MeasuredStatus {
            peer: "hq".to_owned(),
            seconds: 8.0,
            there: way(49.5e6),
            back: way(9.9e6),
            rtt_ms: Some(100.0),
            proposal: Some("rate 50mbit".to_owned()),
            end: Some("measured".to_owned()),
            ..MeasuredStatus::default()
        };
        let text = page(&measured);
        assert!(
            text.contains("49.500 Mbit/s") && text.contains("1.00 % lost"),
            "{text}"
        );
        assert!(text.contains("link = \"rate 50mbit\""), "{text}");
        measured.proposal = None;
        measured.note = Some("measure longer\x1b".to_owned());
        let text = page(&measured);
        assert!(!text.contains("link =") && !text.contains('\x1b'), "{text}");
    }
}
