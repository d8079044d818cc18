//! `farhaul link`: a WAN link between two interfaces, emulated.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use farhaul_lab::emulate::{
    ControlClient, ControlSocket, EmulateError, LinkOptions, LiveLink, Restored, SOCKET_FOLDER,
    STATE_FOLDER, StopSignals, default_socket, restore, serve,
};
use farhaul_link::LinkProfile;
use serde_json::json;

use crate::failure::Failure;
use crate::print;

const WORDS_HELP: &str = "\
WORDS are netem's, after the name of a profile or without one:
  rate 51.84mbit   delay 100ms 10ms   loss 1%   duplicate 0.1%   corrupt 0.01%
  reorder 1%   queue 256kb   policer 20mbit 64kb   mtu 1500   framing wire
  (and `rtt 200ms`, half each way)
Settings hold for both directions; those after `forward` only from the first
interface to the second, those after `backward` only the other way.
`farhaul link profiles` lists the names.

example: farhaul link run eth1 eth2 oc1 delay 100ms loss 1%
         farhaul link set loss 2%
         farhaul link set forward rate 1mbit backward rate 8mbit";

/// `farhaul link`.
#[derive(Debug, Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct LinkCommand {
    #[command(subcommand)]
    verb: LinkVerb,
}

#[derive(Debug, Subcommand)]
enum LinkVerb {
    /// Join two interfaces by an emulated link until stopped.
    #[command(after_help = WORDS_HELP)]
    Run(Run),
    /// Change a running link at once; what WORDS do not mention stays.
    #[command(after_help = WORDS_HELP)]
    Set(Set),
    /// Packets, drops by cause, queue, rates and lateness of a running link.
    Stats(Stats),
    /// Stop a running link; returns when the interfaces are as before.
    Stop(Named),
    /// The named profiles with the source of their numbers.
    Profiles(Profiles),
    /// Put offloads back that a killed link left switched off.
    Restore(Restore),
}

#[derive(Debug, Args)]
struct Run {
    /// First interface.
    #[arg(value_name = "IF_A")]
    a: String,
    /// Second interface.
    #[arg(value_name = "IF_B")]
    b: String,
    /// What the link is like; an ideal wire where nothing is said.
    #[arg(allow_negative_numbers = true)]
    words: Vec<String>,
    /// Seed of all random decisions: the same seed loses the same packets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Control socket [default: /run/farhaul/link-IF_A-IF_B.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Capture what passes at the first interface, both ways.
    #[arg(long, value_name = "FILE")]
    pcap_a: Option<PathBuf>,
    /// Capture what passes at the second interface, both ways.
    #[arg(long, value_name = "FILE")]
    pcap_b: Option<PathBuf>,
    /// A thread for each direction instead of one for both.
    #[arg(long)]
    two_threads: bool,
    /// Keep the processors from sleeping: departures, and whatever waits for
    /// packets, are some 50 us more punctual, and an idle machine heats.
    #[arg(long)]
    awake: bool,
    /// Write the line `ready` to this open file descriptor instead of
    /// standard output once frames pass.
    #[arg(long, value_name = "N")]
    ready_fd: Option<u32>,
}

#[derive(Debug, Args)]
struct Named {
    /// Control socket; not needed where only one link runs.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Set {
    #[command(flatten)]
    link: Named,
    /// What changes.
    #[arg(required = true, allow_negative_numbers = true)]
    words: Vec<String>,
}

#[derive(Debug, Args)]
struct Stats {
    #[command(flatten)]
    link: Named,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Start all counters anew after printing them.
    #[arg(long)]
    reset: bool,
}

#[derive(Debug, Args)]
struct Profiles {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Restore {
    /// Only these interfaces [default: all of this network namespace].
    interfaces: Vec<String>,
}

impl LinkCommand {
    /// Does what was asked.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.verb {
            LinkVerb::Run(run) => run.run(),
            LinkVerb::Set(set) => set.run(),
            LinkVerb::Stats(stats) => stats.run(),
            LinkVerb::Stop(named) => Ok(named.connect()?.stop()?),
            LinkVerb::Profiles(profiles) => profiles.run(),
            LinkVerb::Restore(restore) => restore.run(),
        }
    }
}

/// Says what is wrong with a negative value, which the command line's parser
/// takes for an option before the words are read.
pub(crate) fn negative_value(words: &[String]) -> Option<String> {
    let is_negative = |word: &&String| {
        let mut chars = word.chars();
        chars.next() == Some('-') && chars.next().is_some_and(|c| c.is_ascii_digit() || c == '.')
    };
    let (verb, rest) = words.split_first()?;
    let word = rest.iter().find(is_negative).filter(|_| verb == "link")?;
    Some(format!("`{word}`: a negative value is impossible"))
}

impl From<EmulateError> for Failure {
    fn from(error: EmulateError) -> Self {
        match error {
            EmulateError::SameInterface { .. } | EmulateError::Profile(_) => Self::usage(error),
            other => Self::failed(other),
        }
    }
}

/// The words as a profile, to say early what is wrong with them.
fn parse(words: &[String]) -> Result<LinkProfile, Failure> {
    if words.is_empty() {
        return Ok(LinkProfile::default());
    }
    Ok(LinkProfile::parse(&words.join(" ")).map_err(EmulateError::from)?)
}

impl Run {
    fn run(self) -> Result<(), Failure> {
        let mut options = LinkOptions::new(&self.a, &self.b, parse(&self.words)?);
        options.seed = self.seed;
        options.pcap_a = self.pcap_a;
        options.pcap_b = self.pcap_b;
        options.two_threads = self.two_threads;
        options.is_awake = self.awake;
        let signals = StopSignals::hold()
            .map_err(|error| Failure::failed(format!("cannot hold signals: {error}")))?;
        let folder = Path::new(SOCKET_FOLDER);
        let socket = self.socket.unwrap_or_else(|| {
            // Where this fails, listening says so with the path.
            let _ = std::fs::create_dir_all(folder);
            default_socket(folder, &self.a, &self.b)
        });
        let control = ControlSocket::listen(&socket)?;
        let link = LiveLink::start(options)?;
        notice(&format!(
            "{} <-> {}: {}; control socket {}",
            self.a,
            self.b,
            link.profile(),
            socket.display()
        ));
        say_ready(self.ready_fd)?;
        Ok(serve(link, control, &signals, notice)?)
    }
}

/// A line of log. Standard error may be gone; the link goes on.
fn notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "farhaul: {text}");
}

fn say_ready(descriptor: Option<u32>) -> Result<(), Failure> {
    let Some(number) = descriptor else {
        return print::line("ready");
    };
    File::options()
        .write(true)
        .open(format!("/proc/self/fd/{number}"))
        .and_then(|mut file| file.write_all(b"ready\n"))
        .map_err(|error| {
            Failure::failed(format!(
                "cannot write to file descriptor {number} (--ready-fd): {error}"
            ))
        })
}

impl Named {
    fn connect(&self) -> Result<ControlClient, Failure> {
        Ok(match &self.socket {
            Some(path) => ControlClient::connect(path)?,
            None => ControlClient::connect_to_only(Path::new(SOCKET_FOLDER))?,
        })
    }
}

impl Set {
    fn run(self) -> Result<(), Failure> {
        parse(&self.words)?;
        let in_force = self.link.connect()?.set(&self.words.join(" "))?;
        print::line(&in_force)
    }
}

impl Stats {
    fn run(self) -> Result<(), Failure> {
        let stats = self.link.connect()?.stats(self.reset)?;
        if self.json {
            return print::json(&json!(stats));
        }
        print::out(&stats.to_string())
    }
}

impl Profiles {
    fn run(self) -> Result<(), Failure> {
        let profiles = farhaul_link::profiles();
        if self.json {
            let documents: Vec<_> = profiles
                .iter()
                .map(|profile| {
                    json!({
                        "name": profile.name,
                        "aliases": profile.aliases,
                        "about": profile.about,
                        "source": profile.source,
                        "settings": settings(profile),
                    })
                })
                .collect();
            return print::json(&json!(documents));
        }
        let mut text = String::new();
        for profile in profiles {
            let names = [&[profile.name], profile.aliases].concat().join(", ");
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{names}\n    {}\n    {}\n    source: {}",
                profile.about,
                settings(profile),
                profile.source
            );
        }
        print::out(&text)
    }
}

/// What the name stands for, in the same words.
fn settings(profile: &farhaul_link::NamedProfile) -> String {
    LinkProfile {
        name: None,
        ..profile.link()
    }
    .to_string()
}

impl Restore {
    fn run(self) -> Result<(), Failure> {
        let restored = restore(Path::new(STATE_FOLDER), &self.interfaces)?;
        if restored.is_empty() {
            return print::line("nothing to put back");
        }
        for Restored {
            interface,
            features,
        } in restored
        {
            print::line(&format!("{interface}: {} on again", features.join(", ")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_help_is_one_the_parser_takes() {
        let (_, rest) = WORDS_HELP.split_once('\n').unwrap();
        let (settings, rest) = rest.split_once("\n  (and `").unwrap();
        let (round_trip, rest) = rest.split_once('`').unwrap();
        let settings = settings.split("  ").map(str::trim);
        let mut taken = 0;
        for words in settings
            .filter(|words| !words.is_empty())
            .chain([round_trip])
        {
            LinkProfile::parse(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            taken += 1;
        }
        let examples = rest.lines().filter_map(|line| {
            let (_, words) = line
                .split_once("eth2 ")
                .or_else(|| line.split_once(" set "))?;
            Some(words)
        });
        for words in examples {
            LinkProfile::parse(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            taken += 1;
        }
        assert_eq!(taken, 14, "settings and examples found in the help");
    }
}
