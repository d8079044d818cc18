//! One bulk flow and one keystroke at a time: what a cell of the matrix is
//! judged by.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::session::FlowHandle;
use farhaul_tunnel::{Class, ResetCode};

use super::cell::{Cell, Knowledge};
use super::clock;
use super::network::{Network, Way};
use super::services::{self, ECHO};
use super::trace::Trace;
use super::tunnel::Pair;

/// Payload of an echo.
const ECHO_BYTES: usize = 64;
/// Its Ethernet frame, about: headers of all layers, and an acknowledgement.
const ECHO_FRAME_BYTES: u64 = 180;
const BULK_PORT: u16 = 40_000;
const ECHO_PORT: u16 = 50_000;

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The whole run.
    pub trace: Trace,
    /// Seconds without and with measuring.
    pub window_s: (u64, u64),
    /// Round trips of the echoes sent while measuring, in order of sending;
    /// one that did not come back in time counts as infinite.
    pub echoes_ms: Vec<f64>,
}

impl Load {
    /// Payload per second after the warm-up.
    pub fn goodput_bit_per_s(&self) -> f64 {
        self.trace
            .goodput_bit_per_s(self.window_s.0, self.window_s.1)
    }

    /// Mean wait in the bottleneck's queue after the warm-up.
    pub fn queue_mean_ms(&self) -> f64 {
        self.trace.queue_mean_ms(self.window_s.0, self.window_s.1)
    }

    /// Share of packets that the bottleneck's queue refused after the warm-up.
    pub fn dropped_share(&self) -> f64 {
        self.trace.dropped_share(self.window_s.0, self.window_s.1)
    }

    /// The echo that 95 % were not slower than.
    pub fn echo_p95_ms(&self) -> f64 {
        let mut sorted = self.echoes_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * 95).div_ceil(100);
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// Echo on the empty link.
pub fn echo_base_ms(cell: &Cell) -> f64 {
    cell.rtt().as_secs_f64() * 1e3 + 2.0 * cell.sending_ms(ECHO_FRAME_BYTES)
}

/// Runs one cell.
pub fn run(cell: &Cell, knowledge: Knowledge, seed: u64) -> Result<Load, String> {
    let warm_up_s = cell.warm_up_s();
    let window_s = (warm_up_s, warm_up_s + cell.measured_s());
    let limit = Duration::from_secs(window_s.1 + 60);
    let interval = echo_interval(cell);
    clock::run(cell.link.clone(), seed, limit, |network| {
        load(network, knowledge, seed, window_s, interval)
    })
}

/// Seldom enough to take no share of the link worth counting.
fn echo_interval(cell: &Cell) -> Duration {
    match cell.rate_bit_per_s() {
        ..10e6 => Duration::from_millis(400),
        _ => Duration::from_millis(80),
    }
}

async fn load(
    network: Arc<Network>,
    knowledge: Knowledge,
    seed: u64,
    window_s: (u64, u64),
    interval: Duration,
) -> Result<Load, String> {
    let tunnel = Pair::new(&network, 1, 0, knowledge, seed)?.dial().await?;
    tunnel.bulk(Way::Forward, BULK_PORT, None)?;
    let request = services::request(ECHO, ECHO_PORT, Class::Interactive);
    let flow = tunnel.near.session.open(request);
    let flow = Arc::new(flow.map_err(|error| error.to_string())?);
    let echoes = Arc::new(Echoes::default());
    let start_ns = network.now_ns();
    tokio::spawn(ask(
        network.clone(),
        flow.clone(),
        echoes.clone(),
        interval,
        seed,
    ));
    tokio::spawn(listen(network.clone(), flow, echoes.clone()));
    let trace = Trace::record(&network, &tunnel, window_s.1).await;
    if let Some(end) = tunnel.near.session.over() {
        return Err(end.to_string());
    }
    let from_ns = start_ns + window_s.0 * 1_000_000_000;
    let echoes_ms = echoes.since(from_ns, network.now_ns());
    Ok(Load {
        trace,
        window_s,
        echoes_ms,
    })
}

#[derive(Default)]
struct Echoes {
    waiting: Mutex<VecDeque<u64>>,
    /// When each was sent, and how long it took.
    done: Mutex<Vec<(u64, u64)>>,
}

impl Echoes {
    /// Round trips of what was sent from `from_ns` on. What is still on its
    /// way counts as lost once it is slower than everything that came back.
    fn since(&self, from_ns: u64, now_ns: u64) -> Vec<f64> {
        let done = self.done.lock().unwrap();
        let done = done.iter().filter(|(sent_ns, _)| *sent_ns >= from_ns);
        let mut echoes_ms: Vec<f64> = done.map(|(_, took_ns)| *took_ns as f64 / 1e6).collect();
        let slowest_ms = echoes_ms.iter().copied().fold(0.0, f64::max);
        let waiting = self.waiting.lock().unwrap();
        let ages_ms = waiting
            .iter()
            .map(|sent_ns| (now_ns - sent_ns.max(&from_ns)) as f64 / 1e6);
        let late = ages_ms.filter(|age_ms| *age_ms > slowest_ms).count();
        echoes_ms.extend(std::iter::repeat_n(f64::INFINITY, late));
        echoes_ms
    }
}

/// Sends echoes at uneven intervals, so that they keep step with nothing.
async fn ask(
    network: Arc<Network>,
    flow: Arc<FlowHandle>,
    echoes: Arc<Echoes>,
    interval: Duration,
    seed: u64,
) -> Result<(), ResetCode> {
    let mut state = seed | 1;
    loop {
        echoes.waiting.lock().unwrap().push_back(network.now_ns());
        flow.write(Bytes::from_static(&[0; ECHO_BYTES])).await?;
        // Knuth's MMIX generator; its upper bits will do.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let extra = interval.mul_f64((state >> 40) as f64 / (1u64 << 24) as f64 * 0.5);
        tokio::time::sleep(interval.mul_f64(0.75) + extra).await;
    }
}

async fn listen(
    network: Arc<Network>,
    flow: Arc<FlowHandle>,
    echoes: Arc<Echoes>,
) -> Result<(), ResetCode> {
    let mut bytes = 0;
    while let Some(more) = flow.read(1 << 16).await? {
        bytes += more.len();
        let now_ns = network.now_ns();
        while bytes >= ECHO_BYTES {
            bytes -= ECHO_BYTES;
            if let Some(sent_ns) = echoes.waiting.lock().unwrap().pop_front() {
                echoes
                    .done
                    .lock()
                    .unwrap()
                    .push((sent_ns, now_ns - sent_ns));
            }
        }
    }
    Ok(())
}
