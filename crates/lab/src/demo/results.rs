//! From fetches to rows, and from rows to what people read.

use serde_json::Value;

use super::fetch::{Outcome, WORKLOADS, Workload};
use crate::measurement::{Measurement, Op, Row};
use crate::table::{Cell, Mark, Screen, Table};

/// Short stable name of the circumstances.
pub const SCENARIO: &str = "51.84M/100ms one-way/1%";
/// Link rate in bit/s: Ethernet frames of up to 1514 bytes.
const RATE_BIT_PER_S: f64 = 51.84e6;
/// TCP payload of a full frame over the frame's size.
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// Round trip in seconds.
const ROUND_TRIP_S: f64 = 0.2;
/// Loss in each direction.
const LOSS: f64 = 0.01;
/// A link later than this is not the link that was asked for.
const LATENESS_MAX_S: f64 = 0.002;
/// What the bulk transfer must gain.
const BULK_RATIO: f64 = 10.0;
/// Congestion control the end hosts must have.
pub const CONGESTION_CONTROL: &str = "cubic";

/// Without and with the gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Config {
    /// Gateways stopped: routers only.
    Direct,
    /// Through the pair.
    Accelerated,
}

impl Config {
    /// Its name in rows and stages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Accelerated => "accelerated",
        }
    }
}

/// The fetches of one workload in one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What was fetched.
    pub workload: Workload,
    /// How.
    pub config: Config,
    /// Each fetch.
    pub outcomes: Vec<Outcome>,
    /// Payload bytes the tunnel carried towards the client meanwhile, as the
    /// gateway counted.
    pub tunnel_bytes: Option<u64>,
}

/// No transfer can be quicker: one round trip to ask, then the payload rate.
fn limit_seconds(size_bytes: u64) -> f64 {
    ROUND_TRIP_S + size_bytes as f64 * 8.0 / (RATE_BIT_PER_S * PAYLOAD_SHARE)
}

impl Series {
    /// Rows `KEY time` and `KEY goodput`.
    fn rows(&self) -> [Row; 2] {
        let size = self.workload.size_bytes();
        let seconds: Vec<_> = self
            .outcomes
            .iter()
            .map(|outcome| outcome.seconds)
            .collect();
        let goodput: Vec<_> = seconds
            .iter()
            .map(|seconds| size as f64 / seconds)
            .collect();
        let limit = limit_seconds(size);
        [
            self.row("time", "s", &seconds, limit),
            self.row("goodput", "byte/s", &goodput, size as f64 / limit),
        ]
    }

    fn row(&self, quantity: &str, unit: &str, samples: &[f64], limit: f64) -> Row {
        let metric = format!("{} {quantity}", self.workload.key);
        let word = self.config.word();
        let mut row = match self.problem() {
            Some(problem) => Row::failed(SCENARIO, word, &metric, unit, problem),
            None => {
                let mut row = Row::of_samples(SCENARIO, word, &metric, unit, samples);
                // Reached: everything arrived, equal, the way it claims.
                row.ok = row.error.is_none().then_some(true);
                row
            }
        };
        let text = |value: Option<&String>| value.map_or(Value::Null, |text| text.as_str().into());
        let last = self.outcomes.last();
        row.limit = Some(limit);
        row.detail("client", self.workload.client_words())
            .detail("size_bytes", self.workload.size_bytes())
            .detail("sha256_equal", self.is_equal())
            .detail(
                "server_congestion_control",
                text(last.and_then(|outcome| outcome.congestion_control.as_ref())),
            )
            .detail(
                "client_address_at_server",
                text(last.and_then(|outcome| outcome.client_seen.as_ref())),
            )
            .detail("connections", last.and_then(|outcome| outcome.connections))
            .detail("tunnel_payload_bytes", self.tunnel_bytes)
    }

    fn is_equal(&self) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(|outcome| outcome.sha256_equal)
    }

    /// A client did not even claim to have everything.
    fn has_failed(&self) -> bool {
        self.outcomes.is_empty() || self.outcomes.iter().any(|outcome| !outcome.is_done)
    }

    /// Why the series is not what it claims to be, if so.
    pub fn problem(&self) -> Option<String> {
        if let Some(error) = self
            .outcomes
            .iter()
            .find_map(|outcome| outcome.error.clone())
        {
            return Some(error);
        }
        if self.outcomes.is_empty() {
            return Some("not run".to_owned());
        }
        for control in self
            .outcomes
            .iter()
            .map(|outcome| outcome.congestion_control.as_deref())
        {
            if control != Some(CONGESTION_CONTROL) {
                let seen = control.unwrap_or("unknown");
                return Some(format!(
                    "the server's congestion control was {seen}, not {CONGESTION_CONTROL}"
                ));
            }
        }
        let payload = self.outcomes.len() as u64 * self.workload.size_bytes();
        match (self.config, self.tunnel_bytes) {
            (Config::Accelerated, Some(carried)) if carried < payload => Some(format!(
                "only {carried} of {payload} bytes went through the tunnel"
            )),
            (Config::Accelerated, None) => {
                Some("the gateway did not say what it carried".to_owned())
            }
            _ => None,
        }
    }

    fn median_seconds(&self) -> Option<f64> {
        if self.problem().is_some() {
            return None;
        }
        self.rows()[0].value
    }
}

/// All rows: times, goodputs and what was gained.
pub fn rows(series: &[Series]) -> Vec<Row> {
    let mut rows: Vec<_> = series.iter().flat_map(Series::rows).collect();
    for workload in WORKLOADS {
        let metric = format!("{} speed-up", workload.key);
        let row = match ratio(series, workload) {
            Some(ratio) => Row::of(SCENARIO, "accelerated / direct", &metric, "ratio", ratio),
            None => Row::failed(
                SCENARIO,
                "accelerated / direct",
                &metric,
                "ratio",
                "one of the two has no time",
            ),
        };
        rows.push(match workload.key {
            "http-4MB" => row.target(Op::AtLeast, BULK_RATIO),
            _ => row,
        });
    }
    rows
}

fn find<'a>(series: &'a [Series], workload: &Workload, config: Config) -> Option<&'a Series> {
    series
        .iter()
        .find(|one| one.workload == *workload && one.config == config)
}

fn ratio(series: &[Series], workload: &Workload) -> Option<f64> {
    let seconds = |config| find(series, workload, config)?.median_seconds();
    Some(seconds(Config::Direct)? / seconds(Config::Accelerated)?)
}

/// What the emulator did meanwhile: packets lost as asked, and how late it was
/// at worst. `stats` is what `farhaul link stats --json` printed.
pub fn link_rows(stats: &Value) -> Vec<Row> {
    let of = |direction: &str, path: &str| stats[direction].pointer(path).and_then(Value::as_f64);
    let both = |path: &str| Some([of("forward", path)?, of("backward", path)?]);
    let row = |metric: &str, unit: &str, value: Option<f64>| match value {
        Some(value) => Row::of(SCENARIO, "link", metric, unit, value),
        None => Row::failed(SCENARIO, "link", metric, unit, "the emulator did not say"),
    };
    let lost = both("/drops/loss").zip(both("/packets_in"));
    let lost = lost.map(|([a, b], [packets_a, packets_b])| (a + b) / (packets_a + packets_b));
    let late = both("/lateness_max_ns").map(|[a, b]| a.max(b) / 1e9);
    let late_mostly = both("/lateness_p99_ns").map(|[a, b]| a.max(b) / 1e9);
    vec![
        row("packets lost on purpose", "ratio", lost).limit(LOSS),
        row("departure lateness, 99th percentile", "s", late_mostly),
        row("departure lateness, maximum", "s", late).limit(LATENESS_MAX_S),
    ]
}

/// A warning where the emulator was too late to be believed to the millisecond.
fn lateness_note(measurement: &Measurement) -> String {
    let late = measurement
        .rows
        .iter()
        .find(|row| row.metric == "departure lateness, maximum");
    match late.and_then(|row| row.value) {
        Some(value) if value > LATENESS_MAX_S => format!(
            "note: the link was up to {:.1} ms late, since this machine was busy; run it again when it is not\n",
            value * 1e3
        ),
        _ => String::new(),
    }
}

/// The table: one line per workload.
pub fn table(series: &[Series], screen: Screen) -> String {
    let mut table = Table::new([
        "fetched",
        "direct",
        "accelerated",
        "ratio",
        "share of limit",
        "SHA-256",
    ]);
    for workload in WORKLOADS {
        let of = |config| find(series, workload, config);
        let time = |config| {
            let seconds = of(config).and_then(Series::median_seconds);
            seconds.map_or(Cell::marked("failed", Mark::Bad), |seconds| {
                time_text(workload, seconds).into()
            })
        };
        let share = of(Config::Accelerated).and_then(Series::median_seconds);
        let share = share.map(|seconds| limit_seconds(workload.size_bytes()) / seconds);
        let both = [of(Config::Direct), of(Config::Accelerated)];
        let is_equal = both.iter().all(|one| one.is_some_and(Series::is_equal));
        let is_failed = both.iter().any(|one| one.is_none_or(Series::has_failed));
        table.row(vec![
            workload.title.into(),
            time(Config::Direct),
            time(Config::Accelerated),
            ratio_cell(ratio(series, workload), workload),
            share
                .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
                .into(),
            match (is_equal, is_failed) {
                (true, _) => Cell::marked("equal", Mark::Good),
                (false, true) => Cell::marked("-", Mark::Bad),
                (false, false) => Cell::marked("NOT EQUAL", Mark::Bad),
            },
        ]);
    }
    table.render(screen)
}

fn time_text(workload: &Workload, seconds: f64) -> String {
    let kilobytes_per_s = workload.size_bytes() as f64 / seconds / 1000.0;
    format!("{seconds:.2} s ({kilobytes_per_s:.0} kB/s)")
}

fn ratio_cell(ratio: Option<f64>, workload: &Workload) -> Cell {
    let Some(ratio) = ratio else {
        return Cell::marked("-", Mark::Bad);
    };
    let is_short = workload.key == "http-4MB" && ratio < BULK_RATIO;
    let mark = if is_short || ratio < 1.0 {
        Mark::Bad
    } else {
        Mark::Good
    };
    Cell::marked(format!("{ratio:.1} x"), mark)
}

/// Everything a person reads at the end.
pub fn summary(
    measurement: &Measurement,
    series: &[Series],
    repeat: u32,
    screen: Screen,
) -> String {
    let samples = match repeat {
        1 => "one run each; REPEAT=3 gives medians".to_owned(),
        n => format!("medians of {n}"),
    };
    let mut text = format!(
        "\nlink 51.84 Mbit/s, 100 ms one-way, 1 % loss in both directions; end hosts {CONGESTION_CONTROL}, as read from the servers' sockets; {samples}\n\n{}\n\
         limit: one round trip and the link's TCP payload rate, {:.2} MB/s\n",
        table(series, screen),
        RATE_BIT_PER_S * PAYLOAD_SHARE / 8e6
    );
    text += &lateness_note(measurement);
    for row in measurement.rows.iter().filter(|row| row.ok == Some(false)) {
        let why = row
            .error
            .clone()
            .unwrap_or_else(|| match (row.value, row.target) {
                (Some(value), Some(target)) => format!("{value:.1}, should reach {target}"),
                _ => "no value".to_owned(),
            });
        text += &format!("failed: {} {}: {why}\n", row.config, row.metric);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seconds: f64) -> Outcome {
        Outcome {
            seconds,
            sha256_equal: true,
            congestion_control: Some("cubic".to_owned()),
            client_seen: Some("10.1.0.2".to_owned()),
            connections: None,
            is_done: true,
            error: None,
        }
    }

    fn series(config: Config, seconds: &[f64]) -> Vec<Series> {
        let one = |workload: &Workload| Series {
            workload: *workload,
            config,
            outcomes: seconds.iter().copied().map(outcome).collect(),
            tunnel_bytes: Some(seconds.len() as u64 * workload.size_bytes()),
        };
        WORKLOADS.iter().map(one).collect()
    }

    fn pair(direct: &[f64], accelerated: &[f64]) -> Vec<Series> {
        let mut all = series(Config::Direct, direct);
        all.extend(series(Config::Accelerated, accelerated));
        all
    }

    #[test]
    fn the_limit_is_a_round_trip_and_the_payload_rate() {
        // 4 MB at 51.84 Mbit/s x 1448 / 1514 = 6.1975 MB/s.
        assert!((limit_seconds(4_000_000) - 0.84542).abs() < 1e-4);
    }

    #[test]
    fn a_good_run_has_no_failed_row() {
        let rows = rows(&pair(&[50.0, 40.0, 60.0], &[2.0, 4.0, 3.0]));
        assert_eq!(rows.len(), 3 * 2 * 2 + 3);
        assert!(rows.iter().all(|row| row.ok != Some(false)), "{rows:?}");
        let speed_up = rows
            .iter()
            .find(|row| row.metric == "http-4MB speed-up")
            .unwrap();
        assert_eq!(
            (speed_up.value, speed_up.ok),
            (Some(50.0 / 3.0), Some(true))
        );
        let time = &rows[0];
        assert_eq!(
            (time.n, time.min, time.max),
            (Some(3), Some(40.0), Some(60.0))
        );
        assert_eq!(time.detail["server_congestion_control"], "cubic");
        assert_eq!(time.detail["sha256_equal"], true);
    }

    #[test]
    fn what_is_not_what_it_claims_fails() {
        let spoil = |change: fn(&mut Series)| {
            let mut all = pair(&[50.0], &[1.0]);
            change(&mut all[3]);
            let rows = rows(&all);
            let failed: Vec<_> = rows
                .iter()
                .filter(|row| row.ok == Some(false))
                .cloned()
                .collect();
            // Time, goodput and speed-up of that workload, nothing else.
            assert_eq!(failed.len(), 3, "{failed:?}");
            assert!(failed.iter().all(|row| row.value.is_none()));
            failed[0].error.clone().unwrap()
        };
        assert!(spoil(|one| one.tunnel_bytes = Some(17)).contains("only 17 of 4000000"));
        assert!(spoil(|one| one.tunnel_bytes = None).contains("did not say"));
        assert!(spoil(|one| one.outcomes.clear()).contains("not run"));
        assert!(spoil(|one| one.outcomes[0].error = Some("broke".into())).contains("broke"));
        assert!(
            spoil(|one| one.outcomes[0].congestion_control = Some("bbr".into())).contains("bbr")
        );
        assert!(spoil(|one| one.outcomes[0].congestion_control = None).contains("unknown"));
    }

    #[test]
    fn the_links_own_numbers_are_rows() {
        let direction = |lost: u64, late_ns: u64| {
            serde_json::json!({
                "drops": {"loss": lost}, "packets_in": 1000,
                "lateness_max_ns": late_ns, "lateness_p99_ns": late_ns / 2
            })
        };
        let stats = serde_json::json!({"forward": direction(9, 100_000), "backward": direction(11, 3_000_000)});
        let rows = link_rows(&stats);
        let values: Vec<_> = rows.iter().map(|row| row.value.unwrap()).collect();
        assert_eq!(values, [0.01, 0.0015, 0.003]);
        let mut measurement = Measurement::new("demo", "", 1);
        measurement.rows = rows;
        assert!(lateness_note(&measurement).contains("3.0 ms late"));
        assert!(
            link_rows(&Value::Null)
                .iter()
                .all(|row| row.ok == Some(false))
        );
    }

    #[test]
    fn too_little_gain_is_said() {
        let all = pair(&[9.0], &[1.0]);
        let mut measurement = Measurement::new("demo", "", 1);
        measurement.rows = rows(&all);
        let screen = Screen {
            columns: None,
            has_colour: false,
        };
        let text = summary(&measurement, &all, 1, screen);
        assert!(
            text.contains("http-4MB speed-up: 9.0, should reach 10"),
            "{text}"
        );
        assert!(
            text.contains("9.0 x") && text.contains("equal") && !text.contains("NOT EQUAL"),
            "{text}"
        );
    }
}
