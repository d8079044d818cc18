//! Several flows in a tunnel, and several tunnels on a link.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::session::FlowHandle;
use farhaul_tunnel::{Class, ResetCode};
use tokio::time::sleep;

use super::cell::{Cell, Knowledge};
use super::clock;
use super::cubic;
use super::echo::{Echoes, percentile};
use super::figure::Figure;
use super::network::{Datagram, Network, Way};
use super::random::Random;
use super::services::{self, DISCARD, Received};
use super::trace::Trace;
use super::tunnel::{Pair, Tunnel};

/// Jain's index of fairness: 1 where all get the same, 1/n where one gets all.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// What several flows received between two seconds, bit/s each.
async fn received(flows: &[Arc<Received>], from_s: u64, to_s: u64) -> Vec<f64> {
    sleep(Duration::from_secs(from_s)).await;
    let before: Vec<u64> = flows.iter().map(|flow| flow.bytes()).collect();
    sleep(Duration::from_secs(to_s - from_s)).await;
    let gained = flows
        .iter()
        .zip(before)
        .map(|(flow, before)| flow.bytes() - before);
    gained
        .map(|bytes| bytes as f64 * 8.0 / (to_s - from_s) as f64)
        .collect()
}

/// Rates of several flows, and how it went.
type Seen = (Vec<f64>, Trace);

async fn watch(
    network: &Arc<Network>,
    tunnel: &Tunnel,
    flows: &[Arc<Received>],
    (from_s, to_s): (u64, u64),
) -> Result<Seen, String> {
    let trace = Trace::record(network, tunnel, to_s);
    let (rates, trace) = tokio::join!(received(flows, from_s, to_s), trace);
    tunnel.standing()?;
    Ok((rates, trace))
}

fn window_s(cell: &Cell) -> (u64, u64) {
    let from_s = cell.warm_up_s();
    (from_s, from_s + cell.measured_s())
}

fn limit(to_s: u64) -> Duration {
    Duration::from_secs(to_s + 60)
}

/// Bulk in both directions at once.
pub fn both_ways(cell: &Cell, knowledge: Knowledge, seed: u64) -> Result<Seen, String> {
    let (told, window_s) = (knowledge.of(cell), window_s(cell));
    let limit = limit(window_s.1);
    clock::run(cell.link.clone(), seed, limit, |network| async move {
        let tunnel = Pair::new(&network, 1, 0, told, seed)?.dial().await?;
        let there = tunnel.bulk(Way::Forward, 1, None)?;
        let back = tunnel.bulk(Way::Backward, 1, None)?;
        watch(&network, &tunnel, &[there, back], window_s).await
    })
}

/// Both directions against what each link carries; the acknowledgements of
/// one ride beside the data of the other.
pub fn both_ways_figures(cell: &Cell, (rates, _): &Seen) -> Vec<Figure> {
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let of = |metric, rate: f64| {
        Figure::new(metric, "Mbit/s", rate / 1e6)
            .limit(limit_mbit)
            .at_least(0.90 * limit_mbit)
    };
    vec![of("goodput_there", rates[0]), of("goodput_back", rates[1])]
}

/// `count` bulk flows at once.
pub fn many_flows(
    cell: &Cell,
    count: u16,
    knowledge: Knowledge,
    seed: u64,
) -> Result<Seen, String> {
    let (told, window_s) = (knowledge.of(cell), window_s(cell));
    let limit = limit(window_s.1);
    clock::run(cell.link.clone(), seed, limit, |network| async move {
        let tunnel = Pair::new(&network, 1, 0, told, seed)?.dial().await?;
        let bulk = |port| tunnel.bulk(Way::Forward, port, None);
        let flows: Result<Vec<_>, _> = (1..=count).map(bulk).collect();
        watch(&network, &tunnel, &flows?, window_s).await
    })
}

/// The flows together, and how evenly.
pub fn many_flows_figures(cell: &Cell, knowledge: Knowledge, (rates, _): &Seen) -> Vec<Figure> {
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let share = match knowledge {
        Knowledge::Untold => 0.95,
        Knowledge::Told => 0.97,
    };
    vec![
        Figure::new("goodput", "Mbit/s", rates.iter().sum::<f64>() / 1e6)
            .limit(limit_mbit)
            .at_least(share * limit_mbit),
        Figure::new("jain", "", jain(rates)).at_least(0.95),
    ]
}

/// Five bulk flows; the receiver of the first, where `stops`, reads nothing
/// from the end of the warm-up on. Rates are of the others.
fn four_others(cell: &Cell, stops: bool, seed: u64) -> Result<Seen, String> {
    let window_s = window_s(cell);
    let limit = limit(window_s.1);
    clock::run(cell.link.clone(), seed, limit, |network| async move {
        let tunnel = Pair::new(&network, 1, 0, None, seed)?.dial().await?;
        let first = tunnel.bulk(Way::Forward, 1, None)?;
        let bulk = |port| tunnel.bulk(Way::Forward, port, None);
        let others: Result<Vec<_>, _> = (2..=5).map(bulk).collect();
        let stop = async {
            sleep(Duration::from_secs(window_s.0)).await;
            if stops {
                first.stop_reading();
            }
        };
        let others = others?;
        let (seen, ()) = tokio::join!(watch(&network, &tunnel, &others, window_s), stop);
        seen
    })
}

/// A flow whose receiver stops reading: the others must not lose by it.
pub fn stopped_reader(cell: &Cell, seed: u64) -> Result<(Vec<Figure>, Trace), String> {
    let (all_read, _) = four_others(cell, false, seed)?;
    let (one_stops, trace) = four_others(cell, true, seed)?;
    let ratios = one_stops
        .iter()
        .zip(&all_read)
        .map(|(now, then)| now / then);
    let worst = ratios.fold(f64::INFINITY, f64::min);
    let figure = Figure::new("others_rate", "", worst)
        .limit(1.25)
        .at_least(0.98)
        .detail(
            "measured",
            "worst of four flows, ratio to the run in which all read",
        );
    Ok((vec![figure], trace))
}

/// Messages that fill several packets, of the flow that suffers.
static MESSAGE: [u8; 4800] = [0; 4800];
const MESSAGE_EVERY: Duration = Duration::from_millis(50);
/// Datagrams longer than this carry nothing but such messages.
const MESSAGE_DATAGRAM_BYTES: usize = 600;
const TALKERS: u16 = 10;
const TALK_S: u64 = 120;

/// Ten flows with an echo now and then beside one with long messages, whose
/// packets, where `loses`, are lost by 10 %. Echoes of the ten, in ms.
fn ten_beside(cell: &Cell, loses: bool, seed: u64) -> Result<(Vec<f64>, Trace), String> {
    clock::run(
        cell.link.clone(),
        seed,
        limit(TALK_S),
        |network| async move {
            let tunnel = Pair::new(&network, 1, 0, None, seed)?.dial().await?;
            if loses {
                let mut random = Random::new(seed);
                let rule = move |datagram: &Datagram| {
                    datagram.contents.len() > MESSAGE_DATAGRAM_BYTES && random.fraction() < 0.1
                };
                network.lose(Way::Forward, Box::new(rule));
            }
            let request = services::request(DISCARD, 1, Class::Interactive);
            let long = tunnel.near.session.open(request);
            tokio::spawn(say(long.map_err(|error| error.to_string())?));
            let every = Duration::from_millis(500);
            let talk = |port| Echoes::start(&network, &tunnel, port, every, seed);
            let talkers: Result<Vec<_>, _> = (100..100 + TALKERS).map(talk).collect();
            let trace = Trace::record(&network, &tunnel, TALK_S).await;
            tunnel.standing()?;
            let now_ns = network.now_ns();
            let echoes = talkers?;
            let all = echoes.iter().flat_map(|one| one.since(0, now_ns));
            Ok((all.collect(), trace))
        },
    )
}

async fn say(flow: FlowHandle) -> Result<(), ResetCode> {
    loop {
        sleep(MESSAGE_EVERY).await;
        flow.write(Bytes::from_static(&MESSAGE)).await?;
    }
}

/// Loss in one flow's packets: the delay of others must not grow by it.
pub fn loss_elsewhere(cell: &Cell, seed: u64) -> Result<(Vec<Figure>, Trace), String> {
    let (without, _) = ten_beside(cell, false, seed)?;
    let (with, trace) = ten_beside(cell, true, seed)?;
    let grown_ms = percentile(&with, 99) - percentile(&without, 99);
    let packets_ms = cell.sending_ms(2 * 1514);
    let figure = Figure::new("others_delay_p99", "ms", grown_ms)
        .limit(packets_ms)
        .at_most(packets_ms)
        .detail(
            "measured",
            "growth against the run without loss, echo of ten flows",
        );
    Ok((vec![figure], trace))
}

/// The later of two tunnels starts so much after the first.
const LATER_S: u64 = 10;

/// Two pairs of gateways on one link, the second `access` further away and
/// later; their rates after a minute together.
pub fn two_tunnels(cell: &Cell, access: Duration, seed: u64) -> Result<Seen, String> {
    let access_ns = u64::try_from(access.as_nanos()).unwrap_or(u64::MAX);
    let window_s = (LATER_S + 60, LATER_S + 100);
    let limit = limit(window_s.1);
    clock::run(cell.link.clone(), seed, limit, |network| async move {
        let first = Pair::new(&network, 1, 0, None, seed)?.dial().await?;
        let second = Pair::new(&network, 2, access_ns, None, seed)?
            .dial()
            .await?;
        let one = first.bulk(Way::Forward, 1, None)?;
        let other = second.far.services.received(1);
        let start = second.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(LATER_S)).await;
            start.bulk(Way::Forward, 1, None).map(drop)
        });
        let seen = watch(&network, &first, &[one, other], window_s).await;
        second.standing()?;
        seen
    })
}

/// Two tunnels alike.
pub fn equal_figures(cell: &Cell, (rates, _): &Seen) -> Vec<Figure> {
    vec![
        Figure::new("jain", "", jain(rates)).at_least(0.95),
        together(cell, rates),
    ]
}

/// Two tunnels, the second with the longer round trip.
pub fn unequal_figures(cell: &Cell, (rates, _): &Seen) -> Vec<Figure> {
    let share = rates[1] / rates.iter().sum::<f64>();
    vec![
        Figure::new("slower_share", "", share).at_least(0.30),
        together(cell, rates),
    ]
}

fn together(cell: &Cell, rates: &[f64]) -> Figure {
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    Figure::new("goodput", "Mbit/s", rates.iter().sum::<f64>() / 1e6).limit(limit_mbit)
}

/// Who of two is there first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// The tunnel.
    Tunnel,
    /// The TCP flow.
    Tcp,
}

/// A tunnel and a TCP flow with CUBIC on one link; their rates after the
/// first minute together, the tunnel's first.
pub fn beside_cubic(cell: &Cell, first: First, seed: u64) -> Result<Seen, String> {
    let window_s = (LATER_S + 60, LATER_S + 180);
    let limit = limit(window_s.1);
    clock::run(cell.link.clone(), seed, limit, |network| async move {
        let tunnel = Pair::new(&network, 1, 0, None, seed)?.dial().await?;
        let later = sleep(Duration::from_secs(LATER_S));
        let arrived = match first {
            First::Tunnel => {
                tunnel.bulk(Way::Forward, 1, None)?;
                later.await;
                cubic::start(&network)
            }
            First::Tcp => {
                let arrived = cubic::start(&network);
                later.await;
                tunnel.bulk(Way::Forward, 1, None)?;
                arrived
            }
        };
        let (from_s, to_s) = window_s;
        let at = |seconds| sleep(Duration::from_secs(seconds));
        let tcp = async {
            at(from_s).await;
            let before = arrived.bytes();
            at(to_s - from_s).await;
            (arrived.bytes() - before) as f64 * 8.0 / (to_s - from_s) as f64
        };
        let (tcp, trace) = tokio::join!(tcp, Trace::record(&network, &tunnel, to_s));
        tunnel.standing()?;
        Ok((vec![trace.goodput_bit_per_s(from_s, to_s), tcp], trace))
    })
}

/// Neither may starve the other.
pub fn cubic_figures(cell: &Cell, (rates, _): &Seen) -> Vec<Figure> {
    let both: f64 = rates.iter().sum();
    vec![
        Figure::new("tunnel_share", "", rates[0] / both).at_least(0.35),
        Figure::new("tcp_share", "", rates[1] / both).at_least(0.35),
        together(cell, rates),
    ]
}
