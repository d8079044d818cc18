//! What is wrong with a file, where, and what to do: every problem points at
//! its place in the source text.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// Most problems shown for one file; the rest is counted.
const SHOWN_MAX: usize = 40;
/// Longest piece of a source line shown, in characters.
const SOURCE_CHARS_MAX: usize = 120;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not say what was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad.
    pub severity: Severity,
    /// Where, as byte offsets into the file.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What is accepted and what to do, one line each.
    pub help: Vec<String>,
}

impl Problem {
    /// Adds a line that says what is accepted or what to do.
    pub fn help(&mut self, line: impl Into<String>) -> &mut Self {
        self.help.push(line.into());
        self
    }
}

/// All problems of one file, with the text they point into.
///
/// `Display` prints every one of them with file, line, column (both counted
/// from 1, columns in characters), source line, caret and help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    file: String,
    text: String,
    list: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl Problems {
    /// No problems yet in `text`, which was read from `file`.
    pub fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            text: text.into(),
            list: Vec::new(),
        }
    }

    /// Adds an error.
    pub fn error(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Problem {
        self.push(Severity::Error, span, message.into())
    }

    /// Adds a warning.
    pub fn warning(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Problem {
        self.push(Severity::Warning, span, message.into())
    }

    fn push(&mut self, severity: Severity, span: Range<usize>, message: String) -> &mut Problem {
        let at = self.list.len();
        self.list.push(Problem {
            severity,
            span,
            message,
            help: Vec::new(),
        });
        &mut self.list[at]
    }

    /// Whether the file cannot be used.
    pub fn has_errors(&self) -> bool {
        self.list
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    /// Whether an error lies within `span`.
    pub fn has_errors_in(&self, span: &Range<usize>) -> bool {
        self.list.iter().any(|problem| {
            problem.severity == Severity::Error
                && span.start <= problem.span.start
                && problem.span.end <= span.end
        })
    }

    /// Whether nothing at all was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many errors and how many warnings.
    pub fn count(&self) -> (usize, usize) {
        let errors = self
            .list
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .count();
        (errors, self.list.len() - errors)
    }

    /// Name of the file as given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The place of a part of a quoted text: inside the quotes where the file
    /// says it letter for letter, else (escapes) all of `span`.
    pub fn part_of_text(
        &self,
        span: Range<usize>,
        text: &str,
        part: Option<Range<usize>>,
    ) -> Range<usize> {
        let inside = span.start + 1..span.end.saturating_sub(1);
        match part {
            Some(part) if self.text.get(inside.clone()) == Some(text) => {
                let at = |offset: usize| inside.start + offset.min(text.len());
                at(part.start)..at(part.end)
            }
            _ => span,
        }
    }

    /// Line (from 1) of a byte offset: for messages that point at a second place.
    pub fn line_of(&self, offset: usize) -> usize {
        Place::of(&self.text, offset).line
    }

    /// In the order of the file.
    fn sorted(&self) -> Vec<&Problem> {
        let mut sorted: Vec<&Problem> = self.list.iter().collect();
        sorted.sort_by_key(|problem| problem.span.start);
        sorted
    }

    /// One line for each, for a log: where and what, without the source line and the help.
    pub fn lines(&self) -> Vec<String> {
        let sorted = self.sorted();
        let more = sorted.len().saturating_sub(SHOWN_MAX);
        let shown = sorted.iter().take(SHOWN_MAX);
        let lines = shown.map(|problem| self.head(problem));
        let more = (more > 0).then(|| format!("... and {more} more"));
        lines.chain(more).collect()
    }

    /// The same as data, for `--json`.
    pub fn rows(&self) -> Vec<Row> {
        let row = |problem: &&Problem| {
            let place = Place::of(&self.text, problem.span.start);
            Row {
                severity: problem.severity,
                file: self.file.clone(),
                line: place.line,
                column: place.column,
                source: place.source.to_owned(),
                message: problem.message.clone(),
                help: problem.help.clone(),
            }
        };
        self.sorted().iter().map(row).collect()
    }
}

/// One problem as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// How bad.
    pub severity: Severity,
    /// File as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line's text.
    pub source: String,
    /// What is wrong.
    pub message: String,
    /// What is accepted and what to do.
    pub help: Vec<String>,
}

/// A byte offset as people read it.
struct Place<'t> {
    line: usize,
    column: usize,
    source: &'t str,
}

impl<'t> Place<'t> {
    fn of(text: &'t str, offset: usize) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let (before, after) = text.split_at(offset);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = after.find('\n').map_or(text.len(), |at| offset + at);
        Self {
            line: before.matches('\n').count() + 1,
            column: text[start..offset].chars().count() + 1,
            source: text[start..end].trim_end_matches('\r'),
        }
    }
}

/// Control characters could drive the reader's terminal.
fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sorted = self.sorted();
        for (at, problem) in sorted.iter().take(SHOWN_MAX).enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            self.write_problem(f, problem)?;
        }
        match sorted.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => writeln!(f, "\n... and {more} more"),
        }
    }
}

impl Problems {
    /// Where and what.
    fn head(&self, problem: &Problem) -> String {
        let place = Place::of(&self.text, problem.span.start);
        let severity = match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        format!(
            "{}:{}:{}: {severity}: {}",
            harmless(&self.file),
            place.line,
            place.column,
            harmless(&problem.message)
        )
    }

    fn write_problem(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        let place = Place::of(&self.text, problem.span.start);
        writeln!(f, "{}", self.head(problem))?;
        // Where there is no source line, as in an empty file, there is nothing to show.
        if !place.source.is_empty() {
            let number = place.line.to_string();
            let gutter = " ".repeat(number.len());
            let (source, indent) = window(place.source, place.column - 1);
            let room = source.chars().count().saturating_sub(indent).max(1);
            let marked = self
                .text
                .get(problem.span.clone())
                .and_then(|text| text.lines().next())
                .map_or(1, |line| line.chars().count());
            let carets = "^".repeat(marked.clamp(1, room));
            writeln!(f, " {gutter} |")?;
            writeln!(f, " {number} | {}", source.trim_end())?;
            writeln!(f, " {gutter} | {}{carets}", " ".repeat(indent))?;
        }
        for line in &problem.help {
            writeln!(f, "   = {}", harmless(line))?;
        }
        Ok(())
    }
}

/// The part of a long line around column `at` (from 0), and where `at` lies in it.
fn window(source: &str, at: usize) -> (String, usize) {
    let source = harmless(source);
    let chars = source.chars().count();
    let start = match chars <= SOURCE_CHARS_MAX {
        true => 0,
        false => at.saturating_sub(SOURCE_CHARS_MAX / 2),
    };
    let part = source.chars().skip(start).take(SOURCE_CHARS_MAX).collect();
    (part, at - start)
}

/// The candidate a mistyped word most likely stands for.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let allowed = (word.chars().count() / 3).max(1);
    let begins = |long: &str, short: &str| short.len() >= 3 && long.starts_with(short);
    let distance = |candidate: &str| match begins(word, candidate) || begins(candidate, word) {
        true => 1,
        false => edits(word, candidate),
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(edits, _)| *edits <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, removals, replacements and swaps of neighbours that turn `a`
/// into `b`. Long words are cut: only near misses are of interest.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut older: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut cost = (last[j - 1] + usize::from(!same))
                .min(last[j] + 1)
                .min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(older[j - 2] + 1);
            }
            row.push(cost);
        }
        older = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_points_at_its_place() {
        let text = "a = 1\nnëtwork = 2\r\nb = 3";
        let mut problems = Problems::new("x.toml", text);
        let start = text.find("= 2").unwrap();
        problems.error(start..start + 3, "wrong").help("do this");
        assert_eq!(
            problems.to_string(),
            "x.toml:2:9: error: wrong\n   |\n 2 | nëtwork = 2\n   |         ^^^\n   = do this\n"
        );
    }

    #[test]
    fn each_problem_is_one_line_of_a_log() {
        let mut problems = Problems::new("x.toml", "a = 1\nb = 2\n");
        problems.warning(6..7, "two\nlines").help("do this");
        problems.warning(0..1, "one").help("do that");
        assert_eq!(
            problems.lines(),
            [
                "x.toml:1:1: warning: one",
                "x.toml:2:1: warning: two\u{fffd}lines"
            ]
        );
        for _ in 0..SHOWN_MAX {
            problems.warning(0..1, "again");
        }
        let lines = problems.lines();
        assert_eq!(lines.len(), SHOWN_MAX + 1);
        assert_eq!(lines[SHOWN_MAX], "... and 2 more");
    }

    #[test]
    fn any_offset_can_be_shown() {
        let text = "ä\n\n€ = \u{1b}[31m";
        for start in 0..text.len() + 3 {
            for end in start..text.len() + 3 {
                let mut problems = Problems::new("x", text);
                problems.warning(start..end, "m");
                let shown = problems.to_string();
                assert!(shown.starts_with("x:"), "{shown}");
                assert!(!shown.contains('\u{1b}'), "{shown}");
            }
        }
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let mut problems = Problems::new("x", text);
        problems.error(500..501, "m");
        let shown = problems.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        let caret = lines[3].find('^').unwrap();
        assert_eq!(&lines[2][caret..caret + 1], "X");
        assert!(lines[2].len() < 140);
    }

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let keys = ["networks", "name", "address", "key"];
        assert_eq!(nearest("network", keys), Some("networks"));
        assert_eq!(nearest("adress", keys), Some("address"));
        assert_eq!(nearest("nmae", keys), Some("name"));
        assert_eq!(nearest("colour", keys), None);
    }
}
