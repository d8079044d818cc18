//! Packets that arrive independently of each other at a link: how long do
//! they wait?

use farhaul_link::LinkProfile;

use crate::engine::{Stream, nanoseconds, seconds};
use crate::network::{Circuit, Network, Notice, Side};

/// Mean wait in seconds of `packets` packets of `ip_bytes`, offered to the
/// link's backward direction at `load` of its rate as a Poisson process. Waits
/// are seen from outside: arrival less departure, delay and transmission.
pub fn poisson_wait_s(
    link: &LinkProfile,
    ip_bytes: u32,
    load: f64,
    packets: u64,
    seed: u64,
) -> f64 {
    let Some(rate) = link.backward.rate else {
        return 0.0;
    };
    let service_ns = rate.time_ns(u64::from(ip_bytes));
    let mut network = Network::new(vec![Circuit::new(link, 0, seed)]);
    let mut stream = Stream::new(seed, "poisson", 0);
    let mut sent_ns = Vec::new();
    let (mut waited_s, mut arrived) = (0.0, 0u64);
    network.set_alarm(0, ());
    while let Some(notice) = network.run() {
        match notice {
            Notice::Alarm(()) => {
                let number = sent_ns.len() as u64;
                sent_ns.push(network.now_ns());
                network.send_packet(0, Side::Client, ip_bytes, number);
                if number + 1 < packets {
                    let gap_s = stream.exponential(seconds(service_ns) / load);
                    network.set_alarm(network.now_ns() + nanoseconds(gap_s), ());
                }
            }
            Notice::Packet(_, _, number) => {
                let since_ns = sent_ns.get(number as usize).copied().unwrap_or(0);
                let spent_ns = network.now_ns() - since_ns;
                let alone_ns = link.backward.delay_ns + service_ns;
                waited_s += seconds(spent_ns.saturating_sub(alone_ns));
                arrived += 1;
            }
            Notice::Connection(..) => {}
        }
    }
    waited_s / arrived.max(1) as f64
}
