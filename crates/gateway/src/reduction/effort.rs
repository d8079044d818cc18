//! Work that keeps a processor for milliseconds, out of the way of what has to be sent at once.
//!
//! Whoever compresses on one of the runtime's workers holds up what waits for that worker, and that is the tunnel itself: a flow
//! that writes wakes it to the worker it runs on. At level 9 a batch takes ten milliseconds, and a link of 45 Mbit/s stood still
//! for a sixth of the time, though there was always more to send than it could carry. So the worker is handed to another thread
//! first. No more threads do such work than there are processors.

use std::sync::LazyLock;
use std::thread::available_parallelism;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

/// Compressing so much takes long enough to hold others up.
pub(super) const LONG_BYTES_MIN: usize = 16 << 10;

static PROCESSORS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));

/// Does it, as soon as a processor is free for it.
pub(super) async fn apart<Made>(work: impl FnOnce() -> Made) -> Made {
    // Nothing closes it; without a permit the work is done all the same.
    let _permit = PROCESSORS.acquire().await;
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => block_in_place(work),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let (say, said) = std::sync::mpsc::channel();
        let other = async move { say.send(()).expect("somebody waits") };
        // It is woken on the only worker there is, by who then keeps it.
        tokio::spawn(async move {
            tokio::spawn(other);
            apart(move || said.recv_timeout(Duration::from_secs(30))).await
        })
        .await
        .expect("no panic")
        .expect("the other task ran");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(apart(|| 5).await, 5);
    }
}
