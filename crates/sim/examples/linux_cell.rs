//! What the simulator says of transfers that `scripts/sim-against-linux.py`
//! makes with real Linux hosts: `linux_cell LINK WINDOW_BYTES BYTES SEEDS`
//! prints the seconds from connecting to the last byte, one line per seed.

use std::process::ExitCode;

use farhaul_link::LinkProfile;
use farhaul_sim::engine::{NS_PER_S, seconds};
use farhaul_sim::network::{Circuit, Network, Notice, Side};
use farhaul_sim::tcp::{Event, Options, Profile};

/// The link's rate counts Ethernet frames.
const HEADER_BYTES: u32 = 14;
const LIMIT_NS: u64 = 3600 * NS_PER_S;

fn transfer_s(link: &LinkProfile, window_bytes: u64, bytes: u64, seed: u64) -> Option<f64> {
    let options = Options {
        profile: Profile::LINUX_RENO,
        mss_bytes: 1460,
        buffer_bytes: window_bytes,
        phase_ns: 0,
    };
    let mut network: Network<()> = Network::new(vec![Circuit::new(link, HEADER_BYTES, seed)]);
    let sender = Options {
        buffer_bytes: 1 << 30,
        ..options
    };
    network.connect(0, options, sender);
    let mut received = 0;
    while let Some(notice) = network.run() {
        match notice {
            Notice::Connection(id, Side::Server, Event::Connected) => {
                network.write_last(id, Side::Server, bytes)
            }
            Notice::Connection(_, Side::Client, Event::Received(more)) => received += more,
            _ => {}
        }
        if received >= bytes {
            return Some(seconds(network.now_ns()));
        }
        if network.now_ns() > LIMIT_NS {
            break;
        }
    }
    None
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [link, window, bytes, seeds] = &words[..] else {
        eprintln!("usage: linux_cell LINK WINDOW_BYTES BYTES SEEDS");
        return ExitCode::from(2);
    };
    let (Ok(link), Ok(window), Ok(bytes), Ok(seeds)) = (
        link.parse::<LinkProfile>(),
        window.parse(),
        bytes.parse(),
        seeds.parse::<u64>(),
    ) else {
        eprintln!("linux_cell: a word cannot be read");
        return ExitCode::from(2);
    };
    for seed in 1..=seeds {
        match transfer_s(&link, window, bytes, seed) {
            Some(time_s) => println!("{time_s:.6}"),
            None => return ExitCode::FAILURE,
        }
    }
    ExitCode::SUCCESS
}
