//! Standard output, without the panic of `println!` when the reader is gone.

use std::io::{ErrorKind, Write, stderr, stdout};
use std::path::Path;

use farhaul_lab::live;
use farhaul_lab::measurement::Measurement;
use farhaul_lab::table::Screen;

use crate::failure::Failure;

/// Prints `text` as it is and flushes it. A closed pipe (`farhaul ... | head`)
/// is not a failure.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// As [`out`]; says whether somebody still reads, for what goes on printing.
pub(crate) fn is_read(text: &str) -> Result<bool, Failure> {
    let mut stdout = stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}

/// As [`out`], with a line end added.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    out(&format!("{text}\n"))
}

/// A line about ourselves on standard error, where it can be written: a closed or
/// full one must not end what is being done.
pub(crate) fn aside(text: &str) {
    let _ = writeln!(stderr(), "farhaul: {text}");
}

/// Prints a JSON document for programs, indented, with a line end.
pub(crate) fn json(document: &serde_json::Value) -> Result<(), Failure> {
    out(&format!("{document:#}\n"))
}

/// As [`json`], for a value of ours.
pub(crate) fn value(value: &impl serde::Serialize) -> Result<(), Failure> {
    let document = serde_json::to_value(value).map_err(Failure::failed)?;
    json(&document)
}

/// What was measured, and where all of it lies; a failure where a row does not hold.
pub(crate) fn measurement(document: &Measurement, file: &Path) -> Result<(), Failure> {
    out(&live::table(document).render(Screen::stdout()))?;
    line(&format!("\nall numbers: {}", file.display()))?;
    match document.is_ok() {
        true => Ok(()),
        false => Err(Failure::Reported),
    }
}
