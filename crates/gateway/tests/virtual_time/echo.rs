//! A person at a terminal: 64 bytes now and then, and how long each takes to
//! come back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::session::FlowHandle;
use farhaul_tunnel::{Class, ResetCode};

use super::cell::Cell;
use super::network::Network;
use super::random::Random;
use super::services::{self, ECHO};
use super::tunnel::Tunnel;

/// Payload of an echo.
const ECHO_BYTES: usize = 64;
/// Its Ethernet frame, about: headers of all layers, and an acknowledgement.
const FRAME_BYTES: u64 = 180;

/// Echo on the empty link.
pub fn base_ms(cell: &Cell) -> f64 {
    cell.rtt().as_secs_f64() * 1e3 + 2.0 * cell.sending_ms(FRAME_BYTES)
}

/// The value that `percent` of the others do not exceed.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

/// Echoes of one flow.
#[derive(Default)]
pub struct Echoes {
    waiting: Mutex<VecDeque<u64>>,
    /// When each was sent, and how long it took.
    done: Mutex<Vec<(u64, u64)>>,
}

impl Echoes {
    /// Starts a flow of class interactive that asks about every `interval`.
    pub fn start(
        network: &Arc<Network>,
        tunnel: &Tunnel,
        port: u16,
        interval: Duration,
        seed: u64,
    ) -> Result<Arc<Self>, String> {
        Self::start_as(network, tunnel, port, Class::Interactive, interval, seed)
    }

    /// The same as another class.
    pub fn start_as(
        network: &Arc<Network>,
        tunnel: &Tunnel,
        port: u16,
        class: Class,
        interval: Duration,
        seed: u64,
    ) -> Result<Arc<Self>, String> {
        let request = services::request(ECHO, port, class);
        let flow = tunnel.near.session.open(request);
        let flow = Arc::new(flow.map_err(|error| error.to_string())?);
        let echoes = Arc::new(Self::default());
        let random = Random::new(seed ^ u64::from(port));
        tokio::spawn(ask(
            network.clone(),
            flow.clone(),
            echoes.clone(),
            interval,
            random,
        ));
        tokio::spawn(listen(network.clone(), flow, echoes.clone()));
        Ok(echoes)
    }

    /// Round trips of what was sent from `from_ns` on, in ms. What is still on
    /// its way and slower than everything that came back counts as infinite.
    pub fn since(&self, from_ns: u64, now_ns: u64) -> Vec<f64> {
        let done = self.done.lock().unwrap();
        let done = done.iter().filter(|(sent_ns, _)| *sent_ns >= from_ns);
        let mut echoes_ms: Vec<f64> = done.map(|(_, took_ns)| *took_ns as f64 / 1e6).collect();
        let slowest_ms = echoes_ms.iter().copied().fold(0.0, f64::max);
        let waiting = self.waiting.lock().unwrap();
        let ages_ms = waiting
            .iter()
            .map(|sent_ns| now_ns.saturating_sub(*sent_ns.max(&from_ns)) as f64 / 1e6);
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
    mut random: Random,
) -> Result<(), ResetCode> {
    loop {
        tokio::time::sleep(interval.mul_f64(0.75 + 0.5 * random.fraction())).await;
        echoes.waiting.lock().unwrap().push_back(network.now_ns());
        flow.write(Bytes::from_static(&[0; ECHO_BYTES])).await?;
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
