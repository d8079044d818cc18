//! What came of one run, whichever test it was.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Subject, Test};
use crate::probe::error::harmless;
use crate::probe::iperf3::Iperf3Way;
use crate::probe::observe::{FlowWay, TcpWay};
use crate::probe::report::{Observations, Report, Trouble};
use crate::probe::tcp_test::Direction;

/// One direction of a run. What the test does not show is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunWay {
    /// Payload that arrived, all streams, from first to last byte, bit/s; with
    /// iperf3 what the receiver counted, over the time of the test.
    pub bit_per_s: u64,
    /// The same over the second half of the run (TCP), or once a quarter of it
    /// is over (UDP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_bit_per_s: Option<u64>,
    /// TCP: segments sent again, of the first stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// TCP: segments with data, of the first stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_segments: Option<u64>,
    /// TCP: least round trip, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_us: Option<u64>,
    /// TCP: greatest window the receiver advertised in the second half, with
    /// iperf3 the one in the end, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertised_bytes: Option<u64>,
    /// TCP: share of the second half, with iperf3 of the run, in which the
    /// window was the limit, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_limited_percent: Option<u8>,
    /// UDP: datagrams of which it is known what became of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<u64>,
    /// UDP: how many of them did not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// UDP: how many came after a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordered: Option<u64>,
    /// UDP: jitter (RFC 3550 6.4.1), of the worst stream, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_us: Option<u64>,
}

fn whole(rate: f64) -> Option<u64> {
    (rate.is_finite() && rate >= 1.0).then_some(rate.round() as u64)
}

impl RunWay {
    /// `None` where nothing arrived.
    fn of_tcp(way: &TcpWay) -> Option<Self> {
        let figures = &way.figures;
        Some(Self {
            bit_per_s: way.mean_bit_per_s.and_then(whole)?,
            steady_bit_per_s: way.steady_bit_per_s.and_then(whole),
            retransmitted_segments: Some(figures.retransmitted_segments),
            data_segments: Some(figures.data_segments),
            min_rtt_us: Some(figures.min_rtt_us),
            advertised_bytes: Some(figures.send_window_steady_bytes),
            window_limited_percent: Some(percent(figures.receive_window_limited)),
            ..Self::default()
        })
    }

    fn of_udp(way: &FlowWay) -> Option<Self> {
        let (count, datagrams) = (&way.count, way.judged());
        Some(Self {
            bit_per_s: count.mean_bit_per_s.and_then(whole)?,
            steady_bit_per_s: count.steady_bit_per_s.and_then(whole),
            datagrams: Some(datagrams),
            lost: Some(way.lost.min(datagrams)),
            reordered: Some(count.reordered),
            jitter_us: Some(count.jitter_us.round() as u64),
            ..Self::default()
        })
    }

    fn of_iperf3(way: &Iperf3Way, is_udp: bool, direction: Direction) -> Option<Self> {
        let bit_per_s = way.received_bit_per_s.and_then(whole)?;
        let mut run = Self {
            bit_per_s,
            ..Self::default()
        };
        if is_udp {
            let lost = u64::try_from(way.lost).unwrap_or(0);
            let jitters = way.streams.iter().map(|stream| stream.receiver.jitter);
            run.datagrams = Some(way.packets);
            run.lost = Some(lost.min(way.packets));
            run.jitter_us = Some((jitters.fold(0.0, f64::max) * 1e6).round() as u64);
            return Some(run);
        }
        let Some(first) = way.streams.first() else {
            return Some(run);
        };
        run.retransmitted_segments = u64::try_from(first.sender.retransmits).ok();
        // Only the sender's end knows the rest, and only ours is seen.
        if let Some(state) = first.state.filter(|_| direction == Direction::Up) {
            let busy_us = (state.busy_us as f64).max(1.0);
            run.data_segments = Some(state.data_segments_out.into());
            run.min_rtt_us = Some(state.min_rtt_us.into());
            run.advertised_bytes = Some(state.send_window_bytes.into());
            let limited = state.receive_window_limited_us as f64 / busy_us;
            run.window_limited_percent = Some(percent(limited));
        }
        Some(run)
    }

    /// Share of the datagrams that did not come, percent.
    pub fn lost_percent(&self) -> Option<f64> {
        let datagrams = self.datagrams.filter(|datagrams| *datagrams > 0)?;
        Some(self.lost? as f64 * 100.0 / datagrams as f64)
    }
}

fn percent(share: f64) -> u8 {
    (share.min(1.0) * 100.0).round() as u8
}

/// What came of a run: rates, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its number, from 1.
    pub run: u32,
    /// When it began, milliseconds since 1970 by the wall clock.
    pub start_unix_ms: u64,
    /// How long it took with its connections, by the monotonic clock.
    pub took_ms: u64,
    /// Window asked for; null is whatever the hosts do by themselves.
    pub window_bytes: Option<u32>,
    /// From client to server.
    pub up: Option<RunWay>,
    /// From server to client.
    pub down: Option<RunWay>,
    /// Other clients of the server meanwhile, at most; iperf3 does not tell.
    pub other_sessions: u32,
    /// Why it failed.
    pub error: Option<Trouble>,
}

/// Both directions of a test, and other clients of the server meanwhile.
fn seen_of(test: &Test, seen: &Observations) -> (Option<RunWay>, Option<RunWay>, u32) {
    let ways = match test {
        Test::Tcp(_) => seen.tcp.first().map(|result| {
            let way = |way: &Option<TcpWay>| way.as_ref().and_then(RunWay::of_tcp);
            (way(&result.up), way(&result.down), result.other_sessions)
        }),
        Test::Udp(_) => seen.flows.first().map(|result| {
            let way = |way: &Option<FlowWay>| way.as_ref().and_then(RunWay::of_udp);
            (way(&result.up), way(&result.down), result.other_sessions)
        }),
        Test::Iperf3(plan) => seen.iperf3.as_ref().map(|result| {
            let way = |way: &Option<Iperf3Way>, direction| {
                way.as_ref()
                    .and_then(|way| RunWay::of_iperf3(way, plan.udp, direction))
            };
            let up = way(&result.up, Direction::Up);
            (up, way(&result.down, Direction::Down), 0)
        }),
    };
    ways.unwrap_or_default()
}

impl Run {
    /// Of a test's report. A direction in which nothing arrived is a failure.
    pub(crate) fn of(number: u32, subject: &Subject, report: &Report) -> Self {
        let mut run = Self {
            run: number,
            start_unix_ms: 0,
            took_ms: 0,
            window_bytes: subject.window_of(number),
            up: None,
            down: None,
            other_sessions: report.observations.other_sessions,
            error: report.error.as_ref().map(|trouble| Trouble {
                code: trouble.code.clone(),
                text: harmless(&trouble.text),
            }),
        };
        if run.error.is_some() {
            return run;
        }
        let (up, down, others) = seen_of(&subject.test, &report.observations);
        (run.up, run.down) = (up, down);
        run.other_sessions = run.other_sessions.max(others);
        let is_missing = |direction: &Direction| run.way(*direction).is_none();
        if subject.directions().iter().any(is_missing) {
            (run.up, run.down) = (None, None);
            run.error = Some(Trouble {
                code: "silent".to_owned(),
                text: "too little payload arrived within the run for a rate".to_owned(),
            });
        }
        run
    }

    /// One direction's figures.
    pub fn way(&self, direction: Direction) -> Option<&RunWay> {
        match direction {
            Direction::Down => self.down.as_ref(),
            _ => self.up.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{iperf3_plan, subject, subject_of};
    use super::*;
    use crate::probe::datagram_flow::{FlowCount, FlowPlan};
    use crate::probe::iperf3::{Iperf3Result, Iperf3Stream, StreamCount};
    use crate::probe::observe::FlowResult;

    #[test]
    fn a_report_without_payload_is_a_failed_run() {
        let udp = Test::Udp(FlowPlan::even(Direction::Up, 1000, 8e6, 1.0));
        let iperf3 = Test::Iperf3(iperf3_plan(true));
        for subject in [subject(&[None]), subject_of(udp), subject_of(iperf3)] {
            let empty = Run::of(7, &subject, &Report::new("x"));
            assert_eq!((empty.run, empty.up), (7, None));
            assert_eq!(empty.error.unwrap().code, "silent");
        }
        let mut failed = Report::new("x");
        failed.error = Some(Trouble {
            code: "lost".to_owned(),
            text: "a\nb".to_owned(),
        });
        let error = Run::of(8, &subject(&[None]), &failed).error.unwrap();
        assert_eq!((error.code.as_str(), error.text.as_str()), ("lost", "a b"));
    }

    #[test]
    fn a_udp_run_has_rate_loss_order_and_jitter() {
        let plan = FlowPlan::even(Direction::Up, 1000, 8e6, 1.0);
        let count = FlowCount {
            received: 900,
            reordered: 3,
            jitter_us: 12.4,
            mean_bit_per_s: Some(7.2e6),
            ..FlowCount::default()
        };
        let mut report = Report::new("x");
        report.observations.flows.push(FlowResult {
            plan,
            up: Some(FlowWay::from((1000, count))),
            down: None,
            other_sessions: 2,
        });
        let run = Run::of(1, &subject_of(Test::Udp(plan)), &report);
        let up = run.up.unwrap();
        assert_eq!(
            (up.bit_per_s, up.datagrams, up.lost),
            (7_200_000, Some(1000), Some(100))
        );
        assert_eq!((up.reordered, up.jitter_us), (Some(3), Some(12)));
        assert_eq!((up.lost_percent(), up.min_rtt_us), (Some(10.0), None));
        assert_eq!((run.other_sessions, run.error), (2, None));
    }

    #[test]
    fn an_iperf3_run_has_what_both_ends_counted_however_odd() {
        let way = |receiver: StreamCount, lost, packets| Iperf3Way {
            sent_bit_per_s: Some(5e6),
            received_bit_per_s: receiver.bit_per_s(),
            lost,
            packets,
            streams: vec![Iperf3Stream {
                sender: StreamCount {
                    retransmits: 7,
                    ..StreamCount::default()
                },
                receiver,
                state: None,
            }],
        };
        let receiver = StreamCount {
            bytes: 500_000,
            jitter: 0.0015,
            end_time: 1.0,
            ..StreamCount::default()
        };
        let run = |udp, lost| {
            let mut report = Report::new("x");
            report.observations.iperf3 = Some(Iperf3Result {
                plan: iperf3_plan(udp),
                up: Some(way(receiver, lost, 100)),
                down: None,
            });
            let subject = subject_of(Test::Iperf3(iperf3_plan(udp)));
            Run::of(1, &subject, &report).up.unwrap()
        };
        let udp = run(true, 4);
        assert_eq!((udp.bit_per_s, udp.jitter_us), (4_000_000, Some(1500)));
        assert_eq!((udp.lost_percent(), udp.reordered), (Some(4.0), None));
        assert_eq!(run(true, -3).lost, Some(0));
        assert_eq!(run(true, i64::MAX).lost_percent(), Some(100.0));
        let tcp = run(false, 0);
        assert_eq!((tcp.retransmitted_segments, tcp.lost), (Some(7), None));
        assert_eq!(tcp.advertised_bytes, None);
    }
}
