//! What is worth knowing and no fault, and what a verdict rests on.

use super::*;
use crate::probe::observe::StreamPair;
use crate::probe::socket_state::{SocketSettings, TcpState};
use crate::probe::syn::SynOptions;
use crate::probe::tcp_test::StreamEnd;

#[test]
fn other_clients_are_noted_whenever_they_were_there() {
    type Meet = fn(&mut Observations) -> &mut u32;
    let meets: [Meet; 5] = [
        |seen| &mut seen.other_sessions,
        |seen| &mut seen.quiet_down.as_mut().unwrap().other_sessions,
        |seen| &mut seen.both_loaded.as_mut().unwrap().other_sessions,
        |seen| &mut seen.tcp_up.as_mut().unwrap().test.other_sessions,
        |seen| &mut seen.tcp_down.as_mut().unwrap().test.other_sessions,
    ];
    for (nth, meet) in meets.into_iter().enumerate() {
        let verdict = changed(|seen| *meet(seen) = 3);
        let is_told = |note: &String| note.contains("up to 3 other clients");
        assert_eq!(
            verdict.notes.iter().filter(|note| is_told(note)).count(),
            1,
            "{nth}"
        );
    }
    let mut report = Report::new("x");
    report.observations.tcp = vec![clean().tcp_up.unwrap().test];
    report.observations.tcp[0].other_sessions = 1;
    assert!(crate::probe::text::of(&report).contains("1 other clients"));
}

#[test]
fn copies_are_noted_and_replayed_and_no_loss() {
    let mut seen = clean();
    let twice = FlowCount {
        duplicates: 600,
        ..FlowCount::default()
    };
    seen.quiet_down = flow(Direction::Down, way(60_000, 0, twice));
    let verdict = diagnose(&seen);
    assert_eq!(verdict.faults(), []);
    assert!(verdict.notes[0].contains("600 of 60000"), "{verdict:?}");
    let words = crate::probe::link_words::of(&seen).unwrap();
    assert!(
        words.contains("backward") && words.contains("duplicate 1%"),
        "{words}"
    );
}

#[test]
fn what_came_out_of_order_is_replayed() {
    let mut seen = clean();
    let late = FlowCount {
        reordered: 1200,
        reorder_places_max: 40,
        delays: Delays {
            max_us: 5000,
            ..Delays::default()
        },
        ..FlowCount::default()
    };
    seen.quiet_up = flow(Direction::Up, way(60_000, 0, late));
    let words = crate::probe::link_words::of(&seen).unwrap();
    assert!(words.contains("reorder 2% 5ms"), "{words}");
}

/// A stream whose handshake agreed on these options.
fn agreed_on(options: u8) -> StreamPair {
    let end = |sends| StreamEnd {
        connection: 0,
        goes_up: true,
        sends,
        start_ns: 0,
        first_ns: None,
        last_ns: None,
        bytes: 0,
        settings: SocketSettings {
            at_start: TcpState {
                options,
                ..TcpState::default()
            },
            ..SocketSettings::default()
        },
        samples: Vec::new(),
        error: None,
    };
    StreamPair {
        sender: end(true),
        receiver: end(false),
    }
}

/// A DSL router's clamp takes eight bytes, fewer than timestamps do.
#[test]
fn an_mss_that_is_lowered_a_little_is_noted() {
    const TIMESTAMPS: u8 = 1;
    let notes = |options, advertised_mss_bytes, arrived| {
        let verdict = changed(|seen| {
            let mut pair = agreed_on(options);
            pair.sender.settings.at_start.advertised_mss_bytes = advertised_mss_bytes;
            pair.receiver.settings.syn = Some(SynOptions {
                mss_bytes: Some(arrived),
                ..SynOptions::default()
            });
            let mut back = pair.clone();
            std::mem::swap(&mut back.sender, &mut back.receiver);
            let test = &mut seen.tcp_up.as_mut().unwrap().test;
            test.up.as_mut().unwrap().streams = vec![pair];
            let test = &mut seen.tcp_down.as_mut().unwrap().test;
            test.down.as_mut().unwrap().streams = vec![back];
        });
        let about = |note: &String| note.contains("lowers the MSS");
        let mut told = verdict.notes.into_iter().filter(about);
        let first = told.next();
        assert_eq!(told.next(), None);
        first
    };
    let lowered = "a box on the way lowers the MSS from 1460 to 1452 bytes";
    assert_eq!(notes(TIMESTAMPS, 1448, 1452).as_deref(), Some(lowered));
    assert_eq!(notes(0, 1460, 1452).as_deref(), Some(lowered));
    assert_eq!(notes(TIMESTAMPS, 1448, 1460), None);
    assert_eq!(notes(0, 1460, 1460), None);
}

#[test]
fn options_that_both_hosts_have_and_no_stream_are_noted() {
    let notes = |options: u8, theirs: bool| {
        let verdict = changed(|seen| {
            for (host, is_on) in [
                (&mut seen.client_host, true),
                (&mut seen.server_host, theirs),
            ] {
                let host = host.as_mut().unwrap();
                (host.sack, host.timestamps) = (Some(is_on), Some(is_on));
            }
            let test = &mut seen.tcp_up.as_mut().unwrap().test;
            test.up.as_mut().unwrap().streams = vec![agreed_on(options)];
        });
        assert_eq!(verdict.faults(), []);
        let removed = |note: &&String| note.contains("a box on the way removes TCP option");
        verdict
            .notes
            .iter()
            .filter(removed)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(notes(7, true), [""; 0]);
    let without_sack = notes(5, true);
    assert!(
        without_sack[0].contains("option 4") && without_sack.len() == 1,
        "{without_sack:?}"
    );
    assert_eq!(notes(4, true).len(), 2);
    // A host that has them off is no box.
    assert_eq!(notes(4, false), [""; 0]);
}

#[test]
fn without_a_rate_no_circuit_is_clean() {
    let mut seen = clean();
    for loaded in [&mut seen.tcp_up, &mut seen.tcp_down] {
        let test = &mut loaded.as_mut().unwrap().test;
        for way in [&mut test.up, &mut test.down].into_iter().flatten() {
            (way.mean_bit_per_s, way.steady_bit_per_s) = (None, None);
        }
    }
    let verdict = diagnose(&seen);
    assert_eq!(verdict.faults(), []);
    assert!(
        !verdict.sentence.contains("No fault"),
        "{}",
        verdict.sentence
    );
    assert!(!verdict.is_grounded(&seen) && diagnose(&clean()).is_grounded(&clean()));
}

#[test]
fn counts_that_cannot_be_have_no_sum_that_overflows() {
    let mut seen = clean();
    let odd = || way(u64::MAX, 1, FlowCount::default());
    seen.quiet_up = flow(Direction::Up, odd());
    seen.quiet_down = flow(Direction::Down, odd());
    assert_eq!(diagnose(&seen).faults(), []);
}

/// What is said of a SYN that arrived so at the server, from a client of such a
/// setting, whose stream has these options.
fn told_of_syn(ecn: (u64, u64), options: u8, syn: SynOptions) -> Vec<String> {
    let verdict = changed(|seen| {
        seen.client_host.as_mut().unwrap().ecn = Some(ecn.0);
        seen.server_host.as_mut().unwrap().ecn = Some(ecn.1);
        for (loaded, goes_up) in [(&mut seen.tcp_up, true), (&mut seen.tcp_down, false)] {
            let test = &mut loaded.as_mut().unwrap().test;
            let way = if goes_up {
                &mut test.up
            } else {
                &mut test.down
            };
            let mut pair = agreed_on(options);
            (pair.sender.goes_up, pair.receiver.goes_up) = (goes_up, goes_up);
            let (client, server) = match goes_up {
                true => (&mut pair.sender, &mut pair.receiver),
                false => (&mut pair.receiver, &mut pair.sender),
            };
            server.settings.syn = Some(syn);
            // Only the client knows what it asked for and what was answered.
            server.settings.at_start.options = 0xff;
            client.settings.at_start.options = options;
            way.as_mut().unwrap().streams = vec![pair];
        }
    });
    assert_eq!(verdict.faults(), []);
    let of_others = |note: &String| !note.contains("differs:");
    verdict.notes.into_iter().filter(of_others).collect()
}

#[test]
fn a_syn_that_arrives_without_the_ecn_it_asked_for_is_noted_once() {
    let syn = |asks_ecn| SynOptions {
        asks_ecn,
        ..SynOptions::default()
    };
    const ALL: u8 = 15;
    assert_eq!(told_of_syn((2, 2), 7, syn(false)), [""; 0]);
    assert_eq!(told_of_syn((1, 2), ALL, syn(true)), [""; 0]);
    let cleared = told_of_syn((1, 2), 7, syn(false));
    assert!(
        cleared.len() == 1 && cleared[0].contains("its SYN arrives without"),
        "{cleared:?}"
    );
    let answer = told_of_syn((1, 2), 7, syn(true));
    assert!(
        answer.len() == 1 && answer[0].contains("its answer arrives without"),
        "{answer:?}"
    );
    // A server that never agrees is no box.
    assert_eq!(told_of_syn((1, 0), 7, syn(true)), [""; 0]);
}

#[test]
fn a_syn_of_another_mark_is_noted_where_datagrams_keep_theirs() {
    let syn = SynOptions {
        tos: 0x2a,
        ..SynOptions::default()
    };
    let told = told_of_syn((2, 2), 7, syn);
    assert!(
        told.len() == 1 && told[0].contains("from 0 to 10"),
        "{told:?}"
    );
    let mut seen = clean();
    let streams = &mut seen.tcp_up.as_mut().unwrap().test;
    let mut pair = agreed_on(7);
    pair.receiver.settings.syn = Some(syn);
    streams.up.as_mut().unwrap().streams = vec![pair];
    seen.path.as_mut().unwrap().up_rewritten = vec![Rewriting {
        sent: 0,
        arrived: 0x28,
    }];
    let notes = diagnose(&seen).notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
}
