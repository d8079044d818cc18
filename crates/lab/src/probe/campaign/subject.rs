//! What a campaign tests: where, and which test with which windows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::chart::number_text;
use super::way_name;
use crate::probe::datagram_flow::FlowPlan;
use crate::probe::iperf3::Iperf3Plan;
use crate::probe::tcp_test::{Direction, TcpPlan, WINDOW_BYTES_MIN};

/// Most windows that take turns.
pub const WINDOWS_MAX: usize = 32;

/// The test of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// TCP with our server, watched at both ends.
    Tcp(TcpPlan),
    /// UDP with our server.
    Udp(FlowPlan),
    /// TCP or UDP with an iperf3 server.
    Iperf3(Iperf3Plan),
}

impl Test {
    /// Which way data goes.
    pub fn direction(&self) -> Direction {
        match self {
            Self::Tcp(plan) => plan.direction,
            Self::Udp(plan) => plan.direction,
            Self::Iperf3(plan) => plan.direction,
        }
    }

    /// Whether it is datagrams that are counted.
    pub(crate) fn is_udp(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Udp(_) => true,
            Self::Iperf3(plan) => plan.udp,
        }
    }

    /// How long data is sent.
    pub(crate) fn duration_ms(&self) -> u64 {
        match self {
            Self::Tcp(plan) => plan.duration_ms,
            Self::Udp(plan) => plan.duration_ns() / 1_000_000,
            Self::Iperf3(plan) => plan.duration_s.saturating_add(plan.omit_s) * 1000,
        }
    }

    fn with_window(&self, window_bytes: Option<u32>) -> Self {
        let mut test = self.clone();
        match &mut test {
            Self::Tcp(plan) => plan.window_bytes = window_bytes,
            Self::Udp(_) => {}
            Self::Iperf3(plan) => plan.window_bytes = window_bytes,
        }
        test
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Tcp(plan) => plan.check(),
            Self::Udp(plan) if plan.datagrams() < 2 => {
                Err("one datagram has no rate: make the run longer, or its rate higher".to_owned())
            }
            Self::Udp(plan) => plan.check(),
            Self::Iperf3(plan) => plan.check(),
        }
    }

    /// For people: which protocol, how much, which way.
    pub(crate) fn words(&self) -> String {
        let way = way_name(self.direction());
        let streams = |streams: u16| match streams {
            1 => String::new(),
            streams => format!("{streams} streams "),
        };
        let rate = |bit_per_s: f64| format!(", {} Mbit/s", number_text(bit_per_s / 1e6));
        match self {
            Self::Tcp(plan) => format!("TCP {}{way}", streams(plan.streams)),
            Self::Udp(plan) => {
                let (rate, bytes) = (rate(plan.bit_per_s()), plan.payload_bytes);
                format!("UDP {way}{rate} in datagrams of {bytes} bytes")
            }
            Self::Iperf3(plan) => {
                let protocol = if plan.udp { "UDP" } else { "TCP" };
                let each = plan.bit_per_s.map(|bit_per_s| match plan.streams {
                    1 => rate(bit_per_s as f64),
                    _ => rate(bit_per_s as f64) + " each",
                });
                let (streams, each) = (streams(plan.streams), each.unwrap_or_default());
                format!("{protocol} with iperf3 {streams}{way}{each}")
            }
        }
    }
}

/// What is tested: two campaigns of the same subject may share a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// Server as it was asked for.
    pub target: String,
    /// Its port.
    pub port: u16,
    /// The test of a run, but for its window.
    pub test: Test,
    /// Windows that runs take in turn; null is whatever the hosts do by
    /// themselves, and all there is for UDP.
    pub windows_bytes: Vec<Option<u32>>,
}

impl Subject {
    /// Says what cannot be done.
    pub fn check(&self) -> Result<(), String> {
        let windows = &self.windows_bytes;
        if windows.is_empty() || windows.len() > WINDOWS_MAX {
            return Err(format!("a campaign has 1 to {WINDOWS_MAX} windows"));
        }
        if self.test.is_udp() && windows.iter().any(Option::is_some) {
            return Err("UDP has no window: windows are for TCP".to_owned());
        }
        if windows.iter().flatten().any(|w| *w < WINDOW_BYTES_MIN) {
            return Err(format!("a window in bytes is at least {WINDOW_BYTES_MIN}"));
        }
        let tests = windows.iter().map(|window| self.test.with_window(*window));
        tests.into_iter().try_for_each(|test| test.check())
    }

    /// Window of a run; the first run is number 1.
    pub(crate) fn window_of(&self, run: u32) -> Option<u32> {
        let turns = self.windows_bytes.len().max(1);
        let turn = run.saturating_sub(1) as usize % turns;
        self.windows_bytes.get(turn).copied().flatten()
    }

    /// Test of a run.
    pub(crate) fn test_of(&self, run: u32) -> Test {
        self.test.with_window(self.window_of(run))
    }

    /// Directions that are measured.
    pub fn directions(&self) -> Vec<Direction> {
        let both = [Direction::Up, Direction::Down];
        let asked = self.test.direction();
        let is_asked = |direction: &Direction| asked == Direction::Both || asked == *direction;
        both.into_iter().filter(is_asked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{iperf3_plan, subject, subject_of};
    use super::*;

    #[test]
    fn windows_take_turns_and_impossible_subjects_are_named() {
        let turns = subject(&[Some(8192), Some(65_536), None]);
        let windows: Vec<_> = (1..=4).map(|run| turns.window_of(run)).collect();
        assert_eq!(windows, [Some(8192), Some(65_536), None, Some(8192)]);
        let Test::Tcp(second) = turns.test_of(2) else {
            panic!("{turns:?}")
        };
        assert_eq!(second.window_bytes, Some(65_536));
        assert_eq!(turns.check(), Ok(()));
        assert!(subject(&[]).check().unwrap_err().contains("windows"));
        let small = subject(&[None, Some(1)]);
        assert!(small.check().unwrap_err().contains("window in bytes"));
    }

    #[test]
    fn udp_and_iperf3_have_limits_of_their_own() {
        let udp = |duration_s| {
            let plan = FlowPlan::even(Direction::Both, 1000, 8e6, duration_s);
            subject_of(Test::Udp(plan))
        };
        assert_eq!(udp(1.0).check(), Ok(()));
        assert_eq!(udp(1.0).test.duration_ms(), 1000);
        assert!(udp(0.0001).check().unwrap_err().contains("no rate"));
        assert!(udp(3000.0).check().unwrap_err().contains("datagrams"));
        let mut window = udp(1.0);
        window.windows_bytes = vec![None, Some(65_536)];
        assert!(window.check().unwrap_err().contains("no window"));

        let mut iperf3 = subject_of(Test::Iperf3(iperf3_plan(false)));
        iperf3.windows_bytes = vec![Some(65_536)];
        assert_eq!(iperf3.check(), Ok(()));
        let Test::Iperf3(first) = iperf3.test_of(1) else {
            panic!("{iperf3:?}")
        };
        assert_eq!(first.window_bytes, Some(65_536));
        iperf3.test = Test::Iperf3(Iperf3Plan {
            duration_s: 0,
            ..iperf3_plan(false)
        });
        assert!(iperf3.check().unwrap_err().contains("1 s"));
        iperf3.windows_bytes = vec![None];
        iperf3.test = Test::Iperf3(Iperf3Plan {
            bit_per_s: Some(100),
            ..iperf3_plan(true)
        });
        assert!(iperf3.check().unwrap_err().contains("no two datagrams"));
    }

    #[test]
    fn a_test_is_said_in_words() {
        let udp = Test::Udp(FlowPlan::even(Direction::Up, 1000, 8e6, 1.0));
        assert_eq!(udp.words(), "UDP up, 8 Mbit/s in datagrams of 1000 bytes");
        let iperf3 = Test::Iperf3(Iperf3Plan {
            streams: 2,
            direction: Direction::Both,
            ..iperf3_plan(true)
        });
        assert_eq!(
            iperf3.words(),
            "UDP with iperf3 2 streams both, 5 Mbit/s each"
        );
    }
}
