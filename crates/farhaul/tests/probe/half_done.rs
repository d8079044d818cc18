//! A server that is gone after the first of several tests: the document holds what
//! was measured until then, and why there is no more.

use std::thread;

use serde_json::Value;

use crate::odd_ends::{Deed, Harm, RESULT, between, only, outcome, run};
use crate::{Server, report};

/// The server's first word of the second test.
const SECOND: u32 = RESULT + 1;

fn closes(number: u32, text: String) -> Deed {
    only(number, SECOND, text, Deed::Close)
}

fn falls_silent(number: u32, text: String) -> Deed {
    only(number, SECOND, text, Deed::Stall)
}

/// What was seen until the server turned bad.
fn seen(words: &[&str], harm: Harm, code: &str) -> Value {
    let server = Server::start();
    let document = report(&run(words, &between(&server, harm)));
    assert_eq!(outcome(&document), (code.to_owned(), 6), "{words:?}");
    assert!(document["verdict"].is_null() && document["link_profile"].is_null());
    let seen = &document["observations"];
    assert!(seen["client_host"].is_object() && seen["server_host"].is_object());
    document
}

/// The one result of a list.
fn only_one<'a>(seen: &'a Value, list: &str) -> &'a Value {
    let results = seen["observations"][list].as_array().unwrap();
    assert_eq!(results.len(), 1, "{list}");
    &results[0]
}

#[test]
fn what_was_measured_before_a_server_was_gone_is_kept() {
    let cases: [(Harm, &str); 2] = [(closes, "lost"), (falls_silent, "silent")];
    thread::scope(|scope| {
        for (harm, code) in cases {
            scope.spawn(move || {
                let words = ["tcp", "--time", "0.3", "--streams", "2,3,4"];
                let seen = seen(&words, harm, code);
                let test = only_one(&seen, "tcp");
                let streams = test["up"]["streams"].as_array().unwrap();
                assert_eq!((&test["plan"]["streams"], streams.len()), (&2.into(), 2));
                for stream in streams {
                    let bytes = |end: &str| stream[end]["bytes"].as_u64().unwrap();
                    assert!(bytes("sender") > 0 && bytes("sender") == bytes("receiver"));
                }
                assert!(test["up"]["steady_bit_per_s"].as_f64().unwrap() > 1e6);
            });
            scope.spawn(move || {
                let seen = seen(&["udp", "--time", "0.3", "--rate", "2,3,4"], harm, code);
                let test = only_one(&seen, "flows");
                let sent = test["up"]["sent"].as_u64().unwrap();
                // 2 Mbit/s, not 3 or 4.
                let planned = 2e6 * 0.3 / 8.0;
                let bytes = test["plan"]["payload_bytes"].as_u64().unwrap();
                let share = (sent * bytes) as f64 / planned;
                assert!((0.3..1.2).contains(&share), "{sent} of {bytes} bytes");
                assert!(test["up"]["count"]["received"].as_u64().unwrap() > 0);
            });
            scope.spawn(move || {
                let seen = seen(&["sweep", "--time", "0.2", "--most", "16k"], harm, code);
                // The first is the one without a limit.
                let step = only_one(&seen, "sweep");
                assert!(step["window_bytes"].is_null(), "{step}");
                assert!(step["measured_bit_per_s"].as_f64().unwrap() > 1e6);
            });
        }
    });
}

#[test]
fn an_examination_keeps_every_step_before_the_one_that_failed() {
    // The result of the stream down never comes.
    let harm: Harm =
        |_, text| match text.contains("\"tcp_done\"") && text.contains("\"goes_up\":false") {
            true => Deed::Close,
            false => Deed::Pass(text),
        };
    let document = seen(&["diagnose", "--time", "1"], harm, "lost");
    let seen = document["observations"].as_object().unwrap();
    let before = [
        "idle",
        "path",
        "trains",
        "flood_up",
        "flood_down",
        "quiet_up",
        "quiet_down",
    ];
    for step in before.iter().chain(&["both_loaded", "tcp_up"]) {
        assert!(seen[*step].is_object(), "{step}");
    }
    for step in ["tcp_down", "transactions"] {
        assert!(seen[step].is_null(), "{step}");
    }
    let ways = document["rfc6349"].as_array().unwrap();
    let ways: Vec<_> = ways.iter().map(|way| &way["direction"]).collect();
    assert_eq!(ways, ["up"]);
}
