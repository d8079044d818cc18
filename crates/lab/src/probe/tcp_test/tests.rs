//! Plans that cannot be, noise, and another clock's times.

use super::*;

#[test]
fn impossible_plans_are_named() {
    let good = TcpPlan::new(Direction::Both, 1000);
    assert_eq!(good.check(), Ok(()));
    assert_eq!(
        (good.connections(), good.goes_up(0), good.goes_up(1)),
        (2, true, false)
    );
    let bad = |change: fn(&mut TcpPlan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.check().unwrap_err()
    };
    assert!(bad(|plan| plan.duration_ms = 0).contains("duration"));
    assert!(bad(|plan| plan.streams = 0).contains("streams"));
    assert!(bad(|plan| plan.streams = 65).contains("streams"));
    assert!(bad(|plan| plan.window_bytes = Some(1)).contains("window"));
    assert!(bad(|plan| plan.mss_bytes = Some(1)).contains("segment"));
    assert!(bad(|plan| plan.congestion_control = Some(String::new())).contains("name"));
}

#[test]
fn noise_does_not_repeat() {
    let bytes = noise(4096);
    assert_ne!(bytes[..2048], bytes[2048..]);
}

#[test]
fn times_of_a_clock_that_is_ahead_become_earlier_ones_of_ours() {
    let end = |start_ns, first_ns, last_ns, at_ns: [u64; 2]| StreamEnd {
        start_ns,
        first_ns,
        last_ns,
        samples: at_ns
            .map(|at_ns| Sample {
                at_ns,
                ..Sample::default()
            })
            .to_vec(),
        ..StreamEnd::default()
    };
    let theirs = end(1000, Some(1100), Some(1900), [1200, 1800]);
    let shifted = |ahead_ns| {
        let mut end = theirs.clone();
        end.shift(ahead_ns);
        end
    };
    assert_eq!(shifted(400), end(600, Some(700), Some(1500), [800, 1400]));
    assert_eq!(
        shifted(-400),
        end(1400, Some(1500), Some(2300), [1600, 2200])
    );
    // What cannot be is the first or the last moment there is, and nothing wraps.
    assert_eq!(shifted(i64::MAX), end(0, Some(0), Some(0), [0, 0]));
    assert!(shifted(i64::MIN).start_ns >= i64::MAX.cast_unsigned());
    // What never came comes at no time.
    let mut empty = StreamEnd::default();
    empty.shift(-400);
    assert_eq!((empty.first_ns, empty.last_ns), (None, None));
}
