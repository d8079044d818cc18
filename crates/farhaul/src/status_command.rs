//! `farhaul status`: the gateway at a glance, and the one thing to fix next.

use std::fmt::Write as _;

use clap::Args;
use farhaul_gateway::admin::status::{Happened, PeerState, PeerStatus, Status};

use crate::ask::Where;
use crate::failure::Failure;
use crate::print;
use crate::reduction_words;
use crate::table::{Align, Paint, Table, Tone, bytes, clean, span};

/// Events shown; `--json` has all that the gateway remembers.
const EVENTS_SHOWN: usize = 6;

/// `farhaul status`.
#[derive(Debug, Args)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let status = self.gateway.ask(async |client| client.status().await)?;
        if self.json {
            print::value(&status)
        } else {
            print::out(&page(&status, Paint::stdout()))
        }
    }
}

/// The whole page for people.
pub(crate) fn page(status: &Status, paint: Paint) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{}  farhaul {}, protocol {}, up {}",
        paint.tone(Tone::Bold, &status.site),
        clean(&status.version),
        clean(&status.protocol),
        span(status.uptime_s)
    );
    for (name, (tone, value)) in facts(status) {
        let _ = writeln!(text, "  {name:<13} {}", paint.tone(tone, &value));
    }
    text.push('\n');
    text.push_str(&peers(&status.peers).render(paint, "  "));
    for peer in &status.peers {
        if let (false, Some(error)) = (peer.state == PeerState::Up, &peer.last_error) {
            let _ = writeln!(
                text,
                "  {}: {}",
                clean(&peer.name),
                paint.tone(Tone::Notice, error)
            );
        }
    }
    if let Some(table) = reduction(&status.peers) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}", table.render(paint, "  "));
    }
    for peer in &status.peers {
        for line in [
            shared_key(peer),
            own_key_shared(peer),
            correction(peer),
            repeated(peer),
            disk(peer),
            protocols(peer),
        ]
        .into_iter()
        .flatten()
        {
            let _ = writeln!(text, "  {}: {line}", clean(&peer.name));
        }
    }
    if !status.recent.is_empty() {
        text.push('\n');
        let skipped = status.recent.len().saturating_sub(EVENTS_SHOWN);
        text.push_str(&events(status.recent.iter().skip(skipped)).render(paint, "  "));
    }
    match &status.next {
        Some(next) => {
            let _ = writeln!(
                text,
                "\n{} {}",
                paint.tone(Tone::Notice, "next:"),
                clean(next)
            );
        }
        None => {
            let _ = writeln!(text, "\n{}", paint.tone(Tone::Good, "nothing to fix"));
        }
    }
    text
}

/// Two gateways that take turns at being this peer.
fn shared_key(peer: &PeerStatus) -> Option<String> {
    let both: Vec<String> = peer
        .key_shared_by
        .iter()
        .map(|address| clean(address))
        .collect();
    (!both.is_empty()).then(|| format!("two gateways use its key, from {}", both.join(" and ")))
}

/// Another gateway that takes turns with ours.
fn own_key_shared(peer: &PeerStatus) -> Option<String> {
    let line = "it ends our tunnels for those of another gateway with this gateway's key";
    peer.own_key_shared.then(|| line.to_owned())
}

/// What error correction does for a peer, if it does anything.
fn correction(peer: &PeerStatus) -> Option<String> {
    let loss = peer.loss_before_repair_ratio?;
    if peer.repairs_sent == 0 && peer.datagrams_recovered == 0 {
        return None;
    }
    if peer.error_correction.as_deref() == Some("too-dear") {
        return Some(format!(
            "{:.2} % is lost on the way there, in bursts too long for what repairs may cost: \
             none are made but to try that again ({} so far), {} datagrams recovered here",
            loss * 100.0,
            peer.repairs_sent,
            peer.datagrams_recovered
        ));
    }
    Some(format!(
        "{:.2} % is lost on the way there before repair, repairs are {:.2} % of what is sent \
         ({} so far), {} datagrams recovered here",
        loss * 100.0,
        peer.repair_ratio.unwrap_or(0.0) * 100.0,
        peer.repairs_sent,
        peer.datagrams_recovered
    ))
}

/// Records that had to be said once more, if any had.
fn repeated(peer: &PeerStatus) -> Option<String> {
    let figures = peer.reduction.as_ref()?;
    let (theirs, ours) = (figures.asked_again, figures.missed);
    (theirs + ours > 0).then(|| format!("{theirs} records repeated for it, {ours} for us"))
}

/// What is kept on disk for a peer.
fn disk(peer: &PeerStatus) -> Option<String> {
    let figures = peer.reduction.as_ref()?;
    let disk = figures.disk.as_ref()?;
    let problem = disk
        .problem
        .as_deref()
        .map(|problem| format!("; {}", clean(problem)));
    Some(format!(
        "{} of {} on disk, {} of it read back into memory{}",
        bytes(disk.used_bytes),
        bytes(disk.size_bytes),
        bytes(figures.warmed_bytes),
        problem.unwrap_or_default()
    ))
}

/// What was done for applications that wait for every answer, or that there is no need.
fn protocols(peer: &PeerStatus) -> Option<String> {
    let figures = peer.optimiser.as_ref()?;
    let answered = figures.reads_answered + figures.writes_answered + figures.opens_answered;
    match (answered, figures.no_gain) {
        (0, false) => None,
        (0, true) => Some(
            "protocols not accelerated (no-gain): the round trip is too short to matter".to_owned(),
        ),
        _ => Some(format!(
            "{} reads ({}), {} writes ({}) and {} opens answered without a round trip",
            figures.reads_answered,
            bytes(figures.answered_bytes),
            figures.writes_answered,
            bytes(figures.behind_bytes),
            figures.opens_answered
        )),
    }
}

fn facts(status: &Status) -> Vec<(&'static str, (Tone, String))> {
    let mut facts = Vec::new();
    if status.bypass {
        facts.push((
            "bypass",
            (Tone::Bad, "on: new connections go direct".to_owned()),
        ));
    }
    if status.draining {
        facts.push((
            "draining",
            (Tone::Notice, "yes: new connections go direct".to_owned()),
        ));
    }
    facts.push(("interception", interception(status)));
    if !status.intercept.listeners.is_empty() {
        facts.push((
            "listeners",
            (Tone::Plain, status.intercept.listeners.join(", ")),
        ));
    }
    let flows = &status.flows;
    let counts = format!(
        "{} optimised, {} partly, {} direct; {} connections went direct since start",
        flows.optimised, flows.partly, flows.direct, flows.direct_since_start
    );
    facts.push(("flows", (Tone::Plain, counts)));
    facts.push(("tunnel", (Tone::Plain, status.tunnel_address.clone())));
    facts.push(("key", (Tone::Dim, status.key.clone())));
    facts
}

fn interception(status: &Status) -> (Tone, String) {
    let intercept = &status.intercept;
    let on = intercept.interfaces.join(", ");
    match &intercept.problem {
        Some(problem) => (Tone::Bad, format!("{}, off: {problem}", intercept.mode)),
        None if intercept.unguarded.is_some() => (
            Tone::Notice,
            format!("{} on {on}, without a guard", intercept.mode),
        ),
        None if intercept.active => (Tone::Good, format!("{} on {on}", intercept.mode)),
        None => (Tone::Plain, intercept.mode.clone()),
    }
}

fn peers(peers: &[PeerStatus]) -> Table {
    let mut table = Table::new(&[
        ("peer", Align::Left),
        ("state", Align::Left),
        ("for", Align::Right),
        ("address", Align::Left),
        ("round trip", Align::Right),
        ("lost", Align::Right),
        ("flows", Align::Right),
        ("sent", Align::Right),
        ("on the wire", Align::Right),
        ("received", Align::Right),
        ("on the wire", Align::Right),
    ]);
    for peer in peers {
        let state = match peer.state {
            PeerState::Up => (Tone::Good, "up".to_owned()),
            PeerState::Connecting => (Tone::Notice, "connecting".to_owned()),
            PeerState::Draining => (Tone::Notice, "draining".to_owned()),
            PeerState::Down => (Tone::Bad, "down".to_owned()),
        };
        let plain = |text: String| (Tone::Plain, text);
        let or_dash = |text: Option<String>| plain(text.unwrap_or_else(|| "-".to_owned()));
        let address = Some(peer.address.clone()).filter(|address| !address.is_empty());
        table.row(vec![
            plain(peer.name.clone()),
            state,
            plain(span(peer.since_s)),
            or_dash(address),
            or_dash(peer.rtt_ms.map(|ms| format!("{ms:.1} ms"))),
            or_dash(
                peer.lost_ratio
                    .map(|ratio| format!("{:.2} %", ratio * 100.0)),
            ),
            plain(peer.flows.to_string()),
            plain(bytes(peer.payload_sent_bytes)),
            plain(bytes(peer.wire_sent_bytes)),
            plain(bytes(peer.payload_received_bytes)),
            plain(bytes(peer.wire_received_bytes)),
        ]);
    }
    table
}

/// What reduction does, where there is any.
fn reduction(peers: &[PeerStatus]) -> Option<Table> {
    let figures = |peer: &PeerStatus| peer.reduction.clone();
    let rows = peers.iter().filter_map(|peer| Some((peer, figures(peer)?)));
    reduction_words::table(rows, bytes)
}

/// Events as a table, for this page and for `farhaul flows`.
pub(crate) fn events<'a>(events: impl Iterator<Item = &'a Happened>) -> Table {
    let mut table = Table::new(&[
        ("time", Align::Left),
        ("level", Align::Left),
        ("what happened", Align::Left),
    ]);
    for event in events {
        let tone = match event.level.as_str() {
            "error" => Tone::Bad,
            "warn" => Tone::Notice,
            _ => Tone::Plain,
        };
        // Milliseconds matter to programs only.
        let time = event.time.split('.').next().unwrap_or_default();
        table.row(vec![
            (Tone::Dim, format!("{time}Z")),
            (tone, event.level.clone()),
            (Tone::Plain, event.text.clone()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_correction_is_told_of_where_it_does_something() {
        let mut status = Status::default();
        status.peers.push(PeerStatus {
            name: "hq".into(),
            loss_before_repair_ratio: Some(0.012),
            ..PeerStatus::default()
        });
        assert!(!page(&status, Paint::plain()).contains("before repair"));
        status.peers[0].repairs_sent = 70;
        status.peers[0].repair_ratio = Some(0.004);
        let shown = page(&status, Paint::plain());
        assert!(
            shown.contains("hq: 1.20 % is lost on the way there before repair, repairs are 0.40 %"),
            "{shown}"
        );
    }

    #[test]
    fn repairs_that_are_too_dear_are_told_of() {
        let mut status = Status::default();
        status.peers.push(PeerStatus {
            name: "hq".into(),
            loss_before_repair_ratio: Some(0.01),
            repairs_sent: 70,
            error_correction: Some("too-dear".into()),
            ..PeerStatus::default()
        });
        let shown = page(&status, Paint::plain());
        let expected = "hq: 1.00 % is lost on the way there, in bursts too long for what repairs";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn reduction_is_a_table_of_its_own_and_what_was_repeated_a_line() {
        let mut status = Status::default();
        status.peers.push(reduction_words::tests::peer());
        let shown = page(&status, Paint::plain());
        assert!(shown.contains("\n  to hq    "), "{shown}");
        assert!(!shown.contains("repeated"), "{shown}");
        if let Some(figures) = &mut status.peers[0].reduction {
            figures.missed = 2;
        }
        let shown = page(&status, Paint::plain());
        let line = "  hq: 0 records repeated for it, 2 for us\n";
        assert!(shown.contains(line), "{shown}");
        status.peers[0].reduction = None;
        assert!(!page(&status, Paint::plain()).contains("reduction"));
    }

    #[test]
    fn a_key_that_another_gateway_uses_is_told_of_at_the_peer_it_is_used_with() {
        let peer = |name: &str| PeerStatus {
            name: name.into(),
            ..PeerStatus::default()
        };
        let mut status = Status {
            peers: vec![peer("hq"), peer("hill"), peer("dale")],
            ..Status::default()
        };
        status.peers[0].own_key_shared = true;
        status.peers[1].key_shared_by = vec!["10.0.0.1:5".into(), "10.0.0.2:6".into()];
        let shown = page(&status, Paint::plain());
        for line in [
            "hq: it ends our tunnels for those of another gateway with this gateway's key",
            "hill: two gateways use its key, from 10.0.0.1:5 and 10.0.0.2:6",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(!shown.contains("dale: "), "{shown}");
    }

    #[test]
    fn the_page_ends_with_what_to_fix() {
        let mut status = Status {
            site: "harbour".into(),
            peers: vec![PeerStatus {
                name: "hq".into(),
                last_error: Some("wrong key".into()),
                ..PeerStatus::default()
            }],
            next: Some("peer hq is down".into()),
            ..Status::default()
        };
        let shown = page(&status, Paint::plain());
        assert!(shown.ends_with("\nnext: peer hq is down\n"), "{shown}");
        assert!(shown.contains("  hq: wrong key\n"), "{shown}");
        status.next = None;
        assert!(page(&status, Paint::plain()).ends_with("\nnothing to fix\n"));
    }
}
