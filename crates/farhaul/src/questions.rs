//! Questions on a terminal, for what the command line did not say.

use std::fmt::Display;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::failure::Failure;

/// Asks where it can; elsewhere a missing value is wrong usage that names its flag.
#[derive(Debug)]
pub(crate) struct Questions {
    terminal: bool,
}

impl Questions {
    /// Questions are asked when a person sits at both ends.
    pub(crate) fn new() -> Self {
        Self {
            terminal: stdin().is_terminal() && stderr().is_terminal(),
        }
    }

    /// Whether there is somebody to ask.
    pub(crate) fn can_ask(&self) -> bool {
        self.terminal
    }

    /// `given`, or the answer to `question`, asked until `parse` accepts it.
    /// An empty answer stands for `default`, if there is one.
    pub(crate) fn value<T, E: Display>(
        &self,
        given: Option<T>,
        flag: &str,
        question: &str,
        default: Option<&str>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, Failure> {
        if let Some(given) = given {
            return Ok(given);
        }
        if !self.terminal {
            return Err(Failure::usage(format!(
                "{flag} is missing, and there is no terminal to ask at ({question})"
            )));
        }
        loop {
            match default {
                Some(default) => eprint!("{question} [{default}]: "),
                None => eprint!("{question}: "),
            }
            let _ = stderr().flush();
            let mut line = String::new();
            let read = stdin().lock().read_line(&mut line);
            let ended = || Failure::failed("the answers ended before the questions did");
            if read.map_err(|_| ended())? == 0 {
                eprintln!();
                return Err(ended());
            }
            let text = match (line.trim(), default) {
                ("", Some(default)) => default,
                (text, _) => text,
            };
            match parse(text) {
                Ok(value) => return Ok(value),
                Err(error) => eprintln!("  {error}"),
            }
        }
    }
}
