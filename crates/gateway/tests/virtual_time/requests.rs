//! Requests beside bulk that fills the link, with error correction and
//! without: what repairs are for, and what they cost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::quic::fec::{CorrectionState, Figures};
use farhaul_gateway::session::Session;
use farhaul_tunnel::{Class, FEATURE_FEC};
use tokio::time::{Instant, sleep, sleep_until};

use super::cell::{Cell, Knowledge};
use super::clock;
use super::figure::Figure;
use super::network::{Network, Way};
use super::plan::{Job, Outcome};
use super::random::Random;
use super::services::{self, ANSWER};
use super::trace::Trace;
use super::tunnel::Pair;

/// Sizes of answers, asked for in turn.
pub const ANSWERS_BYTES: [usize; 2] = [10_000, 64 << 10];
/// Requests per second, both sizes together: 2.5 % of the link.
const REQUESTS_PER_S: f64 = 4.0;
const BULK_PORT: u16 = 40_000;
/// Not measured at the start.
const WARM_UP_S: u64 = 15;
const MEASURED_S: u64 = 300;

/// What one run has shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    /// The whole run.
    pub trace: Trace,
    /// How long the answers of each size took, in order of size of the time.
    pub took_ms: [Vec<f64>; 2],
    /// The sender's error correction at the end.
    pub sender: Option<Figures>,
    /// The receiver's.
    pub receiver: Option<Figures>,
}

impl Requests {
    /// The time that this share of answers was not slower than.
    pub fn quantile_ms(&self, size: usize, share: f64) -> f64 {
        let times = &self.took_ms[size];
        let rank = (times.len() as f64 * share).ceil() as usize;
        times
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// Repairs were found too dear, which they may be where losses come in bursts.
    fn is_kept_off(&self) -> bool {
        let state = self.sender.map(|sender| sender.state);
        state == Some(CorrectionState::TooDear)
    }

    /// What a table says of that: 1 or 0.
    fn too_dear(&self) -> Figure {
        let is_kept_off = f64::from(u8::from(self.is_kept_off()));
        Figure::new("too_dear", "", is_kept_off).detail("correction", words(self))
    }

    fn goodput_bit_per_s(&self) -> f64 {
        self.trace
            .goodput_bit_per_s(WARM_UP_S, WARM_UP_S + MEASURED_S)
    }
}

/// Bulk and requests on one link.
pub fn run(
    cell: &Cell,
    knowledge: Knowledge,
    features: u64,
    seed: u64,
) -> Result<Requests, String> {
    let told = knowledge.of(cell);
    let limit = Duration::from_secs(WARM_UP_S + MEASURED_S + 60);
    clock::run(cell.link.clone(), seed, limit, |network| {
        requests(network, features, told, seed)
    })
}

/// The near side sends bulk; the far side asks it for answers, which go the
/// same way.
async fn requests(
    network: Arc<Network>,
    features: u64,
    told: Option<u64>,
    seed: u64,
) -> Result<Requests, String> {
    let pair = Pair::offering([features; 2], &network, 1, 0, told, seed)?;
    let tunnel = pair.dial().await?;
    tunnel.bulk(Way::Forward, BULK_PORT, None)?;
    let took_ms = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    tokio::spawn(ask(tunnel.far.session.clone(), took_ms.clone(), seed));
    let trace = Trace::record(&network, &tunnel, WARM_UP_S + MEASURED_S).await;
    if let Some(end) = tunnel.near.session.over() {
        return Err(end.to_string());
    }
    let mut took_ms = took_ms.lock().unwrap().clone();
    took_ms
        .iter_mut()
        .for_each(|times| times.sort_by(f64::total_cmp));
    Ok(Requests {
        trace,
        took_ms,
        sender: tunnel.near.session.stats().correction,
        receiver: tunnel.far.session.stats().correction,
    })
}

async fn ask(session: Arc<Session>, took_ms: Arc<Mutex<[Vec<f64>; 2]>>, seed: u64) {
    let start = Instant::now();
    sleep_until(start + Duration::from_secs(WARM_UP_S)).await;
    let mut random = Random::new(seed);
    for number in 0.. {
        let uneven = 0.5 + random.fraction();
        sleep(Duration::from_secs_f64(uneven / REQUESTS_PER_S)).await;
        let size = number % ANSWERS_BYTES.len();
        tokio::spawn(request(session.clone(), number, size, took_ms.clone()));
    }
}

async fn request(
    session: Arc<Session>,
    number: usize,
    size: usize,
    took_ms: Arc<Mutex<[Vec<f64>; 2]>>,
) {
    let start = Instant::now();
    let port = (number % 30_000) as u16;
    let Ok(flow) = session.open(services::request(ANSWER, port, Class::Auto)) else {
        return;
    };
    let asked = (ANSWERS_BYTES[size] as u32).to_be_bytes();
    if flow.write(Bytes::copy_from_slice(&asked)).await.is_err() {
        return;
    }
    flow.finish();
    while let Ok(Some(_)) = flow.read(1 << 20).await {}
    let took = start.elapsed();
    took_ms.lock().unwrap()[size].push(took.as_secs_f64() * 1e3);
}

/// Losses towards the receiver of bulk and answers; the way back loses the same.
const LOSSES: [(&str, &str); 7] = [
    ("0%", ""),
    ("0.5%", "loss 0.5%"),
    ("1%", "loss 1%"),
    ("5%", "loss 5%"),
    ("bursts0.5%", "loss bursts 0.5% 3"),
    ("bursts1%", "loss bursts 1% 3"),
    ("bursts5%", "loss bursts 5% 3"),
];

/// A job for each loss.
pub fn jobs() -> Vec<Job> {
    let both = |(name, loss)| Knowledge::BOTH.map(|knowledge| job(name, loss, knowledge));
    LOSSES.into_iter().flat_map(both).collect()
}

fn job(name: &str, loss: &str, knowledge: Knowledge) -> Job {
    let words = format!("rate 51.84mbit delay 30ms queue 100ms {loss}");
    let cell = Cell::new(format!("51.84M/30ms/{name}"), words);
    let seconds = 2 * (WARM_UP_S + MEASURED_S);
    Job::new(
        cell.name.clone(),
        knowledge.name(),
        "fec",
        cell.rate_bit_per_s() * seconds as f64,
        move |seed| {
            let off = run(&cell, knowledge, 0, seed)?;
            let on = run(&cell, knowledge, FEATURE_FEC, seed)?;
            Ok(Outcome {
                figures: figures(&cell, &off, &on),
                trace: on.trace,
            })
        },
    )
}

fn figures(cell: &Cell, off: &Requests, on: &Requests) -> Vec<Figure> {
    let rtt_ms = cell.rtt().as_secs_f64() * 1000.0;
    let may_be_off = cell.name.contains("bursts");
    let better_ms = match cell.loss() > 0.0 {
        // Nothing may be worse for what is not done; other packets are lost in either run.
        true if may_be_off && on.is_kept_off() => -0.1 * rtt_ms,
        true => 0.5 * rtt_ms,
        // Where nothing is lost both runs are the same; a timer's tick is nothing.
        false => -1.0,
    };
    let mut figures = Vec::new();
    let names = [("p99_10k", "p99_10k_off"), ("p99_64k", "p99_64k_off")];
    for (size, (with, without)) in names.into_iter().enumerate() {
        let p99 = |run: &Requests| run.quantile_ms(size, 0.99);
        let words = format!(
            "{} and {} answers; median {:.1} and {:.1} ms",
            off.took_ms[size].len(),
            on.took_ms[size].len(),
            off.quantile_ms(size, 0.5),
            on.quantile_ms(size, 0.5)
        );
        figures.push(Figure::new(without, "ms", p99(off)));
        figures.push(
            Figure::new(with, "ms", p99(on))
                .at_most(p99(off) - better_ms)
                .detail("off and on", words),
        );
    }
    let (bulk_off, bulk_on) = (off.goodput_bit_per_s(), on.goodput_bit_per_s());
    let limit = cell.reachable_bit_per_s() / 1e6;
    figures.push(Figure::new("bulk_off", "Mbit/s", bulk_off / 1e6).limit(limit));
    figures.push(
        Figure::new("bulk", "Mbit/s", bulk_on / 1e6)
            .limit(limit)
            .at_least(0.99 * bulk_off / 1e6)
            .detail("correction", words(on)),
    );
    if may_be_off {
        figures.push(on.too_dear());
    }
    figures
}

fn words(run: &Requests) -> String {
    match (run.sender, run.receiver) {
        (Some(sender), Some(receiver)) => format!(
            "{}loss {:.3} %, bursts of {:.1}, {} repairs, {:.2} % of all bytes, {} recovered",
            match run.is_kept_off() {
                true => "kept off, bursts are too long for what repairs may cost; ",
                false => "",
            },
            sender.loss * 100.0,
            sender.burst,
            sender.repairs,
            sender.share * 100.0,
            receiver.recovered
        ),
        _ => "none".to_owned(),
    }
}
