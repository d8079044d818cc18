//! `farhaul keygen`, `check-config`, `print-config`: keys and files of a gateway.

use std::path::PathBuf;

use clap::Args;
use farhaul_gateway::config::load::{self, LoadError, Loaded};
use farhaul_gateway::config::units::show_size;
use farhaul_gateway::config::{Config, defaults, diagnose::Problems, print as config_text};
use farhaul_gateway::keys::PrivateKey;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::print;

/// `farhaul keygen`.
#[derive(Debug, Args)]
#[command(after_help = "example: farhaul keygen --out /etc/farhaul/harbour.key")]
pub(crate) struct Keygen {
    /// File for the private key; an existing one is never overwritten.
    #[arg(value_name = "FILE", conflicts_with = "out")]
    file: Option<PathBuf>,
    /// The same, by name [default: farhaul.key].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the public key of an existing file instead.
    #[arg(long)]
    show: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Keygen {
    /// Writes a private key and prints its public half.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let path = self.file.or(self.out);
        let path = path.unwrap_or_else(|| PathBuf::from("farhaul.key"));
        let key = if self.show {
            PrivateKey::load(&path).map_err(Failure::failed)?
        } else {
            let key = PrivateKey::generate().map_err(Failure::failed)?;
            key.create(&path).map_err(Failure::failed)?;
            key
        };
        let public = key.public().to_string();
        if self.json {
            return print::json(&json!({ "file": path, "public_key": public }));
        }
        if !self.show {
            eprintln!(
                "farhaul: the private key is in {}; the other site's gateway needs this public key:",
                path.display()
            );
        }
        print::line(&public)
    }
}

/// Which file, for every verb that reads one.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The same, by name [default: farhaul.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leave out what only the gateway's own machine has: private key, interfaces, memory.
    #[arg(long)]
    without_key: bool,
}

impl ConfigFile {
    fn path(&self) -> PathBuf {
        let given = self.file.clone().or(self.config.clone());
        given.unwrap_or_else(|| PathBuf::from("farhaul.toml"))
    }

    fn load(&self) -> Result<Loaded, LoadError> {
        match self.without_key {
            true => load::load_without_key(&self.path()),
            false => load::load(&self.path()),
        }
    }
}

/// `farhaul check-config`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 0: usable, perhaps with warnings. 1: not usable.")]
pub(crate) struct CheckConfig {
    #[command(flatten)]
    file: ConfigFile,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CheckConfig {
    /// Says everything that is wrong with a file.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (problems, loaded) = match self.file.load() {
            Ok(loaded) => (loaded.warnings, Some(loaded.config)),
            Err(LoadError::Invalid(problems)) => (problems, None),
            Err(unreadable) => return Err(Failure::failed(unreadable)),
        };
        if self.json {
            let (errors, warnings) = problems.count();
            print::json(&json!({
                "file": self.file.path(),
                "ok": loaded.is_some(),
                "errors": errors,
                "warnings": warnings,
                "problems": problems.rows(),
            }))?;
        } else {
            print::out(&verdict(&problems, loaded.as_ref()))?;
        }
        match loaded {
            Some(_) => Ok(()),
            None => Err(Failure::Reported),
        }
    }
}

fn verdict(problems: &Problems, loaded: Option<&Config>) -> String {
    let several = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let (errors, warnings) = problems.count();
    let gap = if problems.is_empty() { "" } else { "\n" };
    let file = problems.file();
    let verdict = match loaded {
        None => format!(
            "{file}: not usable, {} and {}",
            several(errors, "error"),
            several(warnings, "warning")
        ),
        Some(config) => {
            let built_in = defaults::rules().len();
            format!(
                "{file}: usable, {}: site {}, {}, {}{}",
                several(warnings, "warning"),
                config.site.name,
                several(config.peers.len(), "peer"),
                several(config.rules.len() - built_in, "rule"),
                memory_by_disk(config),
            )
        }
    };
    format!("{problems}{gap}{verdict}\n")
}

/// How much memory a disk takes that is given alone.
fn memory_by_disk(config: &Config) -> String {
    let size = show_size(config.store.memory_bytes);
    match config.store.is_memory_by_disk {
        true => format!(", {size} of memory for what is on disk"),
        false => String::new(),
    }
}

/// `farhaul print-config`.
#[derive(Debug, Args)]
pub(crate) struct PrintConfig {
    #[command(flatten)]
    file: ConfigFile,
    /// Print the reference page of all keys instead, as Markdown.
    #[arg(long)]
    reference: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl PrintConfig {
    /// Prints a file with every default filled in.
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.reference {
            return print::out(&config_text::reference());
        }
        let loaded = self.file.load().map_err(Failure::failed)?;
        if self.json {
            let document: Value = config_text::document(&loaded.config).map_err(Failure::failed)?;
            return print::json(&document);
        }
        print::out(&config_text::full(&loaded.config))
    }
}
