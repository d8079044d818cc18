//! iperf 2's formats, as far as a server needs them, as versions 2.0.5 and
//! 2.1.8 have them. There is no control connection: what a client wants stands
//! in its first bytes, and in every datagram.

use super::tcp_test::{DURATION_MAX_MS, noise};

/// Port of iperf 2.
pub const PORT: u16 = 5001;

/// Longest head of a TCP stream.
pub(crate) const HEAD_BYTES: usize = 60;
/// A head has the fields that this flag stands for.
const HAS_CALL_BACK: u32 = 0x8000_0000;
const HAS_EXTENSION: u32 = 0x4000_0000;
const HAS_WIDE_NUMBERS: u32 = 0x0800_0000;
/// Call back at once, not after the first test.
const CALL_AT_ONCE: u32 = 1;
/// Flags of the extension.
const IN_PACKETS_PER_S: u16 = 0x0080;
const REVERSE: u16 = 0x0400;
const FULL_DUPLEX: u16 = 0x0800;

/// What the server shall send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing: it is a sink.
    Nothing,
    /// On the same connection, where the client sends nothing (`-R`).
    Reverse,
    /// On the same connection, while the client sends (`--full-duplex`).
    Duplex,
    /// On a connection to the client, at once (`-d`).
    CallAtOnce,
    /// On a connection to the client, when it has ended (`-r`).
    CallAfter,
}

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    Ms(u64),
    Bytes(u64),
}

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) answer: Answer,
    pub(crate) amount: Amount,
    /// Port to call back.
    pub(crate) port: u16,
    pub(crate) block_bytes: usize,
    /// Zero is as fast as possible.
    pub(crate) bit_per_s: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*four))
}

impl Wish {
    /// By the first bytes of a connection; what is no head wants nothing back.
    pub(crate) fn read(head: &[u8]) -> Self {
        let field = |at: usize| word(head, at).unwrap_or(0);
        let flags = field(0);
        let extension = match flags & HAS_EXTENSION {
            0 => 0,
            _ => (field(32) >> 16) as u16,
        };
        let answer = if extension & REVERSE != 0 {
            Answer::Reverse
        } else if extension & FULL_DUPLEX != 0 {
            Answer::Duplex
        } else if flags & HAS_CALL_BACK == 0 {
            Answer::Nothing
        } else if flags & CALL_AT_ONCE != 0 {
            Answer::CallAtOnce
        } else {
            Answer::CallAfter
        };
        let amount = match field(20).cast_signed() {
            // In hundredths of a second.
            time if time < 0 => {
                let ms = u64::from(time.unsigned_abs()) * 10;
                Amount::Ms(ms.min(DURATION_MAX_MS))
            }
            bytes => Amount::Bytes(u64::from(bytes.unsigned_abs())),
        };
        let rate = u64::from(field(48)) | u64::from(field(52) >> 8) << 32;
        let has_rate = extension != 0 && extension & IN_PACKETS_PER_S == 0;
        Self {
            answer,
            amount,
            port: u16::try_from(field(8)).unwrap_or(0),
            block_bytes: (field(12) as usize).clamp(1 << 10, 1 << 20),
            bit_per_s: if has_rate { rate } else { 0 },
        }
    }
}

/// Blocks of a length that is asked for, one after the other. Each begins with
/// zeros: what looks like a head would be taken for one. Memory does not grow
/// with the length, which is the client's word.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// A head of zeros, and noise for all that comes behind.
    bytes: Vec<u8>,
    block_bytes: usize,
    at: usize,
}

impl Blocks {
    const BYTES_MAX: usize = 128 << 10;

    pub(crate) fn of(block_bytes: usize) -> Self {
        let mut bytes = noise(block_bytes.clamp(HEAD_BYTES + 1, Self::BYTES_MAX));
        bytes.iter_mut().take(HEAD_BYTES).for_each(|byte| *byte = 0);
        Self {
            bytes,
            block_bytes: block_bytes.max(1),
            at: 0,
        }
    }

    /// What comes next, as far as it is there in one piece.
    pub(crate) fn next(&self) -> &[u8] {
        let from = match self.at.checked_sub(HEAD_BYTES) {
            Some(behind) => HEAD_BYTES + behind % (self.bytes.len() - HEAD_BYTES),
            None => self.at,
        };
        let rest = self.bytes.get(from..).unwrap_or_default();
        let left = self.block_bytes - self.at;
        rest.get(..left).unwrap_or(rest)
    }

    /// So much of it has been written.
    pub(crate) fn written(&mut self, bytes: usize) {
        self.at = (self.at + bytes) % self.block_bytes;
    }
}

/// The head of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatagramHead {
    /// Its number; that of the last one comes as a negative one.
    pub(crate) number: u64,
    pub(crate) is_last: bool,
    pub(crate) sent_us: u64,
    /// Whether numbers take eight bytes, as since version 2.0.10.
    pub(crate) is_wide: bool,
}

impl DatagramHead {
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let (low, seconds, us) = (word(datagram, 0)?, word(datagram, 4)?, word(datagram, 8)?);
        let flags = word(datagram, 16).unwrap_or(0);
        let is_wide = flags & HAS_EXTENSION != 0 && flags & HAS_WIDE_NUMBERS != 0;
        let signed = match is_wide {
            true => (u64::from(word(datagram, 12)?) << 32 | u64::from(low)).cast_signed(),
            false => low.cast_signed().into(),
        };
        Some(Self {
            number: signed.unsigned_abs(),
            is_last: signed < 0,
            sent_us: u64::from(seconds) * 1_000_000 + u64::from(us),
            is_wide,
        })
    }
}

/// What the sink of datagrams tells its client in the end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Report {
    pub(crate) bytes: u64,
    pub(crate) duration_us: u64,
    pub(crate) lost: u64,
    pub(crate) out_of_order: u64,
    pub(crate) datagrams: u64,
    pub(crate) jitter_us: f64,
}

impl Report {
    /// The whole answer to a last datagram: an empty head, ten words, and room
    /// for fields that say that they are not used.
    pub(crate) fn to_bytes(self, is_wide: bool) -> Vec<u8> {
        const UNUSED_WORDS: usize = 15;
        let (low, high) = (|value: u64| value as u32, |value: u64| (value >> 32) as u32);
        let (seconds, us) = (self.duration_us / 1_000_000, self.duration_us % 1_000_000);
        let jitter_us = self.jitter_us as u64;
        let (flags, head) = match is_wide {
            true => (HAS_CALL_BACK | HAS_WIDE_NUMBERS, 16),
            false => (HAS_CALL_BACK, 12),
        };
        let words = [
            flags,
            high(self.bytes),
            low(self.bytes),
            low(seconds),
            low(us),
            low(self.lost),
            low(self.out_of_order),
            low(self.datagrams),
            low(jitter_us / 1_000_000),
            low(jitter_us % 1_000_000),
        ];
        let wide = [
            high(self.lost),
            high(self.out_of_order),
            high(self.datagrams),
        ];
        let mut bytes = vec![0; head];
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        if is_wide {
            bytes.extend([0; UNUSED_WORDS * 4]);
            bytes.extend(wide.iter().flat_map(|word| word.to_be_bytes()));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(words: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        for (at, word) in words {
            bytes[*at..*at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// As iperf 2.1.8 sends them for -t 1 -l 1200, with -p 5997.
    #[test]
    fn heads_of_the_real_client_are_understood() {
        let second = [(8, 5997), (12, 1200), (20, (-100_i32).cast_unsigned())];
        let wish = |flags: u32, extension: u32| {
            Wish::read(&head(
                &[&second[..], &[(0, flags), (32, extension)]].concat(),
            ))
        };
        let plain = wish(0x4001_0078, 0);
        assert_eq!(
            (plain.answer, plain.amount),
            (Answer::Nothing, Amount::Ms(1000))
        );
        assert_eq!(
            (plain.port, plain.block_bytes, plain.bit_per_s),
            (5997, 1200, 0)
        );
        assert_eq!(wish(0x4401_0078, 0x0400_0000).answer, Answer::Reverse);
        assert_eq!(wish(0x4401_0078, 0x0800_0000).answer, Answer::Duplex);
        assert_eq!(wish(0xc001_0078, 0).answer, Answer::CallAfter);
        assert_eq!(wish(0xc001_0079, 0).answer, Answer::CallAtOnce);
        // Version 2.0.5 has no extension, and digits where there is no head.
        assert_eq!(wish(0x8000_0001, 0x0400_0000).answer, Answer::CallAtOnce);
        assert_eq!(
            Wish::read(b"012345678901234567890123").answer,
            Answer::Nothing
        );
        assert_eq!(Wish::read(b"").answer, Answer::Nothing);
    }

    #[test]
    fn absurd_heads_are_bounded() {
        let wish = Wish::read(&[0xff; HEAD_BYTES]);
        assert_eq!((wish.answer, wish.port), (Answer::Reverse, 0));
        assert!(wish.block_bytes <= 1 << 20 && wish.amount == Amount::Ms(10));
        let long = Wish::read(&head(&[(20, 0x8000_0000)]));
        assert_eq!(long.amount, Amount::Ms(DURATION_MAX_MS));
    }

    #[test]
    fn long_blocks_take_no_more_memory_and_begin_with_no_head() {
        for length in [1, 59, 61, 1200, 128 << 10, 200_000, 1 << 20] {
            let mut blocks = Blocks::of(length);
            assert!(blocks.bytes.len() <= 128 << 10);
            let mut sent = Vec::new();
            while sent.len() < 3 * length {
                // As a socket takes it, now more, now less.
                let some = blocks.next();
                let some = &some[..some.len().min(1 + sent.len() % 70_001)];
                sent.extend_from_slice(some);
                let count = some.len();
                blocks.written(count);
            }
            for block in sent.chunks_exact(length) {
                let (head, rest) = block.split_at(length.min(HEAD_BYTES));
                assert!(head.iter().all(|byte| *byte == 0), "{length}");
                let zeros = rest.iter().filter(|byte| **byte == 0).count();
                assert!(zeros <= rest.len() / 64 + 8, "{length}: {zeros}");
            }
        }
    }

    #[test]
    fn datagrams_of_both_widths() {
        let wide =
            |low: u32, high: u32| head(&[(0, low), (4, 7), (8, 9), (12, high), (16, 0x4801_0098)]);
        let first = DatagramHead::read(&wide(1, 0)).unwrap();
        assert_eq!(
            (first.number, first.is_last, first.sent_us),
            (1, false, 7_000_009)
        );
        assert_eq!(
            DatagramHead::read(&wide(1, 1)).unwrap().number,
            (1 << 32) + 1
        );
        let last = DatagramHead::read(&wide(0xffff_ff94, 0xffff_ffff)).unwrap();
        assert_eq!((last.number, last.is_last), (108, true));
        let narrow = DatagramHead::read(&head(&[(0, 0xffff_ff94)])).unwrap();
        assert_eq!(
            (narrow.number, narrow.is_last, narrow.is_wide),
            (108, true, false)
        );
        assert_eq!(DatagramHead::read(&[0; 11]), None);
        let least = DatagramHead::read(&wide(0, 0x8000_0000)).unwrap();
        assert_eq!(least.number, 1 << 63);
    }

    #[test]
    fn a_report_has_its_numbers_where_they_are_read() {
        let report = Report {
            bytes: (1 << 32) + 5,
            duration_us: 2_000_003,
            lost: 7,
            out_of_order: 8,
            datagrams: 9,
            jitter_us: 1_000_010.4,
        };
        let bytes = report.to_bytes(true);
        let words: Vec<_> = (16..56)
            .step_by(4)
            .map(|at| word(&bytes, at).unwrap())
            .collect();
        assert_eq!(words, [0x8800_0000, 1, 5, 2, 3, 7, 8, 9, 1, 10]);
        assert_eq!(bytes.len(), 128);
        assert_eq!(report.to_bytes(false).len(), 52);
    }
}
