//! Figures that are known before they are measured: what rate, round trip, window
//! and loss of a circuit make of them.

use std::ops::Range;

use serde_json::Value;

use crate::{Circuit, faults, lab, notes};

const RATE_BIT_PER_S: f64 = 25e6;
const RTT_S: f64 = 0.06;
/// What the server's program advertises, five times what the circuit holds: the
/// rest waits in the queue, which has room for it.
const WINDOW_BYTES: f64 = 900_000.0;
/// Ethernet frame by payload of a full segment.
const FRAME_SHARE: f64 = 1514.0 / 1448.0;
/// Every so-manieth full segment from the server is lost.
const LOST_EVERY: f64 = 25.0;

/// How long the window takes over the line, which nothing else is sent over: the
/// round trip of a stream that fills it.
const LOADED_RTT_S: f64 = WINDOW_BYTES * FRAME_SHARE * 8.0 / RATE_BIT_PER_S;

/// Up, a window stands in a deep queue and nothing is lost; down, the circuit is
/// the same for all but TCP's full segments.
fn examined() -> Value {
    let words = "rate 25mbit delay 30ms forward queue 1s";
    let mut options = lab("figures", words);
    // Opens its window until something is lost, where cubic stops at a delay.
    options.congestion_control = "reno".to_owned();
    let circuit = Circuit::of(&options, &["--window", "900000"]);
    circuit.rules(&format!(
        "table inet box {{
            chain lose {{
                type filter hook forward priority 0;
                iifname wan0 tcp sport 5201 meta length > 1000 numgen inc mod {LOST_EVERY} == 0 drop
            }}
        }}"
    ));
    circuit.examined_with(&["--time", "2"])
}

#[test]
fn the_figures_of_a_known_circuit_are_what_it_makes_of_them() {
    let report = examined();
    let idle_s = seconds(&report["observations"]["idle"]["p50_us"]);
    is_within("idle round trip", idle_s / RTT_S, 0.99..1.4);
    transactions_take_their_round_trips(&report["observations"]["transactions"]);
    what_a_queue_costs_everybody_is_seen(&report, idle_s);
    rfc6349_has_its_three_figures(&report);
    a_box_that_loses_changes_nothing(&report);
}

fn seconds(us: &Value) -> f64 {
    us.as_f64().unwrap() / 1e6
}

fn is_within(what: &str, value: f64, range: Range<f64>) {
    assert!(
        range.contains(&value),
        "{what}: {value} is not in {range:?}"
    );
}

/// One round trip for a byte there and back, and one more for a new connection.
/// Quicker than that nothing can be; a machine with other work is slower.
fn transactions_take_their_round_trips(made: &Value) {
    for (name, round_trips) in [("on_one_connection", 1.0), ("on_new_connections", 2.0)] {
        let per_s = made[format!("{name}_per_s")].as_f64().unwrap();
        is_within(name, per_s * round_trips * RTT_S, 0.7..1.01);
        // Half a second of each, and the last one to its end.
        let times = made[name].as_f64().unwrap();
        is_within(name, times / per_s, 0.5..1.5);
    }
}

fn what_a_queue_costs_everybody_is_seen(report: &Value, idle_s: f64) {
    let latency = |test: &str| report["observations"][test]["latency"].clone();
    let (up, down) = (latency("tcp_up"), latency("tcp_down"));
    is_within("up", seconds(&up["p50_us"]) / LOADED_RTT_S, 0.7..1.3);
    is_within("down", seconds(&down["p50_us"]) / idle_s, 0.7..1.4);
    for latency in [&up, &down] {
        // One in 50 ms; no datagram is lost here, but the last may be waited for in vain.
        let (sent, received) = (latency["sent"].as_f64(), latency["received"].as_f64());
        is_within("sent", sent.unwrap(), 20.0..200.0);
        is_within("received", received.unwrap() / sent.unwrap(), 0.8..1.01);
    }
    let grows = |way| format!("under load {way} the round trip grows from ");
    let is_noted = |way| {
        notes(report)
            .iter()
            .any(|note| note.starts_with(&grows(way)))
    };
    assert!(is_noted("up") && !is_noted("down"), "{:?}", notes(report));
}

fn rfc6349_has_its_three_figures(report: &Value) {
    let ways = report["rfc6349"].as_array().unwrap();
    let [up, down] = &ways[..] else {
        panic!("{ways:?}");
    };
    assert_eq!(
        (&up["direction"], &down["direction"]),
        (&"up".into(), &"down".into())
    );
    let figure = |way: &Value, name: &str| way[name].as_f64().unwrap();
    // Ideal, but for the start of the stream.
    is_within("ratio up", figure(up, "transfer_time_ratio"), 0.85..1.4);
    // A machine that is held up may take something for lost.
    is_within(
        "efficiency up",
        figure(up, "tcp_efficiency_percent"),
        99.5..100.01,
    );
    let expected = (LOADED_RTT_S / RTT_S - 1.0) * 100.0;
    is_within(
        "delay up",
        figure(up, "buffer_delay_percent") / expected,
        0.6..1.3,
    );
    // Reno at this loss: 1.2 segments / (RTT * sqrt(1 / 25)), 1.2 Mbit/s of 24, and less where it
    // has to wait for a time-out.
    is_within("ratio down", figure(down, "transfer_time_ratio"), 6.0..60.0);
    let efficiency = figure(down, "tcp_efficiency_percent");
    is_within(
        "efficiency",
        100.0 - efficiency,
        50.0 / LOST_EVERY..250.0 / LOST_EVERY,
    );
    is_within(
        "delay down",
        figure(down, "buffer_delay_percent"),
        -30.0..50.0,
    );
}

/// Nothing was rewritten, and nobody says so.
fn a_box_that_loses_changes_nothing(report: &Value) {
    let path = &report["observations"]["path"];
    for way in ["up", "down"] {
        assert_eq!(path[format!("{way}_mtu_bytes")], 1500, "{path}");
        assert_eq!(path[format!("{way}_rewritten")], Value::Array(Vec::new()));
    }
    let boxes = |note: &&str| note.contains("a box on the way") || note.contains("type of service");
    assert_eq!(notes(report).into_iter().find(boxes), None);
    let host = [
        "mtu_black_hole",
        "window_scaling",
        "receive_window",
        "send_buffer",
    ];
    assert!(
        !faults(report).iter().any(|fault| host.contains(fault)),
        "{}",
        report["verdict"]
    );
}
