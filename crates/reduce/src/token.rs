//! Tokens: how a frame says what is new and what is known. The table is in the crate's documentation.

use crate::error::FrameError;
use crate::varint;

/// What follows a stretch of literals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// So many bytes from this virtual position.
    Copy { source: u64, bytes: u64 },
    /// The same, and both ends keep the bytes once more: what is short would leave the log in shreds.
    Again { source: u64, bytes: u64 },
    /// So often this byte.
    Run { byte: u8, bytes: u64 },
}

impl Known {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Copy { bytes, .. } | Self::Again { bytes, .. } | Self::Run { bytes, .. } => bytes,
        }
    }

    fn kind(self) -> u64 {
        match self {
            Self::Copy { .. } => KIND_COPY,
            Self::Again { .. } => KIND_AGAIN,
            Self::Run { .. } => KIND_RUN,
        }
    }
}

const KIND_COPY: u64 = 0;
const KIND_RUN: u64 = 1;
const KIND_AGAIN: u64 = 2;
const KIND_BITS: u32 = 2;

/// Literals, then something known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) literals: u64,
    pub(crate) known: Known,
}

/// Writes a frame's tokens. The last one stays open: a match may go on.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    open: Option<Token>,
    /// Where a copy is expected to come from, were it not for literals.
    expected: u64,
}

impl Writer {
    /// For a frame that begins at `position`, in a buffer that is used again.
    pub(crate) fn new(position: u64, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            bytes,
            open: None,
            expected: position,
        }
    }

    /// Bytes of the tokens, without the open one.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a token, or lengthens the last one if this goes on where it ends.
    pub(crate) fn push(&mut self, token: Token) {
        if token.literals == 0 && self.lengthen(token.known) {
            return;
        }
        self.close();
        self.open = Some(token);
    }

    fn lengthen(&mut self, more: Known) -> bool {
        match (self.open.as_mut().map(|open| &mut open.known), more) {
            (
                Some(Known::Copy { source, bytes }),
                Known::Copy {
                    source: next,
                    bytes: added,
                },
            )
            | (
                Some(Known::Again { source, bytes }),
                Known::Again {
                    source: next,
                    bytes: added,
                },
            ) if *source + *bytes == next => {
                *bytes += added;
                true
            }
            (
                Some(Known::Run { byte, bytes }),
                Known::Run {
                    byte: next,
                    bytes: added,
                },
            ) if *byte == next => {
                *bytes += added;
                true
            }
            _ => false,
        }
    }

    fn close(&mut self) {
        let Some(Token { literals, known }) = self.open.take() else {
            return;
        };
        varint::put(&mut self.bytes, literals);
        self.expected += literals;
        varint::put(&mut self.bytes, known.bytes() << KIND_BITS | known.kind());
        match known {
            Known::Copy { source, .. } | Known::Again { source, .. } => {
                let distance = source.wrapping_sub(self.expected).cast_signed();
                varint::put(&mut self.bytes, varint::from_signed(distance));
                self.expected = source;
            }
            Known::Run { byte, .. } => self.bytes.push(byte),
        }
        self.expected += known.bytes();
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.close();
        self.bytes
    }
}

/// Reads a frame's tokens; trusts nothing.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    expected: u64,
}

impl<'a> Reader<'a> {
    /// Of a frame that begins at `position`.
    pub(crate) fn new(position: u64, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            expected: position,
        }
    }

    /// The next token; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Result<Token, FrameError>> {
        (!self.bytes.is_empty()).then(|| self.read())
    }

    fn read(&mut self) -> Result<Token, FrameError> {
        let literals = self.number()?;
        let kind = self.number()?;
        let (kind, bytes) = (kind & ((1 << KIND_BITS) - 1), kind >> KIND_BITS);
        if bytes == 0 {
            return Err(FrameError::Length);
        }
        let expected = self
            .expected
            .checked_add(literals)
            .ok_or(FrameError::Length)?;
        let (known, next) = match kind {
            KIND_RUN => (self.run(bytes)?, expected),
            KIND_COPY => {
                let source = self.source(expected)?;
                (Known::Copy { source, bytes }, source)
            }
            KIND_AGAIN => {
                let source = self.source(expected)?;
                (Known::Again { source, bytes }, source)
            }
            _ => return Err(FrameError::Kind),
        };
        self.expected = next.checked_add(bytes).ok_or(FrameError::Length)?;
        Ok(Token { literals, known })
    }

    fn run(&mut self, bytes: u64) -> Result<Known, FrameError> {
        let (&byte, rest) = self.bytes.split_first().ok_or(FrameError::Truncated)?;
        self.bytes = rest;
        Ok(Known::Run { byte, bytes })
    }

    fn source(&mut self, expected: u64) -> Result<u64, FrameError> {
        let distance = varint::to_signed(self.number()?);
        expected
            .checked_add_signed(distance)
            .ok_or(FrameError::Reference)
    }

    fn number(&mut self) -> Result<u64, FrameError> {
        varint::take(&mut self.bytes).ok_or(FrameError::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token() -> impl Strategy<Value = Token> {
        let known = prop_oneof![
            (0u64..1 << 40, 1u64..1 << 22)
                .prop_map(|(source, bytes)| Known::Copy { source, bytes }),
            (0u64..1 << 40, 1u64..1 << 22)
                .prop_map(|(source, bytes)| Known::Again { source, bytes }),
            (any::<u8>(), 1u64..1 << 22).prop_map(|(byte, bytes)| Known::Run { byte, bytes }),
        ];
        (1u64..1 << 18, known).prop_map(|(literals, known)| Token { literals, known })
    }

    fn read_all(position: u64, bytes: &[u8]) -> Result<Vec<Token>, FrameError> {
        let mut reader = Reader::new(position, bytes);
        std::iter::from_fn(|| reader.next()).collect()
    }

    #[test]
    fn what_goes_on_is_one_token() {
        let mut writer = Writer::new(0, Vec::new());
        let copy = |source, bytes| Token {
            literals: 0,
            known: Known::Copy { source, bytes },
        };
        writer.push(copy(100, 50));
        writer.push(copy(150, 7));
        writer.push(Token {
            literals: 0,
            known: Known::Run { byte: 1, bytes: 4 },
        });
        writer.push(Token {
            literals: 0,
            known: Known::Run { byte: 1, bytes: 4 },
        });
        let expected = vec![
            copy(100, 57),
            Token {
                literals: 0,
                known: Known::Run { byte: 1, bytes: 8 },
            },
        ];
        assert_eq!(read_all(0, &writer.finish()), Ok(expected));
    }

    proptest! {
        #[test]
        fn tokens_come_back(position in 0u64..1 << 40, tokens in proptest::collection::vec(token(), 0..40)) {
            let mut writer = Writer::new(position, Vec::new());
            tokens.iter().for_each(|token| writer.push(*token));
            prop_assert_eq!(read_all(position, &writer.finish()), Ok(tokens));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(position: u64, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_all(position, &bytes);
        }
    }
}
