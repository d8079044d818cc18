//! Our throughput beside the real iperf3's, with the same settings: on the same
//! circuit, in turns, over the same span of a test.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farhaul_link::LinkProfile;
use serde_json::Value;

use super::child::Program;
use super::plant::{Plant, draw};
use super::seed_of;
use super::single::serving;
use crate::deployment::{Lab, require_program};
use crate::error::LabError;
use crate::measurement::{Op, Row};
use crate::overflows::receiver_overflows;
use crate::probe::observe::StreamPair;
use crate::probe::report::Report;
use crate::probe::tcp_test::Direction;
use crate::topology::{LabOptions, SERVER};

/// Name of these rows, for `--only`.
pub const NAME: &str = "iperf3";
/// Their draws are none of the clean circuits' own.
const FIRST_DRAW: u64 = 5_000;
/// Tests of each of the two on a circuit.
const ROUNDS: usize = 3;
/// The start of a stream is not compared: iperf3 counts from the start of the
/// test, we from the first byte.
const OMIT_S: u64 = 2;
const COUNTED_S: u64 = 20;
const OFF_MAX: f64 = 0.01;
/// In a row's detail: what a busy machine keeps from iperf3.
const DROPPED: &str = "iperf3_dropped_by_host";
/// Payload of a datagram: what fits a tunnel, too.
const DATAGRAM_BYTES: u16 = 1400;
/// Ours has iperf3's port.
const PORT: &str = "5202";
const SERVER_NAME: &str = "iperf3-server";
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Debug, Clone)]
pub struct BesideOptions {
    /// Base of all draws.
    pub seed: u64,
    /// Name of the labs.
    pub lab: String,
    /// This very program.
    pub program: PathBuf,
    /// Set to end it.
    pub stop: Arc<AtomicBool>,
}

/// What both send.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    /// So many streams of TCP.
    Streams(u16),
    /// Datagrams, at a share of the line's rate.
    Datagrams(f64),
}

/// The same on a certain circuit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Traffic {
    Streams(u16),
    /// Payload, bit/s.
    Datagrams(u64),
}

/// A circuit, and what is sent over it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Case {
    plant: Plant,
    load: Load,
    direction: Direction,
}

/// On a circuit that loses, or behind a policer, only datagrams can be compared:
/// what two streams of the very same program get there differs by more than 1 %.
const LOADS: [(Plant, Load); 9] = [
    (Plant::Clean, Load::Streams(1)),
    (Plant::Clean, Load::Streams(1)),
    (Plant::Clean, Load::Streams(1)),
    (Plant::Clean, Load::Streams(4)),
    (Plant::Clean, Load::Streams(4)),
    (Plant::Clean, Load::Datagrams(BELOW)),
    (Plant::Clean, Load::Datagrams(ABOVE)),
    (Plant::Loss1, Load::Datagrams(BELOW)),
    // At most half of the line's rate passes.
    (Plant::Policer, Load::Datagrams(BELOW)),
];
/// Everything arrives, but for what is lost.
const BELOW: f64 = 0.8;
/// What arrives is what the line carries.
const ABOVE: f64 = 1.2;

impl Case {
    /// Each load up, on a circuit, and down, on another one.
    fn all() -> impl Iterator<Item = Self> {
        let ways = [Direction::Up, Direction::Down];
        let both = move |(plant, load)| {
            ways.map(|direction| Self {
                plant,
                load,
                direction,
            })
        };
        LOADS.into_iter().flat_map(both)
    }

    fn is_down(&self) -> bool {
        self.direction == Direction::Down
    }

    /// `up`, `down, 4 streams`, `up, UDP 0.8 of the line`.
    fn name(&self) -> String {
        let way = if self.is_down() { "down" } else { "up" };
        match self.load {
            Load::Streams(1) => way.to_owned(),
            Load::Streams(streams) => format!("{way}, {streams} streams"),
            Load::Datagrams(share) => format!("{way}, UDP {share} of the line"),
        }
    }

    /// What is sent as datagrams, of payload, for a circuit's words.
    fn offered_bit_per_s(&self, words: &str) -> Option<u64> {
        let Load::Datagrams(share) = self.load else {
            return None;
        };
        let profile = LinkProfile::parse(words).ok()?;
        let way = match self.is_down() {
            true => profile.backward,
            false => profile.forward,
        };
        Some((way.rate?.bit_per_s() as f64 * share) as u64)
    }

    fn traffic(&self, words: &str) -> Result<Traffic, LabError> {
        let traffic = match self.load {
            Load::Streams(streams) => Some(Traffic::Streams(streams)),
            Load::Datagrams(_) => self.offered_bit_per_s(words).map(Traffic::Datagrams),
        };
        traffic.ok_or_else(|| LabError::Invalid {
            what: format!("the circuit {words}"),
            why: "it has no rate to send a share of".to_owned(),
        })
    }
}

/// Rates of iperf3 and of ours, bit/s.
#[derive(Debug, Default)]
struct Rates {
    theirs: Vec<f64>,
    ours: Vec<f64>,
    /// Datagrams of iperf3's tests that came, and that its host dropped: ours counts
    /// such ones, iperf3 cannot.
    dropped: u64,
}

/// A case on its circuit.
struct Trial<'a> {
    options: &'a BesideOptions,
    case: Case,
    traffic: Traffic,
}

/// Measures all circuits, and tells of each. One that failed is a row.
pub fn rows(options: &BesideOptions, tell: &dyn Fn(&str)) -> Result<Vec<Row>, LabError> {
    require_program("iperf3", "iperf3")?;
    let mut rows = Vec::new();
    for (case, number) in Case::all().zip(FIRST_DRAW..) {
        let seed = seed_of(options.seed, case.plant, number);
        let words = draw(case.plant, seed).words;
        let (scenario, config) = (format!("{NAME} [{words}]"), case.name());
        tell(&format!("{scenario} {config}"));
        let outcome = case.traffic(&words).and_then(|traffic| {
            let trial = Trial {
                options,
                case,
                traffic,
            };
            trial.measured(&words, seed)
        });
        if options.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        match outcome {
            Ok(Rates {
                theirs,
                ours,
                dropped,
            }) => {
                let rows_of_trial = rows_of(&scenario, &config, &theirs, &ours);
                rows.extend(rows_of_trial.map(|row| row.detail(DROPPED, dropped)));
            }
            Err(error) => {
                let why = error.to_string();
                rows.push(Row::failed(&scenario, &config, "off iperf3", "", why));
            }
        }
    }
    Ok(rows)
}

fn rows_of(scenario: &str, config: &str, theirs: &[f64], ours: &[f64]) -> [Row; 3] {
    let of = |name: &str, rates: &[f64]| {
        let mbit: Vec<f64> = rates.iter().map(|rate| rate / 1e6).collect();
        Row::of_samples(
            scenario,
            &format!("{name} {config}"),
            "throughput",
            "Mbit/s",
            &mbit,
        )
    };
    let (theirs, ours) = (of("iperf3", theirs), of("probe", ours));
    let medians = ours.median.zip(theirs.median);
    let off = medians.map_or(f64::NAN, |(ours, theirs)| (ours / theirs - 1.0).abs());
    let off = Row::of(scenario, config, "off iperf3", "", off)
        .target(Op::AtMost, OFF_MAX)
        .detail("omitted_s", OMIT_S)
        .detail("counted_s", COUNTED_S);
    [theirs, ours, off]
}

impl Trial<'_> {
    fn measured(&self, words: &str, seed: u64) -> Result<Rates, LabError> {
        let options = self.options;
        let mut lab_options = LabOptions::new(&options.lab, &options.program).with_link(words);
        lab_options.seed = seed;
        let mut lab = Lab::up(&lab_options)?;
        lab.interrupt_by(Arc::clone(&options.stop));
        serving(&mut lab, &options.program, None)?;
        let server = lab.server()?;
        let command = ["iperf3", "-s", "-p", PORT, "--forceflush"];
        lab.sandbox_mut().start(SERVER_NAME, &server, &command)?;
        lab.wait_ready(SERVER_NAME, "iperf3's server", SERVER_PATIENCE, |lab| {
            let log = std::fs::read_to_string(lab.sandbox().log_path(SERVER_NAME));
            log.is_ok_and(|log| log.contains("listening"))
        })?;
        let mut rates = Rates::default();
        for _ in 0..ROUNDS {
            let before = self.dropped(&lab)?;
            rates.theirs.push(self.iperf3(&lab)?);
            rates.dropped += self.dropped(&lab)?.saturating_sub(before);
            rates.ours.push(self.probe(&lab)?);
        }
        Ok(rates)
    }

    /// Datagrams that the receiving host has dropped so far.
    fn dropped(&self, lab: &Lab) -> Result<u64, LabError> {
        let host = match self.case.is_down() {
            true => lab.client()?,
            false => lab.server()?,
        };
        receiver_overflows(&host)
    }

    /// What came in the time that counted, bit/s.
    fn iperf3(&self, lab: &Lab) -> Result<f64, LabError> {
        let mut command = lab.client()?.command("iperf3");
        command.args(self.iperf3_words());
        let output = Program::start(&mut command, "iperf3")?.output(&self.options.stop)?;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        rate.ok_or_else(|| LabError::Invalid {
            what: "the report of iperf3".to_owned(),
            why: report["error"].as_str().unwrap_or("no rate").to_owned(),
        })
    }

    fn iperf3_words(&self) -> Vec<String> {
        let (server, omit, counted) = (SERVER.to_string(), OMIT_S, COUNTED_S);
        let mut words = format!("-c {server} -p {PORT} -J -O {omit} -t {counted}");
        words += &match self.traffic {
            Traffic::Streams(streams) => format!(" -P {streams}"),
            Traffic::Datagrams(rate) => format!(" -u -b {rate} -l {DATAGRAM_BYTES}"),
        };
        if self.case.is_down() {
            words += " -R";
        }
        words.split(' ').map(str::to_owned).collect()
    }

    fn probe(&self, lab: &Lab) -> Result<f64, LabError> {
        let mut command = lab
            .client()?
            .command(&self.options.program.to_string_lossy());
        command.args(self.probe_words());
        let output = Program::start(&mut command, "the test")?.output(&self.options.stop)?;
        let report: Option<Report> = serde_json::from_slice(&output.stdout).ok();
        report
            .and_then(received_bit_per_s)
            .ok_or_else(|| LabError::Invalid {
                what: "the report of the test".to_owned(),
                why: format!("no rate: {}", String::from_utf8_lossy(&output.stderr)),
            })
    }

    fn probe_words(&self) -> Vec<String> {
        let way = if self.case.is_down() { "down" } else { "up" };
        let test = match self.traffic {
            Traffic::Streams(streams) => format!("tcp --streams {streams}"),
            Traffic::Datagrams(rate) => {
                let mbit = rate as f64 / 1e6;
                format!("udp --rate {mbit:.6} --payload {DATAGRAM_BYTES}")
            }
        };
        let seconds = OMIT_S + COUNTED_S;
        let words = format!("probe {test} --way {way} --time {seconds} --json {SERVER}");
        words.split(' ').map(str::to_owned).collect()
    }
}

/// What the receivers of the only test got.
fn received_bit_per_s(report: Report) -> Option<f64> {
    let seen = report.observations;
    if let Some(test) = seen.tcp.into_iter().next() {
        let streams = test.up.or(test.down)?.streams;
        // No stream, no rate; one without a rate leaves none of the sum.
        streams.first()?;
        return streams.iter().map(counted_bit_per_s).sum();
    }
    let flow = seen.flows.into_iter().next()?;
    // Its own quarter is left out: datagrams have no slow start, and their rate is
    // the same ever after.
    flow.up.or(flow.down)?.count.steady_bit_per_s
}

/// What came in iperf3's span.
fn counted_bit_per_s(pair: &StreamPair) -> Option<f64> {
    const NS: u64 = 1_000_000_000;
    let begin_ns = pair.receiver.start_ns;
    let (from_ns, until_ns) = (begin_ns + OMIT_S * NS, begin_ns + (OMIT_S + COUNTED_S) * NS);
    let is_counted = |at_ns: u64| (from_ns..=until_ns).contains(&at_ns);
    let mut counted = pair
        .receiver
        .samples
        .iter()
        .filter(|sample| is_counted(sample.at_ns));
    let first = counted.next()?;
    let last = counted.next_back()?;
    let ns = last.at_ns.checked_sub(first.at_ns).filter(|ns| *ns > 0)?;
    Some(last.bytes.checked_sub(first.bytes)? as f64 * 8e9 / ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::observe::{TcpResult, TcpWay, WayFigures};
    use crate::probe::tcp_test::{Sample, TcpPlan};

    fn words_of(load: Load, direction: Direction) -> [String; 2] {
        let options = BesideOptions {
            seed: 1,
            lab: String::new(),
            program: PathBuf::new(),
            stop: Arc::default(),
        };
        let case = Case {
            plant: Plant::Clean,
            load,
            direction,
        };
        let trial = Trial {
            options: &options,
            case,
            traffic: case.traffic("rate 10mbit backward rate 5mbit").unwrap(),
        };
        [
            trial.iperf3_words().join(" "),
            trial.probe_words().join(" "),
        ]
    }

    #[test]
    fn both_are_told_the_same() {
        let [theirs, ours] = words_of(Load::Streams(4), Direction::Down);
        assert!(theirs.ends_with("-J -O 2 -t 20 -P 4 -R"), "{theirs}");
        assert!(ours.starts_with("probe tcp --streams 4 --way down --time 22 --json"));
        let [theirs, ours] = words_of(Load::Datagrams(0.8), Direction::Up);
        assert!(theirs.ends_with("-t 20 -u -b 8000000 -l 1400"), "{theirs}");
        assert!(ours.starts_with("probe udp --rate 8.000000 --payload 1400 --way up"));
        let [theirs, _] = words_of(Load::Datagrams(0.8), Direction::Down);
        assert!(theirs.ends_with("-b 4000000 -l 1400 -R"), "{theirs}");
    }

    #[test]
    fn every_case_has_its_own_row_and_goes_both_ways() {
        let cases: Vec<Case> = Case::all().collect();
        let of = |is_asked: fn(&Case) -> bool| cases.iter().filter(|case| is_asked(case)).count();
        assert_eq!(of(Case::is_down) * 2, cases.len());
        assert_eq!(of(|case| case.load == Load::Streams(1)), 6);
        assert!(of(|case| case.load == Load::Streams(4)) >= 4);
        assert!(of(|case| matches!(case.load, Load::Datagrams(_))) >= 4);
        for case in cases {
            let words = draw(case.plant, 1).words;
            let is_udp = matches!(case.load, Load::Datagrams(_));
            assert_eq!(case.offered_bit_per_s(&words).is_some(), is_udp);
        }
    }

    #[test]
    fn the_rate_of_several_streams_is_all_of_theirs() {
        let stream = |bytes_per_s: u64| {
            let sample = |second: u64| Sample {
                at_ns: second * 1_000_000_000,
                bytes: second * bytes_per_s,
                ..Sample::default()
            };
            let mut pair = StreamPair::default();
            pair.receiver.samples = (0..=23).map(sample).collect();
            pair
        };
        let way = |streams| TcpWay {
            mean_bit_per_s: None,
            steady_bit_per_s: None,
            figures: WayFigures::default(),
            streams,
        };
        let received = |streams| {
            let mut report = Report::new("tcp");
            report.observations.tcp = vec![TcpResult {
                plan: TcpPlan::new(Direction::Down, 22_000),
                up: None,
                down: Some(way(streams)),
                other_sessions: 0,
            }];
            received_bit_per_s(report)
        };
        assert_eq!(received(vec![stream(1000), stream(500)]), Some(12_000.0));
        assert_eq!(received(vec![]), None);
        assert_eq!(received(vec![stream(1000), StreamPair::default()]), None);
        assert_eq!(received_bit_per_s(Report::new("tcp")), None);
    }

    #[test]
    fn medians_are_compared() {
        let off = |theirs: &[f64], ours: &[f64]| {
            let [.., off] = rows_of("iperf3 [x]", "up", theirs, ours);
            (off.value.map(|value| (value * 1e6).round()), off.ok)
        };
        assert_eq!(
            off(&[10e6, 9e6, 99e6], &[10.05e6]),
            (Some(5_000.0), Some(true))
        );
        assert_eq!(off(&[10e6], &[9.8e6]), (Some(20_000.0), Some(false)));
        assert_eq!(off(&[], &[9.8e6]), (None, Some(false)));
    }
}
