//! Aligned tables and colours for people; `--json` is for programs.

use std::io::{IsTerminal, stdout};

use farhaul_gateway::log::push_escaped;

/// How a word stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Notice,
    Bad,
    Dim,
    Bold,
}

/// Whether colours are used: on a terminal that is not dumb, unless `NO_COLOR`
/// (no-color.org) is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// For standard output.
    pub(crate) fn stdout() -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Paint(stdout().is_terminal() && !refused && !dumb)
    }

    /// Never.
    #[cfg(test)]
    pub(crate) fn plain() -> Paint {
        Paint(false)
    }

    /// `text` in its tone, control characters escaped: names come from outside.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Notice => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
            Tone::Bold => "1",
        };
        let text = clean(text);
        if self.0 && !code.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    }
}

/// `text` with its control characters escaped.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    push_escaped(&mut cleaned, text);
    cleaned
}

/// A table: columns as wide as their widest cell, numbers to the right.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(Tone, String)>>,
}

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: Vec<(Tone, String)>) {
        let cells = cells
            .into_iter()
            .map(|(tone, text)| (tone, clean(&text)))
            .collect();
        self.rows.push(cells);
    }

    /// The table with its heading, each line beginning with `indent`.
    pub(crate) fn render(&self, paint: Paint, indent: &str) -> String {
        let heading: Vec<_> = self
            .columns
            .iter()
            .map(|(name, _)| (Tone::Dim, (*name).to_owned()))
            .collect();
        let lines = || std::iter::once(&heading).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|index| {
                lines()
                    .filter_map(|row| row.get(index))
                    .map(|(_, text)| text.chars().count())
                    .max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let mut text = String::new();
        for row in lines() {
            let mut line = String::from(indent);
            let mut gap = 0;
            for (((tone, cell), (_, align)), width) in row.iter().zip(&self.columns).zip(&widths) {
                let fill = width - cell.chars().count();
                let before = if *align == Align::Right { fill } else { 0 };
                // Spaces are put only before a next cell, so lines have no tail.
                line.extend(std::iter::repeat_n(' ', gap + before));
                line.push_str(&paint.tone(*tone, cell));
                gap = 2 + fill - before;
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Bytes in the largest binary unit that leaves at least one.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A span of seconds in its two largest units.
pub(crate) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_have_no_tail() {
        let mut table = Table::new(&[
            ("name", Align::Left),
            ("bytes", Align::Right),
            ("x", Align::Left),
        ]);
        table.row(vec![
            (Tone::Good, "a".into()),
            (Tone::Plain, "10".into()),
            (Tone::Plain, String::new()),
        ]);
        table.row(vec![
            (Tone::Bad, "länger\n".into()),
            (Tone::Plain, "7".into()),
            (Tone::Plain, "y".into()),
        ]);
        assert_eq!(
            table.render(Paint(false), "  "),
            "  name      bytes  x\n  a            10\n  länger\\n      7  y\n"
        );
        assert!(table.render(Paint(true), "").contains("\x1b[32ma\x1b[0m"));
    }

    #[test]
    fn numbers_read_as_people_say_them() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(span(59), "59 s");
        assert_eq!(span(61), "1 min 1 s");
        assert_eq!(span(90_000), "1 d 1 h");
    }
}
