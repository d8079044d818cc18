//! `farhaul doctor`: what usually goes wrong, with evidence and remedy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use farhaul_gateway::admin::DEFAULT_SOCKET;
use farhaul_gateway::admin::client::Client;
use farhaul_gateway::config::load::{self, LoadError, Loaded};
use farhaul_gateway::doctor::{Check, Report, Subject, System, Verdict, examine};

use crate::ask::{Where, block_on};
use crate::failure::Failure;
use crate::print;
use crate::table::{Paint, Tone, clean};

/// `farhaul doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0: nothing is wrong. 1: warnings. 2: failures.\n\n\
    Works without a running gateway, given --config; with one it is asked as well."
)]
pub(crate) struct DoctorCommand {
    #[command(flatten)]
    gateway: Where,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl DoctorCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let subject = self.subject()?;
        let report = examine(&subject, &System);
        if self.json {
            print::value(&report)?;
        } else {
            print::out(&page(&report, Paint::stdout()))?;
        }
        match report.exit_code() {
            0 => Ok(()),
            code => Err(Failure::Verdict(code)),
        }
    }

    fn subject(&self) -> Result<Subject, Failure> {
        let file = self.gateway.config.as_deref();
        let from_file = file.map(|file| (file.display().to_string(), load::load(file)));
        let socket = match (&self.gateway.socket, file) {
            (Some(socket), _) => socket.clone(),
            // The file's socket counts even if its key cannot be read.
            (None, Some(file)) => load::load_without_key(file).map_or_else(
                |_| PathBuf::from(DEFAULT_SOCKET),
                |loaded| loaded.config.admin.socket,
            ),
            (None, None) => PathBuf::from(DEFAULT_SOCKET),
        };
        let client = Client::new(&socket);
        let status = block_on(client.status())?.map_err(|error| error.to_string());
        let (source, config) = match from_file {
            Some(from_file) => from_file,
            None => running_configuration(&client)?,
        };
        Ok(Subject {
            source,
            config,
            status,
            socket,
        })
    }
}

/// Without a file, what the gateway runs on.
fn running_configuration(client: &Client) -> Result<(String, Result<Loaded, LoadError>), Failure> {
    let text = block_on(client.config_toml())?.map_err(|error| {
        Failure::usage(format!(
            "{error}\n  to examine a machine without a running gateway: farhaul doctor --config FILE"
        ))
    })?;
    let source = "the running configuration".to_owned();
    let loaded = load::check(&text, Path::new(&source), |_| None);
    Ok((source, loaded))
}

fn page(report: &Report, paint: Paint) -> String {
    let mut text = String::new();
    let width = report
        .checks
        .iter()
        .map(|check| check.name.chars().count())
        .max()
        .unwrap_or(0);
    for check in &report.checks {
        push_check(&mut text, check, width, paint);
    }
    let count = |verdict| {
        report
            .checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\n{} ok, {} to look at, {} wrong, {} not looked at",
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail),
        count(Verdict::Skip)
    );
    text
}

fn push_check(text: &mut String, check: &Check, width: usize, paint: Paint) {
    let tone = match check.verdict {
        Verdict::Ok => Tone::Good,
        Verdict::Warn => Tone::Notice,
        Verdict::Fail => Tone::Bad,
        Verdict::Skip => Tone::Dim,
    };
    let word = paint.tone(tone, check.verdict.word());
    let fill = 4 - check.verdict.word().len();
    let indent = " ".repeat(width + 8);
    let mut lines = check.evidence.lines();
    let first = clean(lines.next().unwrap_or_default());
    let name = clean(&check.name);
    let _ = writeln!(text, "{word}{:fill$}  {name:<width$}  {first}", "");
    for line in lines {
        let _ = writeln!(text, "{indent}{}", clean(line));
    }
    if let Some(remedy) = &check.remedy {
        let _ = writeln!(
            text,
            "{indent}{} {}",
            paint.tone(Tone::Bold, "->"),
            clean(remedy)
        );
    }
}
