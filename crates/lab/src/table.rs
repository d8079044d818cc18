//! Tables for people: aligned on a terminal that is wide enough, one block per
//! row on one that is not; colours only where a person looks.

use std::io::{IsTerminal, stdout};

/// How a cell is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// As any text.
    Plain,
    /// It holds.
    Good,
    /// It does not hold.
    Bad,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    mark: Mark,
}

impl Cell {
    /// With a mark.
    pub fn marked(text: impl Into<String>, mark: Mark) -> Self {
        Self {
            text: text.into(),
            mark,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::marked(text, Mark::Plain)
    }
}

/// Where a table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns; `None` is as wide as needed.
    pub columns: Option<usize>,
    /// Whether colours are wanted.
    pub has_colour: bool,
}

impl Screen {
    /// Standard output. `NO_COLOR` (no-color.org) and `COLUMNS` are heard.
    pub fn stdout() -> Self {
        let is_terminal = stdout().is_terminal();
        let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
        let from_terminal = || {
            let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
            (size.ws_col > 0).then_some(usize::from(size.ws_col))
        };
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            columns: is_terminal
                .then(|| from_terminal().or_else(from_environment))
                .flatten(),
            has_colour: is_terminal && !is_plain,
        }
    }

    fn paint(self, text: &str, mark: Mark) -> String {
        match (self.has_colour, mark) {
            (true, Mark::Good) => format!("\x1b[32m{text}\x1b[0m"),
            (true, Mark::Bad) => format!("\x1b[31m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// A table whose first column names the row and is set left; the others,
/// mostly numbers, are set right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// With these column heads.
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, with a line end after each line.
    pub fn render(&self, screen: Screen) -> String {
        let widths: Vec<_> = (0..self.head.len())
            .map(|column| self.width(column))
            .collect();
        let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        match screen.columns {
            Some(columns) if columns < total => self.blocks(screen),
            _ => self.aligned(screen, &widths),
        }
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let texts = cells
            .map(|cell| cell.text.as_str())
            .chain(self.head.get(column).map(String::as_str));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }

    fn aligned(&self, screen: Screen, widths: &[usize]) -> String {
        let head: Vec<Cell> = self.head.iter().map(|text| text.as_str().into()).collect();
        let rule: Vec<Cell> = widths
            .iter()
            .map(|width| "─".repeat(*width).into())
            .collect();
        let mut text = String::new();
        for row in [&head, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
                let padding = " ".repeat(width.saturating_sub(cell.text.chars().count()));
                let painted = screen.paint(&cell.text, cell.mark);
                line += &match at {
                    0 => format!("{painted}{padding}"),
                    _ => format!("  {padding}{painted}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn blocks(&self, screen: Screen) -> String {
        let width = self
            .head
            .iter()
            .map(|head| head.chars().count())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            for (at, (cell, head)) in row.iter().zip(&self.head).enumerate() {
                let painted = screen.paint(&cell.text, cell.mark);
                text += &match at {
                    0 => format!("{painted}\n"),
                    _ => format!("  {head:<width$}  {painted}\n"),
                };
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Screen = Screen {
        columns: None,
        has_colour: false,
    };

    fn sample() -> Table {
        let mut table = Table::new(["what", "direct", "ratio"]);
        table.row(vec![
            "a file of 4 MB".into(),
            "50.1 s".into(),
            Cell::marked("21 ×", Mark::Good),
        ]);
        table.row(vec![
            "SMB".into(),
            "9 s".into(),
            Cell::marked("0.5 ×", Mark::Bad),
        ]);
        table
    }

    #[test]
    fn columns_line_up() {
        let expected = "\
what            direct  ratio
──────────────  ──────  ─────
a file of 4 MB  50.1 s   21 ×
SMB                9 s  0.5 ×
";
        assert_eq!(sample().render(WIDE), expected);
    }

    #[test]
    fn a_narrow_terminal_gets_blocks_that_fit() {
        let screen = Screen {
            columns: Some(20),
            has_colour: false,
        };
        let text = sample().render(screen);
        assert!(
            text.lines().all(|line| line.chars().count() <= 20),
            "{text}"
        );
        assert!(
            text.starts_with("a file of 4 MB\n  direct  50.1 s\n  ratio   21 ×\n"),
            "{text}"
        );
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let coloured = sample().render(Screen {
            has_colour: true,
            ..WIDE
        });
        assert!(
            coloured.contains("\x1b[32m21 ×\x1b[0m") && coloured.contains("\x1b[31m0.5 ×\x1b[0m")
        );
        let plain = coloured
            .replace("\x1b[32m", "")
            .replace("\x1b[31m", "")
            .replace("\x1b[0m", "");
        assert_eq!(plain, sample().render(WIDE));
    }
}
