//! Our server with the real client.

use std::sync::Arc;

use farhaul_lab::probe::iperf3::{Iperf3Plan, run};
use farhaul_lab::probe::tcp_test::{Direction, TcpPlan};
use farhaul_lab::probe::{Client, ServerOptions};
use serde_json::Value;

use crate::{Ours, bytes, dropped, ended, on_the_way_bytes, plan};

#[test]
fn the_real_client_tests_tcp_with_our_server() {
    let server = Ours::start(32);
    for (words, streams) in [
        ("-t 1", 1),
        ("-t 1 -R", 1),
        ("-t 1 -P 3", 3),
        ("-t 1 -P 2 --bidir", 4),
        ("-t 1 -w 64k -M 1000 -C reno", 1),
        ("-t 1 -O 1 -R", 1),
        ("-n 300M", 1),
    ] {
        let report = server.client(words);
        assert_eq!(report["error"], Value::Null, "{words}");
        let end = &report["end"];
        assert_eq!(end["streams"].as_array().unwrap().len(), streams, "{words}");
        for way in ["", "_bidir_reverse"] {
            let Some(sent) = end.get(format!("sum_sent{way}")) else {
                assert!(!way.is_empty(), "{words}");
                continue;
            };
            let received = &end[format!("sum_received{way}")];
            let (sent, received) = (bytes(sent), bytes(received));
            // Where the first second is left out, what was on its way then counts at
            // the receiver only; else each end decides on its last blocks for itself.
            let on_the_way = on_the_way_bytes() * streams as f64;
            let before = if words.contains("-O") {
                on_the_way
            } else {
                1e6
            };
            assert!(sent > 1e6 && received > 0.0, "{words}: {end}");
            // A sender goes on until it hears of the end, which may take as long again.
            assert!(
                received >= (sent - on_the_way).min(sent / 2.0),
                "{words}: {end}"
            );
            assert!(received <= sent + before, "{words}: {end}");
        }
    }
}

#[test]
fn the_real_client_tests_udp_with_our_server() {
    let server = Ours::start(32);
    for (words, streams) in [
        ("-u -t 1 -b 5M -l 1000", 1),
        ("-u -t 1 -b 5M -l 1000 -R", 1),
        ("-u -t 1 -b 2M -l 500 -P 2 --bidir --udp-counters-64bit", 4),
    ] {
        let before = dropped();
        let report = server.client(words);
        let dropped = dropped() - before;
        assert_eq!(report["error"], Value::Null, "{words}");
        let end = &report["end"];
        let all = end["streams"].as_array().unwrap();
        assert_eq!(all.len(), streams, "{words}");
        for stream in all {
            let udp = &stream["udp"];
            let packets = udp["packets"].as_f64().unwrap();
            assert!(packets > 100.0, "{words}: {udp}");
            let lost = udp["lost_packets"].as_f64().unwrap();
            assert!((0.0..=dropped).contains(&lost), "{words}: {udp} {dropped}");
        }
    }
}

#[test]
fn the_real_client_gets_the_settings_it_asks_for() {
    let server = Ours::start(32);
    let whole = |words: &str| {
        let report = server.client(words);
        assert_eq!(report["error"], Value::Null, "{words}");
        report
    };
    for words in [
        "-t 1 -w 64k -M 1000 -C reno",
        "-t 1 -w 64k -M 1000 -C reno -R",
    ] {
        let report = whole(words);
        // The segments of both ends, for each heard the other's.
        assert_eq!(report["start"]["tcp_mss"], 1000, "{words}");
        // One end's own, the other as our server tells it.
        for end in ["sender_tcp_congestion", "receiver_tcp_congestion"] {
            assert_eq!(report["end"][end], "reno", "{words}");
        }
        let sender = &report["end"]["streams"][0]["sender"];
        // Linux doubles what is asked for; -R shows nothing of the sender's kernel.
        let window_bytes = sender["max_snd_wnd"].as_u64().unwrap();
        assert!(window_bytes <= 128 << 10, "{words}: {sender}");
    }
    for (words, wanted) in [("-n 3M", 3_145_728.0), ("-k 30 -l 10000", 300_000.0)] {
        let end = &whole(words)["end"];
        let (sent, received) = (bytes(&end["sum_sent"]), bytes(&end["sum_received"]));
        assert_eq!(sent, wanted, "{words}");
        assert!(received <= sent, "{words}: {end}");
    }
    for words in ["-t 1 -b 20M -l 10000", "-t 1 -b 20M -l 10000 -R"] {
        let sent = &whole(words)["end"]["sum_sent"];
        // By the sender's own clock, and a block or two before the first pause.
        let most = sent["end"].as_f64().unwrap() * 2.5e6 + 30_000.0;
        assert!(bytes(sent) > 0.0 && bytes(sent) <= most, "{words}: {sent}");
    }
}

#[test]
fn several_clients_are_served_at_once_and_no_more_than_allowed() {
    let server = Ours::start(2);
    let mut ours = Client::connect("127.0.0.1", server.address.port(), Arc::default()).unwrap();
    let long = server.start_client("-t 4");
    let others = |ours: &mut Client| {
        let moment = TcpPlan::new(Direction::Up, 1);
        ours.tcp(&moment).unwrap().other_sessions
    };
    while others(&mut ours) == 0 {}
    let third = server.client("-t 1");
    let busy = third["error"].as_str().unwrap();
    assert!(busy.contains("busy"), "{busy}");
    drop(ours);
    assert_eq!(ended(long)["error"], Value::Null);
    let server = Ours::start(2);
    let pair = ["-t 1", "-t 1 -u -b 2M -l 1000"].map(|words| server.start_client(words));
    for child in pair {
        assert_eq!(ended(child)["error"], Value::Null);
    }
}

/// All of them send to one port: whose a datagram is shows by where it comes from.
#[test]
fn several_clients_with_datagrams_at_once_keep_their_own_counts() {
    let server = Ours::start(32);
    let before = dropped();
    let clients = [
        ("-u -t 2 -b 4M -l 500", 500.0),
        ("-u -t 2 -b 2M -l 1000", 1000.0),
        ("-u -t 2 -b 3M -l 750 -R", 750.0),
        ("-u -t 2 -b 2M -l 250 -P 2 --bidir", 250.0),
    ]
    .map(|(words, block)| (words, block, server.start_client(words)));
    for (words, block, client) in clients {
        let report = ended(client);
        assert_eq!(report["error"], Value::Null, "{words}");
        for stream in report["end"]["streams"].as_array().unwrap() {
            let udp = &stream["udp"];
            let number = |field: &str| udp[field].as_f64().unwrap();
            let (packets, lost) = (number("packets"), number("lost_packets"));
            assert!(packets > 100.0, "{words}: {udp}");
            // Another client's would have another length, and numbers of their own.
            assert_eq!(number("bytes"), packets * block, "{words}: {udp}");
            let dropped = dropped() - before;
            assert!((0.0..=dropped).contains(&lost), "{words}: {udp} {dropped}");
            assert_eq!(number("out_of_order"), 0.0, "{words}: {udp}");
        }
    }
}

#[test]
fn the_servers_own_window_holds_unless_a_client_asks_for_one() {
    let server = Ours::with(ServerOptions {
        window_bytes: Some(16 << 10),
        ..ServerOptions::default()
    });
    let mut plan = plan(Direction::Up);
    plan.mss_bytes = Some(1400);
    let window_of = |plan: &Iperf3Plan| {
        let result = run("127.0.0.1", server.address.port(), plan, Arc::default()).unwrap();
        result.up.unwrap().streams[0]
            .state
            .unwrap()
            .send_window_bytes
    };
    let own = window_of(&plan);
    assert!(own <= 16 << 10, "{own}");
    plan.window_bytes = Some(128 << 10);
    // It is what is left at the end: nothing, where the reader was held up just then.
    let windows: Vec<u32> = (0..5).map(|_| window_of(&plan)).collect();
    assert!(
        windows.iter().any(|window| *window > 16 << 10),
        "{windows:?}"
    );
}
