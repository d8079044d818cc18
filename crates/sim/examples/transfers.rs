//! Transfers as real Linux hosts (`scripts/sim-against-linux.py`) and ns-3
//! (`scripts/sim-against-ns3.py`) make them: `transfers TCP LINK WINDOW_BYTES BYTES
//! SEEDS [ABREAST TRANSFERS]` makes, for every seed, so many over one link, some of
//! them at a time, and prints the seconds of each from connecting to the last byte.
//!
//! TCP is `linux`, where servers send, or `newreno` or `sack` with a receiver that
//! acknowledges every second segment and growth by acknowledgements, where those
//! who connect send, as ns-3's bulk senders do; `newreno-pipe` and `sack-pipe` also
//! halve what ns-3 halves.

use std::process::ExitCode;

use farhaul_link::LinkProfile;
use farhaul_sim::engine::{NS_PER_MS, NS_PER_S, seconds};
use farhaul_sim::network::{Circuit, ConnectionId, Network, Notice, Side};
use farhaul_sim::tcp::{Clock, Event, Growth, Options, Profile, Recovery};

/// The textbook's sender as ns-3 has it.
const NS3: Profile = Profile {
    clock: Clock::Fine {
        rto_min_ns: 200 * NS_PER_MS,
        delayed_ack_ns: 200 * NS_PER_MS,
    },
    growth: Growth::Reno,
    initial_window_segments: 1,
    byte_counting_segments: 0,
    early_retransmit: false,
    // Its receiver acknowledges the segment behind the handshake at once.
    quick_acks: 1,
    ..Profile::MODERN
};

/// Headers that the link's rate counts: Ethernet's, and ns-3's point-to-point ones.
const LINUX_HEADER_BYTES: u32 = 14;
const NS3_HEADER_BYTES: u32 = 2;
const LIMIT_NS: u64 = 3600 * NS_PER_S;

/// What is transferred.
struct Cell {
    profile: Profile,
    header_bytes: u32,
    /// Who sends.
    from: Side,
    link: LinkProfile,
    window_bytes: u64,
    bytes: u64,
    /// At the same time, and altogether.
    abreast: usize,
    transfers: usize,
}

/// A transfer under way.
struct Transfer {
    id: ConnectionId,
    began_ns: u64,
    received: u64,
}

impl Cell {
    fn connect(&self, network: &mut Network<()>) -> Transfer {
        let options = Options {
            profile: self.profile,
            mss_bytes: 1460,
            buffer_bytes: self.window_bytes,
            phase_ns: 0,
        };
        let sender = Options {
            buffer_bytes: 1 << 30,
            ..options
        };
        let id = match self.from {
            Side::Server => network.connect(0, options, sender),
            Side::Client => network.connect(0, sender, options),
        };
        if self.from == Side::Client {
            network.write_last(id, Side::Client, self.bytes);
        }
        Transfer {
            id,
            began_ns: network.now_ns(),
            received: 0,
        }
    }

    /// Seconds of every transfer; none if one has no end.
    fn run(&self, seed: u64) -> Option<Vec<f64>> {
        let circuit = Circuit::new(&self.link, self.header_bytes, seed);
        let mut network: Network<()> = Network::new(vec![circuit]);
        let mut times = Vec::new();
        let first = self.abreast.min(self.transfers);
        let mut running: Vec<Transfer> = (0..first).map(|_| self.connect(&mut network)).collect();
        let mut begun = first;
        while times.len() < self.transfers && network.now_ns() < LIMIT_NS {
            match network.run()? {
                Notice::Connection(id, Side::Server, Event::Connected)
                    if self.from == Side::Server =>
                {
                    network.write_last(id, Side::Server, self.bytes);
                }
                Notice::Connection(id, side, Event::PeerFinished) => network.finish(id, side),
                Notice::Connection(id, side, Event::Received(more)) if side != self.from => {
                    let Some(place) = running.iter().position(|one| one.id == id) else {
                        continue;
                    };
                    running[place].received += more;
                    if running[place].received < self.bytes {
                        continue;
                    }
                    let done = running.swap_remove(place);
                    times.push(seconds(network.now_ns() - done.began_ns));
                    if begun < self.transfers {
                        running.push(self.connect(&mut network));
                        begun += 1;
                    }
                }
                _ => {}
            }
        }
        (times.len() == self.transfers).then_some(times)
    }
}

fn read(words: &[String]) -> Option<(Cell, u64)> {
    let [tcp, link, window, bytes, seeds, more @ ..] = words else {
        return None;
    };
    let ns3 = |recovery, halves_pipe| {
        let profile = Profile {
            recovery,
            halves_pipe,
            ..NS3
        };
        (profile, NS3_HEADER_BYTES, Side::Client)
    };
    let (profile, header_bytes, from) = match tcp.as_str() {
        "linux" => (Profile::LINUX_RENO, LINUX_HEADER_BYTES, Side::Server),
        "newreno" => ns3(Recovery::NewReno, false),
        "newreno-pipe" => ns3(Recovery::NewReno, true),
        "sack" => ns3(Recovery::Sack, false),
        "sack-pipe" => ns3(Recovery::Sack, true),
        _ => return None,
    };
    let (abreast, transfers) = match more {
        [] => (1, 1),
        [abreast, transfers] => (abreast.parse().ok()?, transfers.parse().ok()?),
        _ => return None,
    };
    let cell = Cell {
        profile,
        header_bytes,
        from,
        link: link.parse().ok()?,
        window_bytes: window.parse().ok()?,
        bytes: bytes.parse().ok()?,
        abreast,
        transfers,
    };
    Some((cell, seeds.parse().ok()?))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((cell, seeds)) = read(&words) else {
        eprintln!(
            "usage: transfers linux|newreno[-pipe]|sack[-pipe] LINK WINDOW_BYTES BYTES SEEDS [ABREAST TRANSFERS]"
        );
        return ExitCode::from(2);
    };
    for seed in 1..=seeds {
        match cell.run(seed) {
            Some(times) => times.iter().for_each(|time_s| println!("{time_s:.6}")),
            None => return ExitCode::FAILURE,
        }
    }
    ExitCode::SUCCESS
}
