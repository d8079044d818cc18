//! Classes on a full link: what each gets when all want all of it, and what a
//! keystroke of class `auto` waits for beside a copy of class `auto`.

use std::sync::Arc;
use std::time::Duration;

use farhaul_tunnel::Class;
use tokio::time::sleep;

use super::cell::{Cell, Knowledge};
use super::clock;
use super::echo::{self, Echoes};
use super::figure::Figure;
use super::network::{Network, Way};
use super::plan::{Job, Outcome};
use super::services::Received;
use super::trace::Trace;
use super::tunnel::{Pair, Tunnel};

const MEASURED_S: u64 = 30;

/// Links on which classes are held against their promises.
const LINKS: [(&str, u64, &str); 4] = [
    ("1.544", 30, "0"),
    ("51.84", 30, "0"),
    ("51.84", 100, "1"),
    ("155.52", 30, "1"),
];

/// Who wants all of the link, and the part of the payload it is promised.
const FLOODS: [(&str, Class, f64); 3] = [
    ("interactive_share", Class::Interactive, 0.85),
    ("bulk_share", Class::Bulk, 0.09),
    ("background_share", Class::Background, 0.015),
];

/// Every link twice: flooded, and with `auto` only.
pub fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (rate_mbit, one_way_ms, loss_percent) in LINKS {
        let cell = Cell::of_matrix(rate_mbit, one_way_ms, loss_percent);
        jobs.push(job(&cell, "floods", floods));
        jobs.push(job(&cell, "auto", auto));
    }
    jobs
}

type Shown = Result<(Vec<Figure>, Trace), String>;

fn job(cell: &Cell, work: &'static str, run: fn(&Cell, u64) -> Shown) -> Job {
    let cell = cell.clone();
    let cost = cell.rate_bit_per_s() * window_s(&cell).1 as f64;
    let told = Knowledge::Told.name();
    Job::new(cell.name.clone(), told, work, cost, move |seed| {
        let (figures, trace) = run(&cell, seed)?;
        Ok(Outcome { figures, trace })
    })
}

fn window_s(cell: &Cell) -> (u64, u64) {
    let from_s = cell.warm_up_s();
    (from_s, from_s + MEASURED_S)
}

/// Runs `load` in a new tunnel that is told of its link, to the window's end.
fn watched<T, L>(
    cell: &Cell,
    seed: u64,
    load: impl FnOnce(Arc<Network>, Tunnel) -> L + Send + 'static,
) -> Result<(T, Trace), String>
where
    T: Send + 'static,
    L: Future<Output = Result<T, String>> + Send + 'static,
{
    let (told, window_s) = (Knowledge::Told.of(cell), window_s(cell));
    let limit = Duration::from_secs(window_s.1 + 60);
    clock::run(cell.link.clone(), seed, limit, move |network| async move {
        let tunnel = Pair::new(&network, 1, 0, told, seed)?.dial().await?;
        let trace = Trace::record(&network, &tunnel, window_s.1);
        let (seen, trace) = tokio::join!(load(network.clone(), tunnel.clone()), trace);
        tunnel.standing()?;
        Ok((seen?, trace))
    })
}

/// A flow of each class below control that always has something to send.
fn floods(cell: &Cell, seed: u64) -> Shown {
    let (from_s, to_s) = window_s(cell);
    let load = move |_: Arc<Network>, tunnel: Tunnel| async move {
        let flood = |(port, (_, class, _))| tunnel.bulk_as(Way::Forward, port, class, None);
        let flows: Vec<Arc<Received>> = (1..).zip(FLOODS).map(flood).collect::<Result<_, _>>()?;
        sleep(Duration::from_secs(from_s)).await;
        let before: Vec<u64> = flows.iter().map(|flow| flow.bytes()).collect();
        sleep(Duration::from_secs(to_s - from_s)).await;
        let gained = flows.iter().zip(before);
        Ok(gained
            .map(|(flow, before)| (flow.bytes() - before) as f64)
            .collect())
    };
    let (bytes, trace): (Vec<f64>, Trace) = watched(cell, seed, load)?;
    let all: f64 = bytes.iter().sum();
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let goodput_mbit = all * 8e-6 / (to_s - from_s) as f64;
    let mut figures = vec![
        Figure::new("goodput", "Mbit/s", goodput_mbit)
            .limit(limit_mbit)
            .at_least(0.95 * limit_mbit),
    ];
    for ((metric, _, promised), bytes) in FLOODS.into_iter().zip(bytes) {
        figures.push(Figure::new(metric, "", bytes / all).at_least(promised));
    }
    Ok((figures, trace))
}

/// A copy and a dialogue of which nobody has said what they are.
fn auto(cell: &Cell, seed: u64) -> Shown {
    let (from_s, to_s) = window_s(cell);
    let load = move |network: Arc<Network>, tunnel: Tunnel| async move {
        tunnel.bulk_as(Way::Forward, 1, Class::Auto, None)?;
        let every = Duration::from_millis(100);
        let echoes = Echoes::start_as(&network, &tunnel, 2, Class::Auto, every, seed)?;
        let start_ns = network.now_ns();
        sleep(Duration::from_secs(to_s)).await;
        Ok(echoes.since(start_ns + from_s * 1_000_000_000, network.now_ns()))
    };
    let (echoes_ms, trace): (Vec<f64>, Trace) = watched(cell, seed, load)?;
    let base_ms = echo::base_ms(cell);
    let is_slow = cell.rate_bit_per_s() < 10e6;
    let grace_ms = 15.0 + f64::from(u8::from(is_slow)) * cell.sending_ms(3 * 1514);
    let median_ms = echo::percentile(&echoes_ms, 50);
    let echo = Figure::new("echo_p95", "ms", echo::percentile(&echoes_ms, 95))
        .limit(base_ms)
        .at_most(base_ms + grace_ms)
        .detail("measured", format!("median {median_ms:.1} ms"));
    Ok((vec![echo], trace))
}
