//! What interception has done so far, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters as the tasks write them.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub $name: Counter,)+
        }

        /// The counters at one moment. Each counts since the start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct InterceptStats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            pub fn read(&self) -> InterceptStats {
                InterceptStats { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counters! {
    /// First SYNs and their retransmissions seen.
    syns,
    /// SYNs that repeated one still held or just decided.
    retransmitted,
    /// Attempts judged `Proxy`.
    proxied,
    /// Attempts judged `Direct`.
    direct,
    /// Attempts judged `Refused`.
    refused,
    /// Attempts judged `HostUnreachable` or `NetworkUnreachable`.
    unreachable,
    /// Attempts judged `Silent`, or not answered in two minutes.
    silent,
    /// Attempts sent direct because a bound was reached.
    overflow,
    /// SYNs dropped because the process had paused; their clients try again.
    stale,
    /// Queued packets that were no first SYN in the clear; they passed.
    not_understood,
    /// Handshakes completed on behalf of a server.
    connections,
    /// Connections to the listeners that had not come through TPROXY; reset.
    strays,
    /// RST or ICMP answers that could not be sent.
    answers_failed,
    /// Verdicts the kernel did not take.
    verdicts_failed,
    /// Times the rules were found removed by somebody else and put back.
    rules_restored,
    /// Times the guard was found dead and started again.
    guard_restarts,
}
