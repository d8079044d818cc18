//! One cell of the controller alone: `controller LINK [told] [owned] [trace] [SECONDS]`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../tests/path/mod.rs"]
mod path;

use std::str::FromStr;

use farhaul_link::LinkProfile;
use farhaul_tunnel::PathSettings;
use path::World;
use path::sender::Sender;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|a| a == word);
    if args.first().is_some_and(|a| a == "matrix") {
        return matrix(&args[1..]);
    }
    if args.first().is_some_and(|a| a == "outage") {
        return outage(&args[1]);
    }
    if args.first().is_some_and(|a| a == "start") {
        return start();
    }
    if args.first().is_some_and(|a| a == "read") {
        return read(&args[1], last_number(&args).unwrap_or(0.0), has("trace"));
    }
    if args.first().is_some_and(|a| a == "blocks") {
        return blocks(&args[1], last_number(&args).unwrap_or(45), has("trace"));
    }
    if args.first().is_some_and(|a| a == "share") {
        return share(&args[1..]);
    }
    let link: LinkProfile = args[0].parse().unwrap();
    let secs = last_number(&args).unwrap_or(40.0);
    let row = cell(&link, has("told"), secs, has("trace"));
    println!("{row}");
}

/// The last word that is a number; a link is one word and none.
fn last_number<T: FromStr>(args: &[String]) -> Option<T> {
    args.iter().filter_map(|a| a.parse().ok()).next_back()
}

/// A file that is read ahead after some seconds of small answers, by machines that are held up for a while in every so many
/// milliseconds: `controller read LINK [MS] [trace]`.
fn read(words: &str, busy_ms: f64, trace: bool) {
    let link: LinkProfile = words.parse().unwrap();
    let limit = link.forward.rate.unwrap().bit_per_s() as f64 / 8.0 * 1472.0 / 1514.0;
    let from_ns = 6_000_000_000;
    for seed in 1..=10 {
        let mut world = World::new(&link, seed);
        let flow = path::read_ahead(&mut world, busy_ms, from_ns);
        world.run_until(from_ns);
        let from = world.received_bytes(flow);
        let mut before = from;
        for tick in 1..=60u64 {
            world.run_until(from_ns + tick * 200_000_000);
            let bytes = world.received_bytes(flow);
            let controller = world.sender(flow).controller().unwrap();
            let view = controller.view();
            if trace {
                println!(
                    "{:4.1} s got {:.2} {} est {:.3} pace {:.3} q {:.0} jit {:.1} p {:.3} drops {}",
                    tick as f64 / 5.0,
                    (bytes - before) as f64 * 5.0 / limit,
                    view.phase,
                    view.rate / limit,
                    controller.pace() / limit,
                    view.queue * 1e3,
                    view.jitter * 1e3,
                    view.loss,
                    world.drops(),
                );
            }
            before = bytes;
        }
        let got = (before - from) as f64 / limit / (1.0 - link.forward.loss.mean());
        println!(
            "seed {seed}: lost {:.2} s of 12, drops {}",
            12.0 - got,
            world.drops()
        );
    }
}

/// A client that waits for each block, of 60 KiB or of `PACKETS`, through the tunnel and over CUBIC:
/// `controller blocks LINK [PACKETS] [trace]`.
fn blocks(words: &str, packets: u64, trace: bool) {
    let link: LinkProfile = words.parse().unwrap();
    let limit = link.forward.rate.unwrap().bit_per_s() as f64 / 8.0 * 1472.0 / 1514.0;
    for seed in 1..=12 {
        let settings = PathSettings {
            header_bytes: 42,
            ..PathSettings::default()
        };
        for (name, mut sender) in [
            ("tunnel", Sender::farhaul(settings)),
            ("cubic", Sender::cubic()),
        ] {
            sender.block_packets = Some(packets);
            let mut world = World::new(&link, seed);
            let flow = world.add(sender, 0, u64::MAX, 0);
            let mut before = 0;
            for tick in 1..=60u64 {
                world.run_until(tick * 1_000_000_000);
                let bytes = world.received_bytes(flow);
                if let Some(c) = world.sender(flow).controller().filter(|_| trace) {
                    let view = c.view();
                    println!(
                        "{tick:4} s got {:.3} {} est {:.3} pace {:.3} q {:.1} jit {:.1} base {:.1} p {:.3} lost {}",
                        (bytes - before) as f64 / limit,
                        view.phase,
                        view.rate / limit,
                        c.pace() / limit,
                        view.queue * 1e3,
                        view.jitter * 1e3,
                        view.base_rtt_ns as f64 / 1e6,
                        view.loss,
                        world.sender(flow).lost,
                    );
                }
                before = bytes;
            }
            println!(
                "seed {seed} {name:6}: {:.0} KiB/s, {} taken for lost",
                before as f64 / 60.0 / 1024.0,
                world.sender(flow).lost
            );
        }
    }
}

/// Shares over ten seconds each: `controller share LINK FLOW...`, FLOW is
/// `us`, `cubic`, with `@START[-STOP]` in seconds and `+DELAY` in ms.
fn share(args: &[String]) {
    let link: LinkProfile = args[0].parse().unwrap();
    let limit = link.forward.rate.unwrap().bit_per_s() as f64 / 8.0 * 1472.0 / 1514.0;
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    let mut world = World::new(&link, seed);
    let mut flows = Vec::new();
    for word in &args[1..] {
        let (word, extra) = word.split_once('+').unwrap_or((word, "0"));
        let (kind, time) = word.split_once('@').unwrap_or((word, "0"));
        let (start, stop) = time.split_once('-').unwrap_or((time, "1e6"));
        let ns = |text: &str| (text.parse::<f64>().unwrap() * 1e9) as u64;
        let sender = match kind {
            "cubic" => Sender::cubic(),
            _ => Sender::farhaul(PathSettings {
                header_bytes: 42,
                ..PathSettings::default()
            }),
        };
        flows.push(world.add(
            sender,
            ns(start),
            ns(stop),
            extra.parse::<u64>().unwrap() * 1_000_000,
        ));
    }
    let mut before = vec![0; flows.len()];
    for tick in 1..=24u64 {
        world.run_until(tick * 5_000_000_000);
        print!("{:4} s ", tick * 5);
        for flow in &flows {
            let bytes = world.received_bytes(*flow);
            print!(" {:.2}", (bytes - before[*flow]) as f64 / 5.0 / limit);
            before[*flow] = bytes;
            if let Some(c) = world.sender(*flow).controller() {
                print!(
                    " ({} est {:.2} p {:.3} q{:.0} b{:.0})",
                    c.view().phase,
                    c.view().rate / limit,
                    c.view().loss,
                    c.view().queue * 1e3,
                    c.view().base_rtt_ns as f64 / 1e6
                );
            }
        }
        println!(
            "  queue {:.1} ms drops {}",
            world.mean_queue() * 1e3,
            world.drops()
        );
    }
}

fn cell(link: &LinkProfile, told: bool, secs: f64, trace: bool) -> String {
    let rate = link.forward.rate.map_or(0, |r| r.bit_per_s());
    let settings = PathSettings {
        link_bits_per_s: told.then_some(rate),
        is_owned: told,
        remembered: None,
        header_bytes: 42,
    };
    let mut world = World::new(link, 7);
    let flow = world.add(Sender::farhaul(settings), 0, u64::MAX, 0);
    let limit = rate as f64 / 8.0 * 1472.0 / 1514.0;
    let step = secs / 40.0;
    let rtt = 2.0 * link.forward.delay_ns as f64 / 1e9;
    let warm = (20.0 * rtt).max(10.0).min(secs / 2.0);
    let (mut before, mut warm_bytes, mut warm_at, mut reached) = (0, 0, 0.0, 0.0);
    let mut queue = 0.0;
    for tick in 1..=40 {
        let at = step * f64::from(tick);
        world.run_until((at * 1e9) as u64);
        let bytes = world.received_bytes(flow);
        let goodput = (bytes - before) as f64 / step / limit;
        before = bytes;
        let q = world.mean_queue();
        if goodput > 0.85 && reached == 0.0 {
            reached = at;
        }
        if at <= warm {
            warm_bytes = bytes;
            warm_at = at;
        } else {
            queue += q;
        }
        if trace {
            let v = world.sender(flow).controller().unwrap().view();
            println!(
                "{at:6.1}s got {goodput:.3} q {:.1}ms drops {} | {} est {:.3} q {:.1} base {:.1} jit {:.1} p {:.4} win {}",
                q * 1e3,
                world.drops(),
                v.phase,
                v.rate / limit,
                v.queue * 1e3,
                v.base_rtt_ns as f64 / 1e6,
                v.jitter * 1e3,
                v.loss,
                world.sender(flow).controller().unwrap().window_bytes() / 1472,
            );
        }
    }
    let loss = link.forward.loss.mean();
    let share = (before - warm_bytes) as f64 / (secs - warm_at) / limit / (1.0 - loss);
    let queue = queue / ((secs - warm_at) / step) * 1e3;
    format!(
        "{share:.3} queue {queue:5.1} ms  drops {:6}  85 % after {reached:.1} s",
        world.drops()
    )
}

fn matrix(args: &[String]) {
    let told = args.iter().any(|a| a == "told");
    let big = args.iter().any(|a| a == "big");
    for rate in ["1.544mbit", "45mbit", "51.84mbit", "155.52mbit", "1gbit"] {
        if rate == "1gbit" && !big {
            continue;
        }
        for delay in ["0ms", "30ms", "100ms", "250ms"] {
            for loss in ["0%", "0.1%", "0.5%", "1%", "5%", "10%"] {
                if rate == "45mbit" {
                    continue;
                }
                let text = format!("rate {rate} delay {delay} loss {loss} queue 100ms");
                let text = text.replace("delay 0ms ", "").replace("loss 0% ", "");
                let link: LinkProfile = text.parse().unwrap();
                println!(
                    "{rate:10} {delay:6} {loss:5} {}",
                    cell(&link, told, 40.0, false)
                );
            }
        }
    }
}

/// When so much has arrived in order to be useful: `controller start`.
fn start() {
    for words in [
        "rate 51.84mbit delay 100ms loss 1% queue 100ms",
        "rate 51.84mbit delay 250ms queue 100ms",
        "rate 155.52mbit delay 100ms queue 100ms",
        "rate 51.84mbit delay 30ms loss 1% queue 100ms",
        "rate 1.544mbit delay 100ms queue 100ms",
        "rate 1gbit delay 100ms queue 100ms",
        "rate 155.52mbit delay 30ms queue 5ms",
    ] {
        let link: LinkProfile = words.parse().unwrap();
        let rate = link.forward.rate.unwrap().bit_per_s() as f64 / 8.0 * 1472.0 / 1514.0;
        let settings = PathSettings {
            header_bytes: 42,
            ..PathSettings::default()
        };
        let mut world = World::new(&link, 7);
        let flow = world.add(Sender::farhaul(settings), 0, u64::MAX, 0);
        let mut small = 0.0;
        let mut at = 0.0;
        while at < 20.0 {
            at += 0.02;
            world.run_until((at * 1e9) as u64);
            if small == 0.0 && world.received_bytes(flow) > 4_200_000 {
                small = at;
            }
        }
        let lost = at - world.received_bytes(flow) as f64 / rate / (1.0 - link.forward.loss.mean());
        println!(
            "{words:50} 4 MB {small:.2} s, start costs {lost:.2} s, drops {}",
            world.drops()
        );
    }
}

/// The link loses everything from second 10 to second 15: `controller outage LINK`.
fn outage(words: &str) {
    let link: LinkProfile = words.parse().unwrap();
    let dead: LinkProfile = format!("{words} loss 100%").parse().unwrap();
    let limit = link.forward.rate.unwrap().bit_per_s() as f64 / 8.0 * 1472.0 / 1514.0;
    let mut world = World::new(&link, 7);
    let settings = PathSettings {
        header_bytes: 42,
        ..PathSettings::default()
    };
    let flow = world.add(Sender::farhaul(settings), 0, u64::MAX, 0);
    let mut before = 0;
    for tick in 1..=60u64 {
        world.run_until(tick * 500_000_000);
        if tick == 20 {
            world.set_link(&dead);
        } else if tick == 30 {
            world.set_link(&link);
        }
        let bytes = world.received_bytes(flow);
        let v = world.sender(flow).controller().unwrap();
        let (view, pace, window) = (v.view(), v.pace() / limit, v.window_bytes() / 1472);
        println!(
            "{:4.1} s got {:.2} {} est {:.3} pace {pace:.3} window {window} q {:.0} base {:.0} jit {:.0} p {:.3}",
            tick as f64 / 2.0,
            (bytes - before) as f64 * 2.0 / limit,
            view.phase,
            view.rate / limit,
            view.queue * 1e3,
            view.base_rtt_ns as f64 / 1e6,
            view.jitter * 1e3,
            view.loss,
        );
        before = bytes;
    }
}
