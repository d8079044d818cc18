//! `farhaul top`: who uses the link right now, refreshed every second.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use clap::Args;
use farhaul_gateway::admin::client::{Client, ClientError};
use farhaul_gateway::admin::status::{FlowStatus, Flows, PeerStatus, ReductionStatus, Status};
use serde_json::json;

use crate::ask::{Where, block_on};
use crate::failure::Failure;
use crate::print;
use crate::reduction_words::{self, ratio, share};
use crate::table::{Align, Paint, Table, Tone, bytes, clean, span};

/// Flows shown; they are the busiest.
const FLOWS_SHOWN: usize = 20;

/// `farhaul top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Ends with Ctrl-C. Rates, ratios and hit rates are of what passed since the last picture; rates are bits per second."
)]
pub(crate) struct TopCommand {
    #[command(flatten)]
    gateway: Where,
    /// Seconds between two pictures.
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// End after this many pictures.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print each picture as a line of JSON.
    #[arg(long)]
    json: bool,
}

impl TopCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let client = self.gateway.client()?;
        block_on(self.watch(client))?
    }

    async fn watch(&self, client: Client) -> Result<(), Failure> {
        let paint = Paint::stdout();
        // A file or pipe gets one picture after the other.
        let clear = if stdout().is_terminal() {
            "\x1b[H\x1b[2J"
        } else {
            ""
        };
        let mut before = Sample::take(&client).await.map_err(Failure::failed)?;
        let mut shown = 0;
        while self.count.is_none_or(|count| shown < count) {
            tokio::time::sleep(Duration::from_secs(self.interval)).await;
            let now = Sample::take(&client).await.map_err(Failure::failed)?;
            let rates = now.since(&before);
            let picture = if self.json {
                format!("{}\n", now.document(&rates))
            } else {
                format!("{clear}{}", now.page(&rates, paint))
            };
            if !print::is_read(&picture)? {
                break;
            }
            before = now;
            shown += 1;
        }
        Ok(())
    }
}

/// What the gateway says at one moment.
struct Sample {
    at: Instant,
    status: Status,
    flows: Flows,
}

/// Bits per second, sent and received.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Rate {
    sent: f64,
    received: f64,
}

/// Rates since the sample before; what was not there counts from zero.
#[derive(Debug, Default)]
struct Rates {
    peers: HashMap<String, (Rate, Rate)>,
    flows: HashMap<u64, Rate>,
    /// What reduction did since then, by peer.
    reduction: HashMap<String, ReductionStatus>,
    /// Since then.
    seconds: f64,
}

impl Rates {
    /// Bits per second, of bytes since the sample before.
    fn of(&self, count: u64) -> f64 {
        count as f64 * 8.0 / self.seconds.max(1e-3)
    }

    /// For programs: `null` is a ratio of nothing.
    fn reduction(&self, since: &ReductionStatus) -> serde_json::Value {
        let of_compared = |part| share(part, since.compared_bytes);
        json!({
            "in_bit_per_s": self.of(since.in_bytes),
            "out_bit_per_s": self.of(since.out_bytes),
            "ratio": ratio(since.in_bytes, since.out_bytes),
            "hit_ratio": of_compared(since.known_bytes),
            "known_memory_ratio": of_compared(since.known_memory_bytes),
            "known_disk_ratio": of_compared(since.known_disk_bytes),
            "compression_ratio": ratio(since.new_bytes, since.packed_bytes),
            "level": since.level,
            "restored_bit_per_s": self.of(since.restored_bytes),
            "received_bit_per_s": self.of(since.received_bytes),
            "store_bytes": since.store_bytes,
            "index_bytes": since.index_bytes,
        })
    }
}

impl Sample {
    async fn take(client: &Client) -> Result<Sample, ClientError> {
        let status = client.status().await?;
        let flows = client.flows().await?;
        Ok(Sample {
            at: Instant::now(),
            status,
            flows,
        })
    }

    fn since(&self, before: &Sample) -> Rates {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let rate = |now: (u64, u64), then: (u64, u64)| Rate {
            sent: now.0.saturating_sub(then.0) as f64 * 8.0 / seconds,
            received: now.1.saturating_sub(then.1) as f64 * 8.0 / seconds,
        };
        let payload = |peer: &PeerStatus| (peer.payload_sent_bytes, peer.payload_received_bytes);
        let wire = |peer: &PeerStatus| (peer.wire_sent_bytes, peer.wire_received_bytes);
        let moved = |flow: &FlowStatus| (flow.sent_bytes, flow.received_bytes);
        let peers = self.status.peers.iter().map(|peer| {
            let then = before
                .status
                .peers
                .iter()
                .find(|then| then.name == peer.name);
            let rates = (
                rate(payload(peer), then.map(payload).unwrap_or_default()),
                rate(wire(peer), then.map(wire).unwrap_or_default()),
            );
            (peer.name.clone(), rates)
        });
        let known: HashMap<u64, _> = before
            .flows
            .flows
            .iter()
            .map(|flow| (flow.id, moved(flow)))
            .collect();
        let flows = self.flows.flows.iter().map(|flow| {
            (
                flow.id,
                rate(
                    moved(flow),
                    known.get(&flow.id).copied().unwrap_or_default(),
                ),
            )
        });
        Rates {
            peers: peers.collect(),
            flows: flows.collect(),
            reduction: self.reduction_since(before),
            seconds,
        }
    }

    fn reduction_since(&self, before: &Sample) -> HashMap<String, ReductionStatus> {
        let known = before.status.peers.iter();
        let known: HashMap<&str, _> = known
            .filter_map(|peer| Some((peer.name.as_str(), peer.reduction.as_ref()?)))
            .collect();
        let peers = self.status.peers.iter();
        let since = peers.filter_map(|peer| {
            let then = known.get(peer.name.as_str()).copied();
            let since = reduction_words::since(peer.reduction.as_ref()?, then);
            Some((peer.name.clone(), since))
        });
        since.collect()
    }

    /// Flows by rate, the busiest first; equal ones by number.
    fn busiest(&self, rates: &Rates) -> Vec<(&FlowStatus, Rate)> {
        let mut flows: Vec<_> = self
            .flows
            .flows
            .iter()
            .map(|flow| (flow, rates.flows.get(&flow.id).copied().unwrap_or_default()))
            .collect();
        flows.sort_by(|(a, rate_a), (b, rate_b)| {
            let (a_sum, b_sum) = (rate_a.sent + rate_a.received, rate_b.sent + rate_b.received);
            b_sum.total_cmp(&a_sum).then(a.id.cmp(&b.id))
        });
        flows.truncate(FLOWS_SHOWN);
        flows
    }

    fn page(&self, rates: &Rates, paint: Paint) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}  up {}, {} flows, {} optimised",
            paint.tone(Tone::Bold, &self.status.site),
            span(self.status.uptime_s),
            self.flows.flows.len(),
            self.status.flows.optimised
        );
        text.push('\n');
        text.push_str(&self.peer_table(rates).render(paint, ""));
        let peers = self.status.peers.iter();
        let rows = peers.filter_map(|peer| Some((peer, rates.reduction.get(&peer.name)?.clone())));
        if let Some(table) = reduction_words::table(rows, |count| bits(rates.of(count))) {
            let _ = write!(text, "\n{}", table.render(paint, ""));
        }
        text.push('\n');
        text.push_str(&self.flow_table(rates).render(paint, ""));
        if let Some(next) = &self.status.next {
            let _ = writeln!(
                text,
                "\n{} {}",
                paint.tone(Tone::Notice, "next:"),
                clean(next)
            );
        }
        text
    }

    fn peer_table(&self, rates: &Rates) -> Table {
        let mut table = Table::new(&[
            ("peer", Align::Left),
            ("round trip", Align::Right),
            ("flows", Align::Right),
            ("sending", Align::Right),
            ("on the wire", Align::Right),
            ("receiving", Align::Right),
            ("on the wire", Align::Right),
        ]);
        for peer in &self.status.peers {
            let (payload, wire) = rates.peers.get(&peer.name).copied().unwrap_or_default();
            let rtt = peer
                .rtt_ms
                .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
            let cells = [
                peer.name.clone(),
                rtt,
                peer.flows.to_string(),
                bits(payload.sent),
                bits(wire.sent),
                bits(payload.received),
                bits(wire.received),
            ];
            table.row(cells.map(|cell| (Tone::Plain, cell)).into());
        }
        table
    }

    fn flow_table(&self, rates: &Rates) -> Table {
        let mut table = Table::new(&[
            ("flow", Align::Right),
            ("peer", Align::Left),
            ("client", Align::Left),
            ("destination", Align::Left),
            ("rule", Align::Left),
            ("sending", Align::Right),
            ("receiving", Align::Right),
            ("total", Align::Right),
        ]);
        for (flow, rate) in self.busiest(rates) {
            let cells = [
                flow.id.to_string(),
                flow.peer.clone(),
                flow.client.clone(),
                flow.destination.clone(),
                flow.rule.clone(),
                bits(rate.sent),
                bits(rate.received),
                bytes(flow.sent_bytes.saturating_add(flow.received_bytes)),
            ];
            table.row(cells.map(|cell| (Tone::Plain, cell)).into());
        }
        table
    }

    fn document(&self, rates: &Rates) -> serde_json::Value {
        let peers: Vec<_> = self
            .status
            .peers
            .iter()
            .map(|peer| {
                let (payload, wire) = rates.peers.get(&peer.name).copied().unwrap_or_default();
                json!({
                    "name": peer.name,
                    "payload_sent_bit_per_s": payload.sent,
                    "payload_received_bit_per_s": payload.received,
                    "wire_sent_bit_per_s": wire.sent,
                    "wire_received_bit_per_s": wire.received,
                    "reduction": rates.reduction.get(&peer.name).map(|since| rates.reduction(since)),
                })
            })
            .collect();
        let flows: Vec<_> = self
            .busiest(rates)
            .into_iter()
            .map(|(flow, rate)| {
                json!({
                    "id": flow.id,
                    "client": flow.client,
                    "destination": flow.destination,
                    "sent_bit_per_s": rate.sent,
                    "received_bit_per_s": rate.received,
                })
            })
            .collect();
        json!({ "site": self.status.site, "peers": peers, "flows": flows })
    }
}

/// A rate in the largest decimal unit that leaves at least one.
fn bits(per_s: f64) -> String {
    const UNITS: [&str; 5] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let mut value = per_s;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} bit/s")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_gateway::admin::status::{FlowSide, FlowState};
    use farhaul_gateway::event::Reason;

    fn flow(id: u64, received_bytes: u64) -> FlowStatus {
        FlowStatus {
            id,
            peer: "hq".into(),
            client: "10.1.0.1:5".into(),
            destination: "10.2.0.1:80".into(),
            side: FlowSide::Near,
            rule: "default".into(),
            class: "auto".into(),
            class_now: "bulk".into(),
            state: FlowState::Optimised,
            reason: Reason::Optimised,
            protocol: String::new(),
            opaque_reason: String::new(),
            age_s: 1,
            idle_s: 0,
            sent_bytes: 0,
            received_bytes,
        }
    }

    fn sample(at: Instant, sent: u64, flows: Vec<FlowStatus>) -> Sample {
        let peer = PeerStatus {
            name: "hq".into(),
            payload_sent_bytes: sent,
            ..PeerStatus::default()
        };
        let status = Status {
            peers: vec![peer],
            ..Status::default()
        };
        Sample {
            at,
            status,
            flows: Flows {
                flows,
                ..Flows::default()
            },
        }
    }

    #[test]
    fn rates_are_bits_per_second_and_the_busiest_come_first() {
        let start = Instant::now();
        let before = sample(start, 1_000, vec![flow(1, 0), flow(2, 5_000)]);
        let later = start + Duration::from_secs(2);
        // Flow 3 is new; the peer's counter began anew.
        let now = sample(
            later,
            500,
            vec![flow(1, 1_000_000), flow(2, 5_000), flow(3, 2_000_000)],
        );
        let rates = now.since(&before);
        assert_eq!(rates.flows[&1].received, 4_000_000.0);
        assert_eq!(rates.peers["hq"].0.sent, 0.0);
        let order: Vec<_> = now
            .busiest(&rates)
            .iter()
            .map(|(flow, _)| flow.id)
            .collect();
        assert_eq!(order, [3, 1, 2]);
        assert!(now.page(&rates, Paint::plain()).contains("8.0 Mbit/s"));
    }

    #[test]
    fn reduction_is_of_the_time_since_and_its_sizes_of_now() {
        let start = Instant::now();
        let mut before = sample(start, 0, Vec::new());
        let mut now = sample(start + Duration::from_secs(2), 0, Vec::new());
        now.status.peers = vec![reduction_words::tests::peer()];
        before.status.peers = now.status.peers.clone();
        if let Some(then) = &mut before.status.peers[0].reduction {
            then.in_bytes -= 1_000_000;
            then.out_bytes -= 100_000;
            then.known_bytes -= 400_000;
            then.compared_bytes -= 800_000;
        }
        let rates = now.since(&before);
        let peer = &now.document(&rates)["peers"][0]["reduction"];
        assert_eq!(peer["in_bit_per_s"], 4_000_000.0);
        assert_eq!(
            (&peer["ratio"], &peer["hit_ratio"]),
            (&json!(10.0), &json!(0.5))
        );
        assert_eq!(
            (&peer["level"], &peer["index_bytes"]),
            (&json!(5), &json!(57 << 20))
        );
        assert!(peer["compression_ratio"].is_null());
        let shown = now.page(&rates, Paint::plain());
        let row = shown.lines().find(|line| line.starts_with("to hq"));
        let cells: Vec<&str> = row
            .unwrap()
            .split("  ")
            .filter(|cell| !cell.is_empty())
            .collect();
        let expected = ["to hq", "4.0 Mbit/s", "400.0 kbit/s", "10.0 : 1", "50.0 %"];
        assert_eq!(
            cells
                .iter()
                .map(|cell| cell.trim())
                .take(5)
                .collect::<Vec<_>>(),
            expected
        );
        assert!(row.unwrap().ends_with("57.0 MiB"), "{shown}");
    }

    #[test]
    fn bits_read_as_people_say_them() {
        assert_eq!(bits(999.0), "999 bit/s");
        assert_eq!(bits(51_840_000.0), "51.8 Mbit/s");
    }
}
