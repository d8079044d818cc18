//! From a plan as it is written to its cells.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use farhaul_link::LinkProfile;
use toml::Spanned;

use super::apart::tell_apart;
use super::cell::{Cell, Client, Config, Work};
use super::circuit::Circuit;
use super::error::PlanError;
use super::written::{Block, Expectation, Words, Written};
use super::{Expected, Plan};

/// Most cells of a plan.
const CELLS_MAX: usize = 10_000;
/// Bytes that a cell may copy: a file is kept in memory while it is made.
const SIZE_BYTES: RangeInclusive<u64> = 1..=4 << 30;
const FILES: RangeInclusive<u32> = 1..=100_000;
const REPEAT: RangeInclusive<u32> = 1..=100;
/// How long a cell may take unless the plan says otherwise.
const CELL_S: u64 = 600;
const SECONDS: RangeInclusive<u64> = 1..=86_400;
/// Below this Linux has no receive buffer.
const BUFFER_BYTES: RangeInclusive<u32> = 2_304..=64 << 20;

/// Turns what is written into what it means.
pub(super) fn read(file: &str, text: &str) -> Result<Plan, PlanError> {
    let written: Written = toml::from_str(text).map_err(|error| PlanError::Text {
        file: file.to_owned(),
        why: error.to_string().trim_end().to_owned(),
    })?;
    let reader = Reader { file, text };
    let all = All {
        repeat: reader.or(written.repeat.as_ref(), "repeat", REPEAT, 1)?,
        cell_s: reader.or(written.cell_s.as_ref(), "cell_s", SECONDS, CELL_S)?,
    };
    let mut cells = Vec::new();
    let mut ends = Vec::new();
    for block in &written.cells {
        reader.block(block, &all, &mut cells)?;
        ends.push((cells.len(), block));
    }
    tell_apart(&mut cells);
    reader.check_different(&ends, &cells)?;
    let name = reader.name(&written.name)?;
    reader.check_all(&cells, &written.name)?;
    let expected = written.expect.iter();
    let expected = expected.map(|expectation| reader.expected(expectation, &cells));
    let flat_after_s = written.flat_after_s.as_ref();
    let flat_after_s = flat_after_s.map(|value| reader.within("flat_after_s", value, SECONDS));
    Ok(Plan {
        name,
        about: written.about,
        seed: written.seed,
        flat_after_s: flat_after_s.transpose()?,
        congestion_control: written
            .congestion_control
            .unwrap_or_else(|| "cubic".to_owned()),
        expected: expected.collect::<Result<_, _>>()?,
        cells,
        text: text.to_owned(),
    })
}

/// What the plan says of blocks that do not.
struct All {
    repeat: u32,
    cell_s: u64,
}

/// Knows where in which file something stands.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn wrong(&self, span: Range<usize>, key: &'static str, why: impl Into<String>) -> PlanError {
        let before = self.text.get(..span.start).unwrap_or_default();
        PlanError::Value {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            key,
            why: why.into(),
        }
    }

    /// It names files and is shown in reports.
    fn name(&self, name: &Spanned<String>) -> Result<String, PlanError> {
        let word = name.get_ref();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !word.is_empty() && word.len() <= 40 && word.chars().all(is_plain) {
            return Ok(word.clone());
        }
        let why = format!("`{word}`: use 1 to 40 of a-z, 0-9 and -");
        Err(self.wrong(name.span(), "name", why))
    }

    fn check_all(&self, cells: &[Cell], name: &Spanned<String>) -> Result<(), PlanError> {
        if cells.is_empty() {
            return Err(self.wrong(name.span(), "cells", "there is none"));
        }
        Ok(())
    }

    fn words<T>(
        &self,
        key: &'static str,
        words: &Words,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, PlanError> {
        if words.get_ref().is_empty() {
            return Err(self.wrong(words.span(), key, "the list is empty"));
        }
        let each = words.get_ref().iter();
        each.map(|word| read(word.get_ref()).map_err(|why| self.wrong(word.span(), key, why)))
            .collect()
    }

    fn words_or<T>(
        &self,
        key: &'static str,
        words: Option<&Words>,
        default: T,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, PlanError> {
        match words {
            Some(words) => self.words(key, words, read),
            None => Ok(vec![default]),
        }
    }

    fn within<T: PartialOrd + Copy + std::fmt::Display>(
        &self,
        key: &'static str,
        value: &Spanned<T>,
        range: RangeInclusive<T>,
    ) -> Result<T, PlanError> {
        if range.contains(value.get_ref()) {
            return Ok(*value.get_ref());
        }
        let why = format!(
            "{} is not between {} and {}",
            value.get_ref(),
            range.start(),
            range.end()
        );
        Err(self.wrong(value.span(), key, why))
    }

    fn or<T: PartialOrd + Copy + std::fmt::Display>(
        &self,
        value: Option<&Spanned<T>>,
        key: &'static str,
        range: RangeInclusive<T>,
        default: T,
    ) -> Result<T, PlanError> {
        value.map_or(Ok(default), |value| self.within(key, value, range))
    }

    fn circuits(&self, block: &Block) -> Result<Vec<Circuit>, PlanError> {
        let rates = self.words("cells.rate", &block.rate, |word| setting("rate", word))?;
        let delays = self.words("cells.delay", &block.delay, |word| setting("delay", word))?;
        let optional = |key, words: Option<&Words>, name: &'static str| {
            self.words_or(key, words, String::new(), move |word| setting(name, word))
        };
        let jitters = optional("cells.jitter", block.jitter.as_ref(), "jitter")?;
        let losses = optional("cells.loss", block.loss.as_ref(), "loss")?;
        let queues = optional("cells.queue", block.queue.as_ref(), "queue")?;
        let mut circuits = Vec::new();
        for rate in &rates {
            for loss in &losses {
                for (jitter, queue) in combined(&jitters, &queues) {
                    for delay in &delays {
                        let words = [rate, delay, jitter, loss, queue].into_iter();
                        let words = words.map(String::as_str).filter(|word| !word.is_empty());
                        let words = words.collect::<Vec<_>>().join(" ");
                        let circuit = Circuit::parse(&words);
                        circuits.push(
                            circuit
                                .map_err(|why| self.wrong(block.rate.span(), "cells.rate", why))?,
                        );
                    }
                }
            }
        }
        Ok(circuits)
    }

    fn expected(&self, written: &Expectation, cells: &[Cell]) -> Result<Expected, PlanError> {
        let name = written.cell.get_ref();
        if !cells.iter().any(|cell| cell.name() == *name) {
            let why = format!("the plan has no cell `{name}`");
            return Err(self.wrong(written.cell.span(), "expect.cell", why));
        }
        let value = self.within("expect.value", &written.value, 1e-6..=1e9)?;
        Ok(Expected {
            cell: name.clone(),
            value,
            within: self.within("expect.within", &written.within, 0.0..=1.0)?,
        })
    }

    fn block(&self, block: &Block, all: &All, cells: &mut Vec<Cell>) -> Result<(), PlanError> {
        let clients = self.words("cells.client", &block.client, client)?;
        let works = self.words_or("cells.work", block.work.as_ref(), Work::Read, work)?;
        let configs = self.words("cells.config", &block.config, config)?;
        let buffers = block.receive_buffer.as_ref();
        let buffers = self.words_or("cells.receive_buffer", buffers, None, buffer)?;
        let kind = self.kind(block, all)?;
        for circuit in self.circuits(block)? {
            for (client, work) in pairs(&clients, &works) {
                if !client.can(work) {
                    let why = format!("{} cannot {}", client.word(), work.word());
                    return Err(self.wrong(block.client.span(), "cells.client", why));
                }
                for (receive_buffer_bytes, config) in pairs(&buffers, &configs) {
                    cells.push(Cell {
                        circuit: circuit.clone(),
                        client,
                        work,
                        config,
                        receive_buffer_bytes,
                        size_bytes: kind.size_bytes,
                        files: kind.files,
                        apart: String::new(),
                        repeat: kind.repeat,
                        most_s: kind.most_s,
                        least_of_limit: kind.least_of_limit,
                        least_of_direct: kind.least_of_direct,
                        most_extra_reads: kind.most_extra_reads,
                    });
                    if cells.len() > CELLS_MAX {
                        let why = format!("more than {CELLS_MAX} cells");
                        return Err(self.wrong(block.client.span(), "cells", why));
                    }
                }
            }
        }
        Ok(())
    }

    /// What all cells of a block have in common.
    fn kind(&self, block: &Block, all: &All) -> Result<Kind, PlanError> {
        let share = |key, value: Option<&Spanned<f64>>| {
            let value = value.map(|value| self.within(key, value, 0.0..=1000.0));
            value.transpose()
        };
        Ok(Kind {
            size_bytes: size(block.size.get_ref())
                .map_err(|why| self.wrong(block.size.span(), "cells.size", why))?,
            files: self.or(block.files.as_ref(), "cells.files", FILES, 1)?,
            repeat: self.or(block.repeat.as_ref(), "cells.repeat", REPEAT, all.repeat)?,
            most_s: self.or(block.cell_s.as_ref(), "cells.cell_s", SECONDS, all.cell_s)?,
            least_of_limit: share("cells.least_of_limit", block.least_of_limit.as_ref())?,
            least_of_direct: share("cells.least_of_direct", block.least_of_direct.as_ref())?,
            most_extra_reads: share("cells.most_extra_reads", block.most_extra_reads.as_ref())?,
        })
    }

    /// `ends`: each block with the number of cells up to its last.
    fn check_different(&self, ends: &[(usize, &Block)], cells: &[Cell]) -> Result<(), PlanError> {
        let mut known = BTreeSet::new();
        for (at, name) in cells.iter().map(Cell::name).enumerate() {
            let block = ends.iter().find(|(end, _)| at < *end);
            if let (true, Some((_, block))) = (known.contains(&name), block) {
                let why = format!("`{name}` is there twice");
                return Err(self.wrong(block.client.span(), "cells", why));
            }
            known.insert(name);
        }
        Ok(())
    }
}

struct Kind {
    size_bytes: u64,
    files: u32,
    repeat: u32,
    most_s: u64,
    least_of_limit: Option<f64>,
    least_of_direct: Option<f64>,
    most_extra_reads: Option<f64>,
}

/// Every one with every other.
fn combined<'a, A, B>(left: &'a [A], right: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    let each = left.iter();
    each.flat_map(move |one| right.iter().map(move |other| (one, other)))
}

fn pairs<A: Copy, B: Copy>(left: &[A], right: &[B]) -> Vec<(A, B)> {
    combined(left, right)
        .map(|(one, other)| (*one, *other))
        .collect()
}

/// One setting of a link with its one word.
fn setting(name: &str, word: &str) -> Result<String, String> {
    let words = format!("{name} {word}");
    if word.split_whitespace().count() != 1 {
        return Err(format!(
            "`{word}`: one word is expected, as after `{name}` of `farhaul link`"
        ));
    }
    match LinkProfile::parse(&words) {
        Ok(_) => Ok(words),
        Err(error) => Err(error.to_string()),
    }
}

fn client(word: &str) -> Result<Client, String> {
    one_of(word, &Client::ALL, Client::word)
}

fn work(word: &str) -> Result<Work, String> {
    one_of(word, &Work::ALL, Work::word)
}

fn config(word: &str) -> Result<Config, String> {
    one_of(word, &Config::ALL, Config::word)
}

fn one_of<T: Copy>(word: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().find(|one| name(**one) == word);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
        format!("`{word}` is none of {}", names.join(", "))
    })
}

/// `auto`, or bytes.
fn buffer(word: &str) -> Result<Option<u32>, String> {
    if word == "auto" {
        return Ok(None);
    }
    let bytes = size(word)?;
    let fits = u32::try_from(bytes).ok();
    let fits = fits.filter(|bytes| BUFFER_BYTES.contains(bytes));
    fits.map(Some).ok_or_else(|| {
        let (least, most) = (BUFFER_BYTES.start(), BUFFER_BYTES.end());
        format!("`{word}` is not between {least} B and {most} B")
    })
}

/// `10 MiB`, `100 MB`, `4096 B`.
fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.strip_prefix(number) {
        Some("B") => 1,
        Some("kB") => 1_000,
        Some("MB") => 1_000_000,
        Some("GB") => 1_000_000_000,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        _ => {
            return Err(format!(
                "`{text}`: a number with B, kB, MB, GB, KiB, MiB or GiB is expected"
            ));
        }
    };
    let count: u64 = number
        .trim()
        .parse()
        .map_err(|_| format!("`{text}`: it does not begin with a whole number"))?;
    let bytes = count
        .checked_mul(factor)
        .filter(|bytes| SIZE_BYTES.contains(bytes));
    bytes.ok_or_else(|| format!("`{text}` is not between 1 B and 4 GiB"))
}
