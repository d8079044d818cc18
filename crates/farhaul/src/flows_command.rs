//! `farhaul flows`: is my traffic on the good path, and if not, why?

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use farhaul_gateway::admin::status::{FlowState, FlowStatus, Flows, PeerStatus};
use farhaul_gateway::event::Reason;

use crate::ask::Where;
use crate::failure::Failure;
use crate::print;
use crate::status_command::events;
use crate::table::{Align, Paint, Table, Tone, bytes, clean, span};

/// Direct connections shown; `--json` has all that the gateway remembers.
const DIRECT_SHOWN: usize = 20;

/// The round trip is so short that no protocol is optimised.
const NO_GAIN: &str = "no-gain";

/// `farhaul flows`.
#[derive(Debug, Args)]
pub(crate) struct FlowsCommand {
    #[command(flatten)]
    gateway: Where,
    /// Only flows through this peer.
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Only flows in this state.
    #[arg(long)]
    state: Option<State>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Optimised,
    Partly,
    Direct,
}

impl FlowsCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let wants_peers = self.peer.is_some();
        let (mut flows, peers) = self.gateway.ask(async move |client| {
            let flows = client.flows().await?;
            let peers = match wants_peers {
                true => client.status().await?.peers,
                false => Vec::new(),
            };
            Ok((flows, peers))
        })?;
        if let Some(name) = &self.peer {
            known(name, &flows, &peers)?;
        }
        let state = self.state.map(|state| match state {
            State::Optimised => FlowState::Optimised,
            State::Partly => FlowState::Partly,
            State::Direct => FlowState::Direct,
        });
        flows.flows.retain(|flow| {
            self.peer.as_ref().is_none_or(|peer| *peer == flow.peer)
                && state.is_none_or(|state| state == flow.state)
        });
        if self.json {
            print::value(&flows)
        } else {
            print::out(&page(&flows, Paint::stdout()))
        }
    }
}

/// A peer that a reload has taken away may still have flows.
fn known(name: &str, flows: &Flows, peers: &[PeerStatus]) -> Result<(), Failure> {
    let is_known = peers.iter().any(|peer| peer.name == name)
        || flows.flows.iter().any(|flow| flow.peer == name);
    let names: Vec<String> = peers.iter().map(|peer| clean(&peer.name)).collect();
    match is_known {
        true => Ok(()),
        false if names.is_empty() => Err(Failure::usage(format!(
            "there is no peer {}; the gateway has none",
            clean(name)
        ))),
        false => Err(Failure::usage(format!(
            "there is no peer {}; there are: {}",
            clean(name),
            names.join(", ")
        ))),
    }
}

fn page(flows: &Flows, paint: Paint) -> String {
    let mut text = String::new();
    if flows.flows.is_empty() {
        text.push_str("no flows\n");
    } else {
        text.push_str(&table(&flows.flows).render(paint, ""));
    }
    if !flows.recent_direct.is_empty() {
        let skipped = flows.recent_direct.len().saturating_sub(DIRECT_SHOWN);
        text.push_str("\nlately direct or not connected\n");
        let shown = flows.recent_direct.iter().skip(skipped);
        text.push_str(&events(shown).render(paint, "  "));
    }
    for reason in reasons(flows) {
        if let Some(remedy) = reason.remedy() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{}", paint.tone(Tone::Notice, reason.code()));
            let _ = writeln!(text, ": {}; {remedy}", reason.meaning());
        }
    }
    text
}

fn table(flows: &[FlowStatus]) -> Table {
    let mut table = Table::new(&[
        ("flow", Align::Right),
        ("state", Align::Left),
        ("reason", Align::Left),
        ("protocol", Align::Left),
        ("peer", Align::Left),
        ("client", Align::Left),
        ("destination", Align::Left),
        ("rule", Align::Left),
        ("class", Align::Left),
        ("age", Align::Right),
        ("idle", Align::Right),
        ("sent", Align::Right),
        ("received", Align::Right),
    ]);
    for flow in flows {
        let state = match flow.state {
            FlowState::Optimised => (Tone::Good, "optimised"),
            FlowState::Partly => (Tone::Notice, "partly"),
            FlowState::Direct => (Tone::Bad, "direct"),
        };
        let plain = |text: &str| (Tone::Plain, text.to_owned());
        table.row(vec![
            plain(&flow.id.to_string()),
            (state.0, state.1.to_owned()),
            plain(reason(flow)),
            plain(&flow.protocol),
            plain(&flow.peer),
            plain(&flow.client),
            plain(&flow.destination),
            plain(&flow.rule),
            plain(&class(flow)),
            plain(&span(flow.age_s)),
            plain(&span(flow.idle_s)),
            plain(&bytes(flow.sent_bytes)),
            plain(&bytes(flow.received_bytes)),
        ]);
    }
    table
}

/// Why it gets less than it could, or that there is nothing to be had.
fn reason(flow: &FlowStatus) -> &str {
    match flow.reason {
        Reason::Optimised if flow.opaque_reason == NO_GAIN => NO_GAIN,
        Reason::Optimised => "",
        reason => reason.code(),
    }
}

/// The class, and what it means at present where it can mean several things: in
/// the direction this gateway sends; the other gateway judges the other one.
fn class(flow: &FlowStatus) -> String {
    match flow.class_now.as_str() {
        "" => flow.class.clone(),
        now if now == flow.class => flow.class.clone(),
        now => format!("{}, sent as {now}", flow.class),
    }
}

/// Every reason on the page, once.
fn reasons(flows: &Flows) -> BTreeSet<Reason> {
    let direct = flows.recent_direct.iter().filter_map(|happened| {
        let code = happened.event.get("reason")?.as_str()?;
        Reason::ALL.into_iter().find(|reason| reason.code() == code)
    });
    flows
        .flows
        .iter()
        .map(|flow| flow.reason)
        .chain(direct)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_gateway::admin::status::{FlowSide, Happened};

    #[test]
    fn a_reason_is_explained_once_with_its_remedy() {
        let flow = FlowStatus {
            id: 1,
            peer: "hq".into(),
            client: "10.1.0.1:5".into(),
            destination: "10.2.0.1:80".into(),
            side: FlowSide::Near,
            rule: "default".into(),
            class: "auto".into(),
            class_now: "bulk".into(),
            state: FlowState::Direct,
            reason: Reason::PeerDown,
            protocol: "smb".into(),
            opaque_reason: String::new(),
            age_s: 1,
            idle_s: 1,
            sent_bytes: 1,
            received_bytes: 1,
        };
        let happened = Happened {
            time: "2026-01-01T00:00:00.000Z".into(),
            level: "debug".into(),
            text: "10.1.0.1:5 went direct".into(),
            event: serde_json::json!({ "reason": "peer-down" }),
        };
        let flows = Flows {
            flows: vec![flow],
            recent_direct: vec![happened],
        };
        let shown = page(&flows, Paint::plain());
        assert!(shown.contains("auto, sent as bulk"), "{shown}");
        assert!(!shown.contains("no-gain"), "{shown}");
        assert_eq!(
            shown
                .matches("\npeer-down: the peer is not reachable; ")
                .count(),
            1,
            "{shown}"
        );
    }
    #[test]
    fn a_flow_without_gain_says_so() {
        let mut flow: FlowStatus = serde_json::from_value(serde_json::json!({
            "id": 1, "peer": "hq", "client": "10.1.0.1:5", "destination": "10.2.0.1:445", "side": "near",
            "rule": "default", "class": "bulk", "state": "optimised", "reason": "optimised",
            "opaque_reason": "no-gain", "age_s": 1, "idle_s": 1, "sent_bytes": 1, "received_bytes": 1,
        }))
        .unwrap();
        assert_eq!(reason(&flow), "no-gain");
        flow.opaque_reason = "unknown-protocol".into();
        assert_eq!(reason(&flow), "");
        flow.reason = Reason::SmbSigned;
        assert_eq!(reason(&flow), "smb-signed");
    }
}
