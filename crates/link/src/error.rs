//! Why a text is not a profile.

use std::fmt;
use std::ops::Range;

/// A profile text that cannot be read: which word, and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    word: String,
    offset: usize,
    message: String,
}

impl ProfileError {
    pub(crate) fn new(word: &str, offset: usize, message: impl Into<String>) -> Self {
        Self {
            word: word.to_owned(),
            offset,
            message: message.into(),
        }
    }

    /// The word that is wrong; empty if one is missing at the end.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Where that word stands in the text, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.offset..self.offset + self.word.len()
    }

    /// What is wrong with it, without the word.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.word.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "`{}`: {}", self.word, self.message)
        }
    }
}

impl std::error::Error for ProfileError {}
