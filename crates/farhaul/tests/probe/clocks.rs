//! Two hosts whose clocks differ: the document has the times of one.

use serde_json::{Value, json};

use crate::odd_ends::{Deed, between, run};
use crate::{Server, report};

/// How far the server's clock is ahead: more than any test takes.
const AHEAD_NS: u64 = 1_000_000_000_000;

/// The server's answer, had its clock been ahead.
fn ahead(_: u32, text: String) -> Deed {
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    set_forward(&mut answer);
    Deed::Pass(answer.to_string())
}

fn set_forward(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(set_forward),
        Value::Object(fields) => {
            for (name, field) in fields {
                let is_time = ["at_ns", "start_ns", "first_ns", "last_ns"].contains(&name.as_str());
                match field.as_u64().filter(|_| is_time) {
                    Some(ns) => *field = json!(ns + AHEAD_NS),
                    None => set_forward(field),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn a_server_whose_clock_is_ahead_is_seen_in_the_clients_time() {
    let server = Server::start();
    let port = between(&server, ahead);
    let seen = report(&run(&["tcp", "--time", "0.5", "--way", "both"], &port));
    let test = &seen["observations"]["tcp"][0];
    for way in ["up", "down"] {
        let stream = &test[way]["streams"][0];
        let apart_s = |time: &dyn Fn(&Value) -> u64| {
            let [sender, receiver] = ["sender", "receiver"].map(|end| time(&stream[end]));
            sender.abs_diff(receiver) as f64 / 1e9
        };
        for name in ["start_ns", "first_ns", "last_ns"] {
            let apart_s = apart_s(&|end| end[name].as_u64().unwrap());
            // A host that is held up begins late; it is no quarter of an hour.
            assert!(apart_s < 10.0, "{way} {name}: {apart_s}");
        }
        let apart_s = apart_s(&|end| end["samples"][0]["at_ns"].as_u64().unwrap());
        assert!(apart_s < 10.0, "{way}: {apart_s}");
        // The receiver's samples are of the time in which was sent.
        assert!(test[way]["steady_bit_per_s"].as_f64().unwrap() > 1e6);
    }
}
