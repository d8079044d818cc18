//! How a verb fails: one message and one exit code.

use std::fmt::Display;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::link_command::negative_value;
use crate::print;

/// The exit code of wrong usage; every other failure is 1.
const USAGE_CODE: u8 = 2;

/// Why a verb did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// What was asked for did not work: exit code 1.
    Failed(String),
    /// It did not work and everything worth saying was printed: exit code 1.
    Reported,
    /// It did its work; what it found is this exit code.
    Verdict(u8),
    /// Help or version text was asked for: exit code 0.
    Help(String),
}

impl Failure {
    /// A wrong command line: what, where, what to do instead.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// A failure: what happened, where, what to do.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// What it says, for a document.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Usage(words) | Self::Failed(words) | Self::Help(words) => words.clone(),
            Self::Reported | Self::Verdict(_) => String::new(),
        }
    }

    /// Prints it where it belongs and says how the process ends.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Help(text) => match print::out(text) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => failure.report(),
            },
            Self::Usage(message) => {
                print::aside(message.trim_end());
                ExitCode::from(USAGE_CODE)
            }
            Self::Failed(message) => {
                print::aside(message.trim_end());
                ExitCode::FAILURE
            }
            Self::Reported => ExitCode::FAILURE,
            Self::Verdict(code) => ExitCode::from(*code),
        }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let words: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        if let (ErrorKind::UnknownArgument, Some(text)) = (error.kind(), negative_value(&words)) {
            Self::Usage(text)
        } else if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            Self::Usage(format!("no command given\n\n{text}"))
        } else if error.use_stderr() {
            Self::Usage(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
        } else {
            Self::Help(format!("{}\n", text.trim_end()))
        }
    }
}
