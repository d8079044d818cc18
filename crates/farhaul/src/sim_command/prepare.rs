//! `farhaul sim prepare`: a host file and a log file from what others wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use farhaul_sim::workload::{self, Assumptions, Entry, Handshake, Kept};

use super::merge::write_whole;
use crate::failure::Failure;
use crate::print;

/// What a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Squid's native access.log.
    Squid,
    /// Common or Combined Log Format.
    Clf,
    /// HAR, saved by a browser.
    Har,
}

#[derive(Debug, Args)]
#[command(
    after_help = "example: farhaul sim prepare squid access.log --capture handshakes.pcap\n\
                        the capture: tcpdump -w handshakes.pcap 'tcp[tcpflags] & (tcp-syn|tcp-ack) == (tcp-syn|tcp-ack)'"
)]
pub(crate) struct Prepare {
    /// What the log is.
    format: Format,
    /// The log.
    log: PathBuf,
    /// A capture of the servers' handshakes: their windows and segment sizes.
    #[arg(long, value_name = "PCAP")]
    capture: Option<PathBuf>,
    /// The server of requests that name none (clf).
    #[arg(long, value_name = "NAME", default_value = "origin")]
    host: String,
    /// Length of a reply's header, which clf does not count.
    #[arg(long, value_name = "BYTES", default_value_t = 250)]
    header_bytes: u64,
    /// How long a reply takes in the far network where the log does not say.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    far_s: f64,
    /// Malformed lines after which the log is not believed.
    #[arg(long, value_name = "N", default_value_t = 100)]
    bad_lines_max: usize,
    /// The host file to write.
    #[arg(long, value_name = "FILE", default_value = "out/hosts.txt")]
    hosts_to: PathBuf,
    /// The log file to write.
    #[arg(long, value_name = "FILE", default_value = "out/requests.txt")]
    log_to: PathBuf,
}

impl Prepare {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !(0.0..=86_400.0).contains(&self.far_s) {
            return Err(Failure::usage("--far-s must be 0 to 86,400 seconds"));
        }
        let read = self.read()?;
        let name = self.log.display();
        for (line, why) in &read.bad {
            eprintln!("farhaul: {name}:{line}: {why}");
        }
        if read.bad_lines > self.bad_lines_max {
            return Err(Failure::failed(format!(
                "{name}: {} malformed entries, given up",
                read.bad_lines
            )));
        }
        if read.kept.is_empty() {
            let left_out = read.left_out;
            return Err(Failure::failed(format!(
                "{name}: no request to be simulated in it ({left_out} left out)"
            )));
        }
        let assumptions = Assumptions {
            far_s: self.far_s,
            ..Assumptions::default()
        };
        let workload = workload::prepare(&read.kept, &self.handshakes()?, assumptions);
        let days = workload.duration_ns as f64 / 1e9 / workload::SECONDS_MAX;
        if days > 1.0 {
            return Err(Failure::failed(format!(
                "{name}: {days:.1} days lie between its first and last request; a study takes one at most"
            )));
        }
        write_whole(&self.hosts_to, &workload::write_hosts(&workload.hosts))?;
        write_whole(&self.log_to, &workload::write_log(&workload))?;
        print::out(&format!(
            "{} requests to {} hosts, {:.3} Mbit/s; {} left out, {} malformed\n{}\n{}\n",
            workload.requests.len(),
            workload.hosts.len(),
            workload.load_bit_per_s() / 1e6,
            read.left_out,
            read.bad_lines,
            self.hosts_to.display(),
            self.log_to.display()
        ))
    }

    fn read(&self) -> Result<Kept<Vec<Entry>>, Failure> {
        let failed = |why: String| Failure::failed(format!("{}: {why}", self.log.display()));
        let bytes = fs::read(&self.log).map_err(|error| failed(error.to_string()))?;
        // Logs contain what clients sent; what is no text spoils its line only.
        let text = String::from_utf8_lossy(&bytes);
        match self.format {
            Format::Squid => workload::read_squid(&text, self.bad_lines_max)
                .map_err(|error| failed(error.to_string())),
            Format::Clf => {
                workload::read_clf(&text, &self.host, self.header_bytes, self.bad_lines_max)
                    .map_err(|error| failed(error.to_string()))
            }
            Format::Har => workload::read_har(&text).map_err(failed),
        }
    }

    fn handshakes(&self) -> Result<BTreeMap<String, Handshake>, Failure> {
        let Some(path) = &self.capture else {
            return Ok(BTreeMap::new());
        };
        let failed = |why: String| Failure::failed(format!("{}: {why}", path.display()));
        let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
        let found = workload::read_handshakes(&bytes).map_err(failed)?;
        if found.bad_packets > 0 {
            eprintln!(
                "farhaul: {}: {} packets are cut or malformed",
                path.display(),
                found.bad_packets
            );
        }
        Ok(found.by_address)
    }
}
