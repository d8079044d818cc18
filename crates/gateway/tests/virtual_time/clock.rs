//! Time that jumps. One thread runs everything there is to do at one moment;
//! when nothing is left, time goes on to the next datagram's arrival or to the
//! next millisecond, where timers may be due.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farhaul_link::LinkProfile;

use super::network::Network;

/// Resolution of tokio's timers.
const TICK_NS: u64 = 1_000_000;
/// Arrivals closer together than this are handed over together.
const COALESCE_NS: u64 = 50_000;

/// Told whenever the runtime has nothing more to do at this moment.
#[derive(Default)]
struct Idle {
    is_idle: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Idle {
    fn tell(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        if let Some(waker) = self.waker.lock().unwrap().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn listen(&self, waker: &Waker) {
        let mut known = self.waker.lock().unwrap();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }
}

/// Runs `scenario` on a new link from virtual second 0 and returns what it
/// returns; an error where it is not through after `limit`.
pub fn run<T, S>(
    link: LinkProfile,
    seed: u64,
    limit: Duration,
    scenario: impl FnOnce(Arc<Network>) -> S,
) -> Result<T, String>
where
    T: Send + 'static,
    S: Future<Output = Result<T, String>> + Send + 'static,
{
    let idle = Arc::new(Idle::default());
    let on_park = idle.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || on_park.tell())
        .build()
        .map_err(|error| error.to_string())?;
    let entered = runtime.enter();
    let network = Network::new(link, seed);
    let mut work = runtime.spawn(scenario(network.clone()));
    drop(entered);
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    runtime.block_on(std::future::poll_fn(move |cx| {
        idle.listen(cx.waker());
        if let Poll::Ready(done) = Pin::new(&mut work).poll(cx) {
            return Poll::Ready(done.unwrap_or_else(|error| Err(error.to_string())));
        }
        if idle.is_idle.swap(false, Ordering::Relaxed) {
            if network.now_ns() > limit_ns {
                return Poll::Ready(Err(format!("not through after {limit:?}")));
            }
            step(&network);
        }
        Poll::Pending
    }))
}

/// Hands over what is due, or lets time go on to the next event.
fn step(network: &Network) {
    let now_ns = network.now_ns();
    let (delivered, next_ns) = network.deliver(now_ns);
    if delivered > 0 {
        return;
    }
    let tick_ns = (now_ns / TICK_NS + 1) * TICK_NS;
    let arrival_ns = next_ns.map_or(tick_ns, |next_ns| next_ns.max(now_ns + COALESCE_NS));
    let at_ns = arrival_ns.min(tick_ns);
    advance(Duration::from_nanos(at_ns - now_ns));
    network.deliver(at_ns);
}

/// Moves tokio's clock. The waker that is left behind makes the runtime look
/// at its timers before it reports that nothing is to be done.
fn advance(duration: Duration) {
    let advancing = pin!(tokio::time::advance(duration));
    let _ = advancing.poll(&mut Context::from_waker(Waker::noop()));
}
