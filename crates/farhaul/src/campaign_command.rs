//! `farhaul probe campaign`: the same test many times, and what all runs show.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use farhaul_lab::probe::ProbeError;
use farhaul_lab::probe::campaign::watch::Watch;
use farhaul_lab::probe::campaign::{self, Campaign, CampaignOptions, Subject, Test, page, text};
use farhaul_lab::probe::datagram_flow::FlowPlan;
use farhaul_lab::probe::examine::Target;
use farhaul_lab::probe::iperf3::Iperf3Plan;
use farhaul_lab::probe::tcp_test::TcpPlan;
use farhaul_lab::table::Screen;

use crate::failure::Failure;
use crate::print;
use crate::probe_command::{Far, UDP_PAYLOAD_BYTES, UDP_RATE_MBIT, Way, bytes, failed, positive};

/// Longest time between two runs: a day.
const EVERY_S_MAX: f64 = 86_400.0;
/// Longest run: an hour, as of any test.
const FOR_S_MAX: f64 = 3600.0;

const EXAMPLES: &str = "\
examples: farhaul probe campaign far-end.example --runs 8755 --for 10s --circuit 1000
          farhaul probe campaign far-end.example --runs 300 --every 1m --for 5s --windows 8k,64k,87380,own
          farhaul probe campaign far-end.example --runs 1440 --every 1m --for 5s --udp --rate 20
          farhaul probe campaign iperf3.example --runs 100 --for 10s --iperf3 --way down
Every run's outcome is a line of the file; a campaign that was stopped goes on there with the same command.
exit codes: those of `farhaul probe`; failed runs are results and change none of them";

/// `farhaul probe campaign`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CampaignCommand {
    #[command(flatten)]
    far: Far,
    /// Runs in all, those that the file has already included.
    #[arg(long, value_name = "N")]
    runs: u32,
    /// From the beginning of a run to that of the next, such as 10s, 5m, 1h
    /// [default: back to back].
    #[arg(long, value_name = "TIME", value_parser = every)]
    every: Option<Duration>,
    /// How long a run sends, such as 500ms, 10s.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = length)]
    length: Duration,
    /// Which way data goes.
    #[arg(long, value_enum, default_value = "up")]
    way: Way,
    /// Streams each way.
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: u16,
    /// UDP in place of TCP, at `--rate`.
    #[arg(long)]
    udp: bool,
    /// HOST is an iperf3 server; runs last whole seconds.
    #[arg(long)]
    iperf3: bool,
    /// Payload rate in Mbit/s, with iperf3 of each stream [default: 1 for UDP,
    /// no limit for TCP with iperf3].
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    rate: Option<f64>,
    /// Payload of a datagram, or with iperf3 of a write, in bytes
    /// [default: 1400, or iperf3's].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    payload: Option<u32>,
    /// Windows that runs take in turn, in bytes; `own` is what the hosts do by
    /// themselves.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "own", value_parser = window)]
    windows: Vec<Window>,
    /// The circuit's rate in Mbit/s, for its utilisation.
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    circuit: Option<f64>,
    /// One line for each run is written here, and read by what goes on.
    #[arg(long, value_name = "FILE", default_value = "campaign.jsonl")]
    file: PathBuf,
    /// The page of charts [default: the file's name with .html].
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,
}

/// `farhaul probe report`.
#[derive(Debug, Args)]
pub(crate) struct ReportCommand {
    /// The file of a campaign, which may still run.
    #[arg(value_name = "FILE", default_value = "campaign.jsonl")]
    file: PathBuf,
    /// The circuit's rate in Mbit/s [default: what the campaign was told].
    #[arg(long, value_name = "MBIT", value_parser = positive)]
    circuit: Option<f64>,
    /// The page of charts [default: the file's name with .html].
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// A window, or none of ours.
#[derive(Debug, Clone, Copy)]
struct Window(Option<u32>);

fn window(text: &str) -> Result<Window, String> {
    match text {
        "own" => Ok(Window(None)),
        text => bytes(text).map(|bytes| Window(Some(bytes))),
    }
}

fn time(text: &str, most_s: f64) -> Result<Duration, String> {
    let lower = text.to_ascii_lowercase();
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units
        .iter()
        .find_map(|(unit, seconds)| Some((lower.strip_suffix(unit)?, *seconds)));
    let (digits, seconds) = unit.unwrap_or((&lower, 1.0));
    let number: f64 = digits
        .parse()
        .map_err(|_| "not a time, such as 500ms, 10s, 5m or 1h".to_owned())?;
    match number * seconds {
        seconds if (0.001..=most_s).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("it must be between 1 ms and {most_s} s")),
    }
}

fn every(text: &str) -> Result<Duration, String> {
    time(text, EVERY_S_MAX)
}

fn length(text: &str) -> Result<Duration, String> {
    time(text, FOR_S_MAX)
}

fn bit_per_s(mbit: Option<f64>) -> Option<u64> {
    mbit.map(|mbit| (mbit * 1e6).clamp(1.0, 1e15) as u64)
}

impl CampaignCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let target = self.far.target()?;
        let options = self.far.possible(self.options(&target))?;
        self.far.possible(options.check())?;
        let mut watch = Watch::default();
        let is_quiet = self.far.json;
        let campaign = campaign::run_all(
            &options,
            &mut |test| campaign::measure(&target, test),
            &mut |step, tally| {
                if !is_quiet {
                    watch.at(step, tally);
                }
            },
        );
        watch.end();
        show(campaign, &self.file, &options.page, is_quiet)
    }

    fn options(&self, target: &Target) -> Result<CampaignOptions, String> {
        Ok(CampaignOptions {
            subject: Subject {
                target: target.host.clone(),
                port: target.port,
                test: self.test()?,
                windows_bytes: self.windows.iter().map(|window| window.0).collect(),
            },
            runs: self.runs,
            every: self.every,
            circuit_bit_per_s: bit_per_s(self.circuit),
            file: self.file.clone(),
            page: page_path(self.html.as_deref(), &self.file),
            stop: target.stop.clone(),
        })
    }

    /// Says what the kind of test asked for does not have.
    fn test(&self) -> Result<Test, String> {
        match (self.iperf3, self.udp) {
            (true, _) => self.iperf3_test().map(Test::Iperf3),
            (false, true) => self.udp_test().map(Test::Udp),
            (false, false) => self.tcp_test().map(Test::Tcp),
        }
    }

    fn tcp_test(&self) -> Result<TcpPlan, String> {
        if self.rate.is_some() || self.payload.is_some() {
            return Err("TCP sends as fast as it can: `--rate` and `--payload` are for `--udp` and `--iperf3`".to_owned());
        }
        let mut plan = TcpPlan::new(self.way.into(), self.length.as_millis() as u64);
        plan.streams = self.streams;
        Ok(plan)
    }

    fn udp_test(&self) -> Result<FlowPlan, String> {
        if self.streams != 1 {
            return Err(
                "UDP is one flow each way: `--streams` is for TCP and `--iperf3`".to_owned(),
            );
        }
        let payload = self.payload.unwrap_or(UDP_PAYLOAD_BYTES.into());
        let payload = u16::try_from(payload)
            .map_err(|_| format!("no datagram has a payload of {payload} bytes"))?;
        let bit_per_s = self.rate.unwrap_or(UDP_RATE_MBIT) * 1e6;
        let seconds = self.length.as_secs_f64();
        FlowPlan::at_rate(self.way.into(), payload, bit_per_s, seconds)
    }

    fn iperf3_test(&self) -> Result<Iperf3Plan, String> {
        if self.length.subsec_nanos() != 0 || self.length.as_secs() == 0 {
            return Err("with `--iperf3` a run lasts whole seconds, 1 at least".to_owned());
        }
        Ok(Iperf3Plan {
            direction: self.way.into(),
            streams: self.streams,
            duration_s: self.length.as_secs(),
            omit_s: 0,
            udp: self.udp,
            bit_per_s: bit_per_s(self.rate.or(self.udp.then_some(UDP_RATE_MBIT))),
            window_bytes: None,
            mss_bytes: None,
            block_bytes: self.payload,
        })
    }
}

impl ReportCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let page = page_path(self.html.as_deref(), &self.file);
        let campaign = match campaign::so_far(&self.file, &page, bit_per_s(self.circuit)) {
            // No campaign to tell of: the document is that of a single test.
            Err(error) if self.json => {
                return Err(failed(&self.file.display().to_string(), error));
            }
            campaign => campaign?,
        };
        show(campaign, &self.file, &page, self.json)
    }
}

fn page_path(html: Option<&Path>, file: &Path) -> PathBuf {
    html.map_or_else(|| file.with_extension("html"), Path::to_owned)
}

/// The page if there is something to draw, the document or the table.
fn show(mut campaign: Campaign, file: &Path, path: &Path, is_json: bool) -> Result<(), Failure> {
    let has_page = campaign.runs_done > 0;
    if has_page && let Err(source) = write_page(path, &page::of(&campaign)) {
        let what = format!("writing {}", path.display());
        campaign.fail(ProbeError::Local { what, source });
    }
    match is_json {
        true => print::value(&campaign)?,
        false => print::out(&text::of(&campaign, Screen::stdout()))?,
    }
    if let Some(trouble) = &campaign.error {
        print::aside(&trouble.text);
    }
    if campaign.error.is_none() && has_page && !is_json {
        print::line(&format!(
            "\npage: {}\nruns: {}",
            path.display(),
            file.display()
        ))?;
    }
    match campaign.exit_code {
        0 => Ok(()),
        code => Err(Failure::Verdict(code)),
    }
}

/// Seen complete or not at all: somebody may be reading the last one.
fn write_page(path: &Path, page: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&draft, page)
        .and_then(|()| fs::rename(&draft, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&draft);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let ms = |text| time(text, 3600.0).map(|time| time.as_millis());
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("10"), Ok(10_000));
        assert_eq!(ms("1.5s"), Ok(1500));
        assert_eq!(ms("5M"), Ok(300_000));
        assert_eq!(ms("1h"), Ok(3_600_000));
        for bad in ["", "s", "-1s", "0", "2h", "NaN", "infs", "1 s x"] {
            assert!(ms(bad).is_err(), "{bad}");
        }
    }
}
