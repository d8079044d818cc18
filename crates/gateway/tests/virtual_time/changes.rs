//! A link that becomes another one while bulk runs.

use std::sync::Arc;
use std::time::Duration;

use farhaul_link::LinkProfile;
use tokio::time::sleep;

use super::cell::{Cell, Knowledge};
use super::clock;
use super::figure::Figure;
use super::network::{Network, Way};
use super::trace::Trace;
use super::tunnel::Pair;

/// How long each link lasts.
const PHASE_S: u64 = 30;
/// Part of what the link then carries that counts as recovered.
const RECOVERED: f64 = 0.85;

/// Figures of the phases after the first: metrics have fixed names.
const METRICS: [(&str, &str, &str); 3] = [
    ("goodput_1", "recovery_1", "queue_mean_1"),
    ("goodput_2", "recovery_2", "queue_mean_2"),
    ("goodput_3", "recovery_3", "queue_mean_3"),
];

/// Runs bulk over each link for half a minute, one after the other; there only, or back as well.
pub fn run(links: &[Cell], ways: &[Way], knowledge: Knowledge, seed: u64) -> Result<Trace, String> {
    let total_s = PHASE_S * links.len() as u64;
    let later: Vec<LinkProfile> = links[1..].iter().map(|cell| cell.link.clone()).collect();
    let limit = Duration::from_secs(total_s + 60);
    let told = knowledge.of(&links[0]);
    let ways = ways.to_vec();
    clock::run(links[0].link.clone(), seed, limit, |network| async move {
        let tunnel = Pair::new(&network, 1, 0, told, seed)?.dial().await?;
        for (way, port) in ways.iter().zip(1..) {
            tunnel.bulk(*way, port, None)?;
        }
        tokio::spawn(change(network.clone(), later));
        let trace = Trace::record(&network, &tunnel, total_s).await;
        tunnel.standing()?;
        Ok(trace)
    })
}

async fn change(network: Arc<Network>, links: Vec<LinkProfile>) {
    for link in links {
        sleep(Duration::from_secs(PHASE_S)).await;
        network.change(&link);
    }
}

/// Each link after the first: how soon it is filled again, and how well then.
pub fn figures(links: &[Cell], trace: &Trace) -> Vec<Figure> {
    let mut figures = Vec::new();
    let phases = links.iter().enumerate().skip(1);
    for ((nth, cell), (goodput, recovery, queue)) in phases.zip(METRICS) {
        let from_s = nth as u64 * PHASE_S;
        let to_s = from_s + PHASE_S;
        let settled_s = (cell.rtt().as_secs_f64() * 5.0).max(3.0).ceil();
        let limit = cell.reachable_bit_per_s();
        let is_filled =
            |second: &u64| trace.goodput_bit_per_s(*second, second + 1) >= RECOVERED * limit;
        let recovered_s = (from_s..to_s)
            .find(is_filled)
            .map_or(f64::INFINITY, |second| (second + 1 - from_s) as f64);
        let after_s = from_s + settled_s as u64;
        let value = trace.goodput_bit_per_s(after_s, to_s) / 1e6;
        figures.push(
            Figure::new(goodput, "Mbit/s", value)
                .limit(limit / 1e6)
                .at_least(RECOVERED * limit / 1e6)
                .detail("measured", format!("seconds {after_s} to {to_s}"))
                .detail("link", cell.words.as_str()),
        );
        figures.push(Figure::new(recovery, "s", recovered_s).at_most(settled_s));
        figures.push(Figure::new(queue, "ms", trace.queue_mean_ms(after_s, to_s)));
    }
    figures
}
