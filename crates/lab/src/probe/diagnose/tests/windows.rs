//! Small receive windows: whose they are, and what changes them.

use super::*;
use crate::probe::observe::StreamPair;
use crate::probe::socket_state::SocketSettings;
use crate::probe::tcp_test::StreamEnd;

/// A stream up that its receiver's window holds back.
fn held_back(seen: &mut Observations, window_bytes: u64) {
    slow(seen, |figures| {
        figures.receive_window_limited = 0.97;
        figures.send_window_steady_bytes = window_bytes;
    });
}

/// The program that receives has fixed its buffer.
fn fix_buffer(seen: &mut Observations) {
    let settings = SocketSettings {
        receive_buffer_fixed: Some(true),
        ..SocketSettings::default()
    };
    let receiver = StreamEnd {
        settings,
        ..StreamEnd::default()
    };
    let loaded = seen.tcp_up.as_mut().unwrap();
    loaded.test.up.as_mut().unwrap().streams = vec![StreamPair {
        receiver,
        ..StreamPair::default()
    }];
}

fn remedy_up(verdict: &Verdict) -> &str {
    let is_it = |finding: &&Finding| {
        finding.fault == Fault::ReceiveWindow && finding.direction == Some(Direction::Up)
    };
    &verdict.findings.iter().find(is_it).unwrap().remedy
}

#[test]
fn a_first_window_larger_than_what_is_kept_to_hides_nothing() {
    // The circuit holds 25 KB, and the first sample has 32.
    let verdict = changed(|seen| {
        seen.idle = Some(latency(4_000));
        slow(seen, |figures| {
            figures.receive_window_limited = 0.97;
            figures.send_window_max_bytes = 33_280;
            figures.send_window_steady_bytes = 8_192;
        });
        fix_buffer(seen);
    });
    assert_eq!(verdict.faults(), [Fault::ReceiveWindow]);
    let finding = &verdict.findings[0];
    assert!(
        finding
            .sentence
            .contains("The server's receive window of 8.0 KB"),
        "{finding:?}"
    );
    assert!(
        finding.evidence[0].contains("8192 bytes in the second half"),
        "{finding:?}"
    );
    assert!((finding.expected_bit_per_s.unwrap() - 49.2e6).abs() < 0.1e6);
}

#[test]
fn what_is_to_be_changed_is_what_keeps_the_window_small() {
    let told = |change: fn(&mut Observations)| {
        let verdict = changed(|seen| {
            held_back(seen, 8_192);
            change(seen);
        });
        let remedy = remedy_up(&verdict).to_owned();
        (remedy.contains("sysctl -w"), remedy.contains("SO_RCVBUF"))
    };
    let set = |seen: &mut Observations| {
        seen.server_host.as_mut().unwrap().receive_buffer_bytes = Some([4096, 8192, 16_384]);
    };
    assert_eq!(told(|_| {}), (false, true));
    assert_eq!(told(fix_buffer), (false, true));
    assert_eq!(told(set), (true, false));
    // A circuit that holds more than Linux allows by itself, and a fixed buffer.
    let both = told(|seen| {
        seen.idle = Some(latency(2_000_000));
        fix_buffer(seen);
    });
    assert_eq!(both, (true, true));
    let verdict = changed(|seen| {
        held_back(seen, 8_192);
        fix_buffer(seen);
        seen.server_host
            .as_mut()
            .unwrap()
            .receive_buffer_set_max_bytes = Some(212_992);
    });
    assert!(
        remedy_up(&verdict).contains("rmem_max there allows 212992"),
        "{verdict:?}"
    );
}

#[test]
fn a_fixed_buffer_that_loss_hides_is_named_too() {
    let lossy = |window_bytes: u64, is_fixed: bool| {
        let verdict = changed(|seen| {
            slow(seen, |figures| {
                figures.retransmitted = 0.01;
                figures.send_window_steady_bytes = window_bytes;
            });
            if is_fixed {
                fix_buffer(seen);
            }
            seen.quiet_up = flow(Direction::Up, way(60_000, 600, FlowCount::default()));
        });
        verdict.faults()
    };
    assert_eq!(lossy(65_536, true), [Fault::ReceiveWindow, Fault::Loss]);
    // A window that could grow is none, nor one that holds the circuit.
    assert_eq!(lossy(65_536, false), [Fault::Loss]);
    assert_eq!(lossy(300_000, true), [Fault::Loss]);
}

#[test]
fn a_fixed_buffer_without_scaling_is_named_where_it_is_the_smaller_limit() {
    let unscaled = |window_bytes: u64| {
        let verdict = changed(|seen| {
            slow(seen, |figures| {
                figures.scales_windows = false;
                figures.receive_window_limited = 0.97;
                figures.send_window_steady_bytes = window_bytes;
            });
            fix_buffer(seen);
        });
        verdict.faults()
    };
    assert_eq!(
        unscaled(8_192),
        [Fault::WindowScaling, Fault::ReceiveWindow]
    );
    assert_eq!(unscaled(65_535), [Fault::WindowScaling]);
}

#[test]
fn a_program_that_does_not_read_in_time_is_no_small_window() {
    let verdict = changed(|seen| {
        held_back(seen, 100_000);
        fix_buffer(seen);
        let loaded = seen.tcp_up.as_mut().unwrap();
        loaded.test.up.as_mut().unwrap().figures.receiver_busy = 0.99;
    });
    assert_eq!(verdict.faults(), [Fault::CpuBound]);
}
