//! Requests through whole worlds: every one is answered, and takes as long as
//! can be computed.
#![allow(clippy::unwrap_used)]

use farhaul_link::LinkProfile;
use farhaul_sim::engine::{NS_PER_MS, NS_PER_S};
use farhaul_sim::http::{Architecture, Http, Outcome, Scenario, Study};
use farhaul_sim::tcp::Profile;
use farhaul_sim::workload::{Generator, Host, Request, SizeLaw, Weighted, Workload};

fn scenario(architecture: Architecture, http: Http) -> Scenario {
    let link: LinkProfile =
        "rate 34.368mbit framing ip queue 256000b forward delay 320ms backward delay 320ms"
            .parse()
            .unwrap();
    Scenario {
        link,
        architecture,
        http,
        profile: Profile::BSD44,
        proxy_buffer_bytes: 32_767,
        server_buffer_bytes: None,
        mss_bytes: 1460,
        idle_timeout_ns: 15 * NS_PER_S,
        overhead_bytes: 20,
        far_delay_ns: 0,
        warm_up_ns: 0,
        drain_ns: 300 * NS_PER_S,
        seed: 1,
    }
}

fn host() -> Host {
    Host {
        name: "host".into(),
        window_bytes: 32_767,
        mss_bytes: 1460,
    }
}

fn requests(list: &[(u64, u64, u64)]) -> Workload {
    let requests = list.iter().map(|(at_ms, reply_bytes, far_ms)| Request {
        at_ns: at_ms * NS_PER_MS,
        client: 0,
        host: 0,
        request_bytes: 328,
        reply_bytes: *reply_bytes,
        far_ns: far_ms * NS_PER_MS,
    });
    Workload {
        hosts: vec![host()],
        requests: requests.collect(),
        duration_ns: 60 * NS_PER_S,
    }
}

fn run(architecture: Architecture, http: Http, workload: &Workload) -> Outcome {
    let outcome = Study::new(&scenario(architecture, http), workload).run();
    assert_eq!((outcome.unanswered, &outcome.error), (0, &None));
    outcome
}

const POOL: Architecture = Architecture::Proxies { connections: 4 };

#[test]
fn one_segment_takes_two_round_trips_direct_and_one_between_proxies() {
    // 10 s: the pool is open; 300 ms in the far network; 0.35 ms for the reply.
    let workload = requests(&[(10_000, 1000, 300)]);
    let latency = |architecture| {
        run(architecture, Http::V10, &workload)
            .latency_s
            .mean()
            .unwrap()
    };
    assert!((latency(Architecture::Direct) - (2.0 * 0.64 + 0.3)).abs() < 0.002);
    assert!((latency(POOL) - (0.64 + 0.3)).abs() < 0.002);
}

#[test]
fn gateways_answer_at_once_where_they_know_the_host() {
    let workload = requests(&[
        (10_000, 1000, 300),
        (20_000, 1000, 300),
        (30_000, 100_000, 0),
    ]);
    let latency = run(Architecture::Pair { is_told: true }, Http::V10, &workload).latency_s;
    // The first host is asked for: two round trips. Then one, and a reply of
    // 100,000 bytes takes no longer than its bits: 24.5 ms.
    let near = |share, expected: f64| {
        let ours = latency.percentile(share).unwrap();
        assert!(
            (ours - expected).abs() < 0.01,
            "{ours} instead of {expected}"
        );
    };
    // Behind the far gateway the first segment may wait for a tick of 200 ms.
    let long = latency.percentile(0.0).unwrap() - 0.64 - 0.0245;
    assert!((0.0..0.2).contains(&long), "{long}");
    near(0.5, 0.64 + 0.3);
    near(1.0, 2.0 * 0.64 + 0.3);
}

#[test]
fn a_persistent_connection_saves_the_handshake_and_the_slow_start() {
    let three_segments = 3 * 1460;
    let workload = requests(&[
        (0, three_segments, 0),
        (10_000, three_segments, 0),
        (40_000, three_segments, 0),
    ]);
    let latency = |http| run(Architecture::Direct, http, &workload).latency_s;
    // 1.0: each the same. 1.1: the second is faster, the third finds its
    // connection closed after 15 s.
    let (old, new) = (latency(Http::V10), latency(Http::V11));
    assert!(old.percentile(1.0).unwrap() - old.percentile(0.0).unwrap() < 0.25);
    let fast = new.percentile(0.0).unwrap();
    assert!(
        (fast - 0.64).abs() < 0.01,
        "the window is open and nothing is set up: {fast}"
    );
    assert!(
        new.percentile(1.0).unwrap() > 3.0 * 0.64,
        "the third begins anew"
    );
    assert_eq!(run(Architecture::Direct, Http::V11, &workload).opened, 2);
}

#[test]
fn replies_keep_their_order_on_a_pipeline_and_do_not_with_h2() {
    // A slow reply first, a fast one behind it.
    let workload = requests(&[(0, 1000, 0), (5_000, 1000, 5_000), (5_001, 1000, 0)]);
    let run = |http| {
        let mut scenario = scenario(Architecture::Direct, http);
        // Or the third request waits for the acknowledgement of the second.
        scenario.profile.nagle = false;
        Study::new(&scenario, &workload).run()
    };
    let slowest_two = |http| {
        let latency = run(http).latency_s;
        (
            latency.percentile(0.5).unwrap(),
            latency.percentile(0.0).unwrap(),
        )
    };
    let (second, _) = slowest_two(Http::V11Pipelined);
    let (_, fast) = slowest_two(Http::H2);
    assert!(fast < 0.7, "{fast}");
    assert!(second > 1.2, "{second}");
    let pipelined = run(Http::V11Pipelined);
    assert!(pipelined.latency_s.percentile(1.0).unwrap() > 5.6);
    assert_eq!(pipelined.opened, run(Http::H2).opened);
}

#[test]
fn four_connections_are_all_a_client_of_1_0x4_has() {
    let many: Vec<_> = (0..9).map(|number| (number, 1000, 0)).collect();
    let workload = requests(&many);
    let four = run(Architecture::Direct, Http::V10x4, &workload);
    assert!((four.latency_s.max().unwrap() - 3.0 * 1.28).abs() < 0.3);
    assert!(four.sessions_max <= 9 && four.sessions_max >= 4);
    let all = run(Architecture::Direct, Http::V10, &workload);
    assert!((all.latency_s.max().unwrap() - 1.28).abs() < 0.01);
}

fn generated(load_bit_per_s: f64, duration_s: u64) -> Workload {
    let generator = Generator {
        hosts: 300,
        popularity_exponent: 0.8,
        request_bytes: 328,
        main: SizeLaw::of_mean(10_710.0, 25_032.0, 100, 2_000_000),
        embedded: SizeLaw::of_mean(7_758.0, 126_168.0, 50, 2_000_000),
        gap_s: 0.5,
        far_mean_s: 0.5,
        far_sigma: 1.0,
        windows: vec![
            Weighted {
                value: 8_760,
                weight: 1.0,
            },
            Weighted {
                value: 32_767,
                weight: 1.0,
            },
        ],
        segment_sizes: vec![
            Weighted {
                value: 536,
                weight: 1.0,
            },
            Weighted {
                value: 1460,
                weight: 3.0,
            },
        ],
    };
    generator.trace(1, 0, duration_s * NS_PER_S, load_bit_per_s)
}

#[test]
fn every_request_is_answered_in_every_world() {
    let workload = generated(5e6, 20);
    for (_, http) in Http::NAMED {
        for architecture in [
            Architecture::Direct,
            POOL,
            Architecture::Pair { is_told: false },
        ] {
            let outcome = run(architecture, http, &workload);
            assert_eq!(outcome.judged, workload.requests.len() as u64);
            let bytes: u64 = workload
                .requests
                .iter()
                .map(|request| request.reply_bytes)
                .sum();
            assert_eq!(outcome.delivered_bytes, bytes, "{architecture:?} {http:?}");
        }
    }
}

#[test]
fn a_link_slower_than_the_load_ends_with_its_queue_bounded() {
    let workload = generated(80e6, 10);
    let mut slow = scenario(Architecture::Direct, Http::V10);
    slow.drain_ns = 30 * NS_PER_S;
    let outcome = Study::new(&slow, &workload).run();
    assert!(outcome.ended_ns <= 41 * NS_PER_S);
    assert!(outcome.inbound.queue_bytes_max <= 256_000 && outcome.inbound.drops.queue > 0);
    assert!(outcome.unanswered > 0 && outcome.error.is_none());
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let outcome = Study::new(&scenario(POOL, Http::V11), &Workload::default()).run();
    assert_eq!((outcome.judged, outcome.latency_s.mean()), (0, None));
    let empty = run(Architecture::Direct, Http::V10, &requests(&[(0, 0, 0)]));
    assert!((empty.latency_s.max().unwrap() - 1.28).abs() < 0.001);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let workload = generated(5e6, 10);
    let hash = |seed| {
        let seeded = Scenario {
            seed,
            ..scenario(Architecture::Direct, Http::V11)
        };
        Study::new(&seeded, &workload).run().trace
    };
    let first = hash(1);
    assert_eq!(first, hash(1));
    assert_eq!(
        first,
        std::thread::spawn(move || hash_on_a_thread(1))
            .join()
            .unwrap()
    );
    assert_ne!(first, hash(2));
}

fn hash_on_a_thread(seed: u64) -> String {
    let seeded = Scenario {
        seed,
        ..scenario(Architecture::Direct, Http::V11)
    };
    Study::new(&seeded, &generated(5e6, 10)).run().trace
}

/// Hosts without ticks, which would fall elsewhere after a change.
fn without_ticks(architecture: Architecture) -> Scenario {
    Scenario {
        profile: Profile::MODERN,
        ..scenario(architecture, Http::V11)
    }
}

#[test]
fn hosts_in_another_order_are_the_same_world() {
    let workload = generated(5e6, 10);
    let last = u32::try_from(workload.hosts.len() - 1).unwrap();
    let mut turned = workload.clone();
    turned.hosts.reverse();
    for request in &mut turned.requests {
        request.host = last - request.host;
    }
    for architecture in [Architecture::Direct, POOL] {
        let scenario = without_ticks(architecture);
        let trace = |workload| Study::new(&scenario, workload).run().trace;
        assert_eq!(trace(&workload), trace(&turned));
    }
}

#[test]
fn a_delay_behind_the_link_is_a_delay_of_the_link_for_who_asks_directly() {
    let workload = generated(5e6, 10);
    let behind = Scenario {
        far_delay_ns: 50 * NS_PER_MS,
        ..without_ticks(Architecture::Direct)
    };
    let mut before = without_ticks(Architecture::Direct);
    before.link.forward.delay_ns += 50 * NS_PER_MS;
    before.link.backward.delay_ns += 50 * NS_PER_MS;
    let trace = |scenario| Study::new(scenario, &workload).run().trace;
    assert_eq!(trace(&behind), trace(&before));
}

#[test]
fn twice_the_delay_takes_a_small_reply_twice_as_long() {
    let workload = requests(&[(0, 1000, 0)]);
    let latency = |factor| {
        let mut scenario = without_ticks(Architecture::Direct);
        scenario.link.forward.rate = None;
        scenario.link.backward.rate = None;
        scenario.link.forward.delay_ns *= factor;
        scenario.link.backward.delay_ns *= factor;
        let outcome = Study::new(&scenario, &workload).run();
        outcome.latency_s.mean().unwrap()
    };
    assert!((latency(2) - 2.0 * latency(1)).abs() < 1e-9);
}
