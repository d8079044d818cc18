//! What a profile replays, and rates behind other packets than Ethernet's.

use super::*;
use crate::probe::link_words;

fn profile(seen: &Observations) -> farhaul_link::LinkProfile {
    farhaul_link::LinkProfile::parse(&link_words::of(seen).unwrap()).unwrap()
}

#[test]
fn packets_that_leap_over_others_add_no_delay() {
    let mut seen = clean();
    // One of a hundred takes no time at all, the others 20 ms, 200 at once.
    let count = FlowCount {
        reordered: 52_000,
        reorder_places_max: 200,
        delays: Delays {
            p50_us: 20_000,
            p95_us: 20_100,
            max_us: 20_500,
        },
        ..FlowCount::default()
    };
    seen.quiet_up = flow(Direction::Up, way(60_000, 0, count));
    // Echoes of theirs come early as well: that is no jitter.
    seen.idle.as_mut().unwrap().min_us = Some(21_000);
    let forward = profile(&seen).forward;
    assert_eq!((forward.delay_ns, forward.jitter_ns), (20_000_000, 0));
    let text = profile(&seen).to_string();
    assert!(
        text.contains("reorder 1.0") && !text.contains("% 20"),
        "{text}"
    );
}

#[test]
fn jitter_is_replayed() {
    let mut seen = clean();
    assert_eq!(profile(&seen).forward.jitter_ns, 0);
    seen.idle = Some(Latency {
        min_us: Some(85_700),
        ..latency(100_000)
    });
    for direction in [profile(&seen).forward, profile(&seen).backward] {
        assert_eq!(direction.delay_ns, 50_000_000);
        assert_eq!(direction.jitter_ns, 10_000_000);
    }
    // A busy host is no jitter.
    seen.idle = Some(Latency {
        min_us: Some(98_500),
        ..latency(100_000)
    });
    assert_eq!(profile(&seen).forward.jitter_ns, 0);
}

#[test]
fn jumbo_frames_are_no_ipv6_and_have_their_own_overhead() {
    let mut seen = clean();
    let path = seen.path.as_mut().unwrap();
    (path.up_mtu_bytes, path.down_mtu_bytes) = (Some(9000), Some(9000));
    path.interface_mtu_bytes = Some(9000);
    // 50 Mbit/s of frames: 1514 bytes have 1472 of UDP, 9014 have 8948 of TCP.
    const LINE: f64 = 50e6;
    let (udp, jumbo) = (LINE * 1472.0 / 1514.0, LINE * 8948.0 / 9014.0);
    for direction in [Direction::Up, Direction::Down] {
        let (flood, loaded) = match direction {
            Direction::Up => (&mut seen.flood_up, &mut seen.tcp_up),
            _ => (&mut seen.flood_down, &mut seen.tcp_down),
        };
        *flood = flow(direction, super::flood(udp, 100_000));
        let segments = WayFigures {
            segment_bytes: 8948,
            ..figures()
        };
        *loaded = tcp(direction, jumbo, segments);
    }
    let rate = profile(&seen).forward.rate.unwrap().bit_per_s() as f64;
    assert!((rate / LINE - 1.0).abs() < 0.001, "{rate}");
    let verdict = diagnose(&seen);
    let capacity = verdict.tcp_capacity_up_bit_per_s.unwrap();
    assert!((capacity / jumbo - 1.0).abs() < 0.001, "{verdict:?}");
    assert_eq!(verdict.faults(), []);
}

/// What is to be done about a short queue behind a sender of this congestion control.
fn remedy_for(control: &str) -> String {
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY / 2.0, 1_200));
        let trains = seen.trains.as_mut().unwrap();
        trains.up.as_mut().unwrap().count.train_whole = Some(7);
        slow(seen, |_| {});
        seen.client_host.as_mut().unwrap().congestion_control = Some(control.to_owned());
    });
    assert_eq!(verdict.faults(), [Fault::ShallowBuffer]);
    verdict.findings[0].remedy.clone()
}

#[test]
fn a_sender_that_paces_is_not_told_to() {
    let (cubic, bbr) = (remedy_for("cubic"), remedy_for("bbr"));
    assert!(cubic.contains("tcp_congestion_control=bbr"), "{cubic}");
    assert!(
        !bbr.contains("sysctl") && bbr.contains("paces already"),
        "{bbr}"
    );
    for remedy in [cubic, bbr] {
        assert!(remedy.contains("a queue of about"), "{remedy}");
    }
}

#[test]
fn shaping_is_promised_no_less_than_tcp_carries_without() {
    let carried = CAPACITY / 4.0 * 0.98;
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY / 4.0, 300));
        seen.tcp_up = tcp(Direction::Up, carried, figures());
    });
    let policed = &verdict.findings[0];
    assert_eq!(policed.fault, Fault::Policer);
    assert!(policed.expected_bit_per_s.unwrap() >= carried);
}
