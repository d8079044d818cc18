//! Reads one table of the file against its [`Section`]: takes values out with
//! their places, and reports what it does not know.
//!
//! `serde`'s derived readers stop at the first error; an operator wants all of
//! them, so the parsed document is walked by hand.

use std::fmt::Display;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::diagnose::{Problems, nearest};
use super::schema::{self, Section};
use super::units::Fault;

/// A value and where it stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Byte offsets into the file.
    pub span: Range<usize>,
}

/// One table being read.
pub struct Reader<'a, 'i> {
    section: &'static Section,
    table: &'a DeTable<'i>,
    span: Range<usize>,
    asked: Vec<&'static str>,
}

impl<'a, 'i> Reader<'a, 'i> {
    /// Starts to read `table`, which begins at `span`.
    pub fn new(section: &'static Section, table: &'a DeTable<'i>, span: Range<usize>) -> Self {
        Self {
            section,
            table,
            span,
            asked: Vec::new(),
        }
    }

    /// How many keys the table has.
    pub fn keys(&self) -> usize {
        self.table.len()
    }

    fn find(&mut self, name: &'static str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.asked.push(name);
        self.table
            .iter()
            .find(|(key, _)| key.get_ref() == name)
            .map(|(_, value)| value)
    }

    /// `tunnel.keep_alive`.
    fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.section.name)
    }

    fn refuse(&self, problems: &mut Problems, name: &str, span: Range<usize>, what: impl Display) {
        let problem = problems.error(span, format!("{}: {what}", self.path(name)));
        if let Some(key) = self.section.key(name) {
            problem.help(format!("accepted: {}", key.accepts));
        }
    }

    fn fault(&self, problems: &mut Problems, name: &str, span: Range<usize>, fault: Fault) {
        let problem = problems.error(span, format!("{}: {}", self.path(name), fault.message));
        problem.help.extend(fault.remedy);
        if let Some(key) = self.section.key(name).filter(|_| !fault.complete) {
            problem.help(format!("accepted: {}", key.accepts));
        }
    }

    /// Reports that a key is missing, at the table's header.
    pub fn require<T>(&self, problems: &mut Problems, name: &'static str, found: &Option<T>) {
        // A key that is there but wrong has been reported already.
        let present = self.table.iter().any(|(key, _)| key.get_ref() == name);
        if found.is_none() && !present {
            let header = self.section.header();
            let problem = problems.error(self.span.clone(), format!("{header} lacks `{name}`"));
            if let Some(key) = self.section.key(name) {
                problem.help(format!("{name}: {}", key.accepts));
            }
        }
    }

    /// A text that `parse` understands.
    pub fn text<T>(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<At<T>> {
        let value = self.find(name)?;
        let Some(text) = value.get_ref().as_str() else {
            self.refuse_type(problems, name, value);
            return None;
        };
        match parse(text) {
            Ok(parsed) => Some(At {
                value: parsed,
                span: value.span(),
            }),
            Err(fault) => {
                let part = fault.within.clone();
                let span = problems.part_of_text(value.span(), text, part);
                self.fault(problems, name, span, fault);
                None
            }
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<At<T>> {
        self.text(problems, name, |text| one_of(text, words))
    }

    /// A list of texts; the good ones are kept.
    pub fn texts<T>(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<At<Vec<At<T>>>> {
        self.items(problems, name, |value| value.as_str().map(&parse))
    }

    /// A list whose entries `parse` understands; `None` says that the entry is
    /// of the wrong type.
    pub fn items<T>(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        parse: impl Fn(&DeValue<'i>) -> Option<Result<T, Fault>>,
    ) -> Option<At<Vec<At<T>>>> {
        let value = self.find(name)?;
        let Some(array) = value.get_ref().as_array() else {
            self.refuse_type(problems, name, value);
            return None;
        };
        let mut list = Vec::new();
        for item in array.iter() {
            match parse(item.get_ref()) {
                Some(Ok(parsed)) => list.push(At {
                    value: parsed,
                    span: item.span(),
                }),
                Some(Err(fault)) => self.fault(problems, name, item.span(), fault),
                None => self.refuse_type(problems, name, item),
            }
        }
        Some(At {
            value: list,
            span: value.span(),
        })
    }

    /// true or false.
    pub fn boolean(&mut self, problems: &mut Problems, name: &'static str) -> Option<At<bool>> {
        let value = self.find(name)?;
        match value.get_ref().as_bool() {
            Some(parsed) => Some(At {
                value: parsed,
                span: value.span(),
            }),
            None => {
                self.refuse_type(problems, name, value);
                None
            }
        }
    }

    /// A whole number that `fits`.
    pub fn number(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        fits: impl Fn(u64) -> bool,
    ) -> Option<At<u64>> {
        let value = self.find(name)?;
        let Some(integer) = value.get_ref().as_integer() else {
            self.refuse_type(problems, name, value);
            return None;
        };
        let parsed = whole(integer).and_then(|number| u64::try_from(number).ok());
        match parsed.filter(|number| fits(*number)) {
            Some(parsed) => Some(At {
                value: parsed,
                span: value.span(),
            }),
            None => {
                let what = format!("{integer} is out of range");
                self.refuse(problems, name, value.span(), what);
                None
            }
        }
    }

    /// A value of several possible types; `None` says that it is of none of them.
    pub fn value<T>(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        parse: impl Fn(&DeValue<'i>) -> Option<Result<T, Fault>>,
    ) -> Option<At<T>> {
        let value = self.find(name)?;
        match parse(value.get_ref()) {
            Some(Ok(parsed)) => Some(At {
                value: parsed,
                span: value.span(),
            }),
            Some(Err(fault)) => {
                self.fault(problems, name, value.span(), fault);
                None
            }
            None => {
                self.refuse_type(problems, name, value);
                None
            }
        }
    }

    /// A table inside this one.
    pub fn table(
        &mut self,
        problems: &mut Problems,
        name: &'static str,
        section: &'static Section,
    ) -> Option<Reader<'a, 'i>> {
        let value = self.find(name)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Reader::new(section, table, value.span())),
            None => {
                self.refuse_type(problems, name, value);
                None
            }
        }
    }

    fn refuse_type(&self, problems: &mut Problems, name: &str, value: &Spanned<DeValue<'i>>) {
        let what = match value.get_ref() {
            DeValue::Integer(number) => format!("the bare number {number} does not fit here"),
            DeValue::Float(number) => format!("the bare number {number} does not fit here"),
            DeValue::String(text) => format!("the text {text:?} does not fit here"),
            DeValue::Boolean(value) => format!("{value} does not fit here"),
            DeValue::Datetime(_) => "a date does not fit here".to_owned(),
            DeValue::Array(_) => "a list does not fit here".to_owned(),
            DeValue::Table(_) => "a table does not fit here".to_owned(),
        };
        self.refuse(problems, name, value.span(), what);
    }

    /// Reports every key that the section does not have, and returns where the
    /// table begins.
    pub fn finish(self, problems: &mut Problems) -> Range<usize> {
        // A key that is documented but never read would be ignored silently.
        debug_assert!(
            self.section
                .keys
                .iter()
                .all(|key| self.asked.contains(&key.name)),
            "a key of {} is never read",
            self.section.name
        );
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            if self.section.key(name).is_none() {
                self.unknown(problems, name, key.span());
            }
        }
        self.span
    }

    fn unknown(&self, problems: &mut Problems, name: &str, span: Range<usize>) {
        let header = self.section.header();
        let problem = problems.error(span, format!("unknown key `{name}` in {header}"));
        let own = self.section.keys.iter().map(|key| key.name);
        if let Some(near) = nearest(name, own.clone()) {
            problem.help(format!("did you mean `{near}`?"));
        } else if let Some(home) = schema::SECTIONS
            .iter()
            .find(|section| section.key(name).is_some())
        {
            problem.help(format!("`{name}` belongs into {}", home.header()));
        }
        let known: Vec<&str> = own.collect();
        problem.help(format!("known keys: {}", known.join(", ")));
    }
}

/// The value of one of a few words.
pub fn one_of<T: Copy>(text: &str, words: &[(&'static str, T)]) -> Result<T, Fault> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let near = nearest(
        &text.to_ascii_lowercase(),
        words.iter().map(|(word, _)| *word),
    );
    Err(Fault {
        remedy: near.map(|near| format!("did you mean \"{near}\"?")),
        ..Fault::new(format!("`{text}` is not known"))
    })
}

/// The value of an integer in any of TOML's notations.
pub fn whole(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}
