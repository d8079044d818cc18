//! Reading what others wrote line by line: a malformed line is counted and
//! remembered with its number; too many of them, and the file is not believed.

use std::fmt;

/// Malformed lines told in full.
const TOLD_MAX: usize = 10;

/// What was read, and what could not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept<V> {
    /// What was understood.
    pub kept: V,
    /// Malformed lines.
    pub bad_lines: usize,
    /// The first of them: line number and what is wrong.
    pub bad: Vec<(usize, String)>,
    /// Well-formed lines that were left out on purpose.
    pub left_out: usize,
}

impl<V> Kept<V> {
    /// What to tell of malformed lines of a file: the first of them, then how many.
    pub fn complaints(&self, file: &str) -> Vec<String> {
        let told = self.bad.iter();
        let mut all: Vec<String> = told
            .map(|(line, why)| format!("{file}:{line}: {why}"))
            .collect();
        if self.bad_lines > 0 {
            all.push(format!(
                "{file}: {} malformed lines were left out",
                self.bad_lines
            ));
        }
        all
    }

    /// The same about something made of it.
    pub fn map<W>(self, change: impl FnOnce(V) -> W) -> Kept<W> {
        Kept {
            kept: change(self.kept),
            bad_lines: self.bad_lines,
            bad: self.bad,
            left_out: self.left_out,
        }
    }
}

/// A file with so many malformed lines that it must be something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooManyBadLines {
    /// Malformed lines after which it was given up.
    pub bad_lines_max: usize,
    /// The first of them: line number and what is wrong.
    pub bad: Vec<(usize, String)>,
}

impl fmt::Display for TooManyBadLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "more than {} malformed lines, given up; the first:",
            self.bad_lines_max
        )?;
        for (line, why) in &self.bad {
            write!(f, "\n  line {line}: {why}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TooManyBadLines {}

/// Reads every line that is neither empty nor a comment. `read` answers with
/// a value, with `None` for a line to leave out, or with what is wrong.
pub(super) fn read_lines<V>(
    text: &str,
    bad_lines_max: usize,
    mut read: impl FnMut(&str) -> Result<Option<V>, String>,
) -> Result<Kept<Vec<V>>, TooManyBadLines> {
    let mut all = Kept {
        kept: Vec::new(),
        bad_lines: 0,
        bad: Vec::new(),
        left_out: 0,
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match read(line) {
            Ok(Some(value)) => all.kept.push(value),
            Ok(None) => all.left_out += 1,
            Err(why) => {
                all.bad_lines += 1;
                if all.bad.len() < TOLD_MAX {
                    all.bad.push((number + 1, why));
                }
                if all.bad_lines > bad_lines_max {
                    return Err(TooManyBadLines {
                        bad_lines_max,
                        bad: all.bad,
                    });
                }
            }
        }
    }
    Ok(all)
}

/// The next word as a number.
pub(super) fn number<V: std::str::FromStr>(word: Option<&str>, what: &str) -> Result<V, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse()
        .map_err(|_| format!("`{}` is no {what}", short(word)))
}

/// A number of seconds that can be a time.
pub(super) fn time_s(word: Option<&str>, what: &str) -> Result<f64, String> {
    let seconds: f64 = number(word, what)?;
    if seconds.is_finite() && seconds >= 0.0 {
        Ok(seconds)
    } else {
        Err(format!("{what} cannot be {seconds}"))
    }
}

/// What others wrote is repeated only so far.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}
