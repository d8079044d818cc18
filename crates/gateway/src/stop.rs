//! The stop signal handed to everything that runs until the gateway ends.

use tokio::sync::watch;

/// Becomes true, or loses its sender, when it is time to stop.
pub type Stop = watch::Receiver<bool>;

/// Waits for the signal.
pub async fn stopped(stop: &mut Stop) {
    // An error means that the sender is gone: nobody is left to serve for.
    let _ = stop.wait_for(|stop| *stop).await;
}
