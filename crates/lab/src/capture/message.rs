//! What an SMB message asks or answers, as far as a measurement needs it.

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Create,
    Close,
    Read,
    Write,
    Other,
}

/// A message of SMB1 or SMB2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Smb {
    pub(super) kind: Kind,
    pub(super) is_answer: bool,
    /// Ties an answer to its request.
    pub(super) id: u64,
    pub(super) status: u32,
    /// Of a READ or WRITE request.
    pub(super) offset: u64,
    /// Data in a READ answer or a WRITE request.
    pub(super) data_bytes: u64,
    /// What an answer to NEGOTIATE chose.
    pub(super) dialect: Option<&'static str>,
}

/// Reads the beginning of a message; `None` where it is no SMB, or encrypted.
pub(super) fn read(head: &[u8]) -> Option<Smb> {
    match head.first_chunk::<4>()? {
        b"\xfeSMB" => smb2(head),
        b"\xffSMB" => smb1(head),
        _ => None,
    }
}

/// MS-SMB2 2.2.1, 2.2.19 to 2.2.22.
fn smb2(head: &[u8]) -> Option<Smb> {
    let is_answer = u32_at(head, 16)? & 1 != 0;
    let kind = match u16_at(head, 12)? {
        5 => Kind::Create,
        6 => Kind::Close,
        8 => Kind::Read,
        9 => Kind::Write,
        _ => Kind::Other,
    };
    let is_transfer = matches!(kind, Kind::Read | Kind::Write);
    Some(Smb {
        kind,
        is_answer,
        id: u64::from(u32_at(head, 24)?) | u64::from(u32_at(head, 28)?) << 32,
        status: u32_at(head, 8)?,
        offset: match (is_transfer, is_answer) {
            (true, false) => u64::from(u32_at(head, 72)?) | u64::from(u32_at(head, 76)?) << 32,
            _ => 0,
        },
        data_bytes: match (kind, is_answer) {
            (Kind::Read, true) => u32_at(head, 68).unwrap_or(0).into(),
            (Kind::Write, false) => u32_at(head, 68)?.into(),
            _ => 0,
        },
        dialect: match (u16_at(head, 12)?, is_answer) {
            (0, true) => u16_at(head, 68).and_then(dialect),
            _ => None,
        },
    })
}

/// MS-SMB2 2.2.4. 0x02ff is none: another NEGOTIATE follows.
fn dialect(revision: u16) -> Option<&'static str> {
    match revision {
        0x0202 => Some("2.0.2"),
        0x0210 => Some("2.1"),
        0x0300 => Some("3.0"),
        0x0302 => Some("3.0.2"),
        0x0311 => Some("3.1.1"),
        _ => None,
    }
}

/// MS-CIFS 2.2.3, 2.2.4.42, 2.2.4.43; MS-SMB 2.2.4.2. Words begin behind the header's 32 bytes and their count.
fn smb1(head: &[u8]) -> Option<Smb> {
    /// Words of an answer to NEGOTIATE in that dialect alone (MS-CIFS 2.2.4.52.2).
    const NT_LM_WORDS_BYTES: usize = 34;
    let is_answer = head.get(9)? & 0x80 != 0;
    let kind = match head.get(4)? {
        0xa2 => Kind::Create,
        0x04 => Kind::Close,
        0x2e => Kind::Read,
        0x2f => Kind::Write,
        _ => Kind::Other,
    };
    // In bytes of the words: where the high half of the offset is, if the request is long enough to have one.
    let high_at = match kind {
        Kind::Read => 20,
        _ => 24,
    };
    let words_bytes = usize::from(*head.get(32)?) * 2;
    let low = |at: usize| u16_at(head, 33 + at).map(u64::from);
    let offset = match (kind, is_answer) {
        (Kind::Read | Kind::Write, false) => {
            let high = match words_bytes >= high_at + 4 {
                true => u32_at(head, 33 + high_at)?,
                false => 0,
            };
            u64::from(u32_at(head, 33 + 6)?) | u64::from(high) << 32
        }
        _ => 0,
    };
    let data_bytes = match (kind, is_answer) {
        (Kind::Read, true) if words_bytes >= 24 => low(10)? | low(14)? << 16,
        (Kind::Write, false) => low(20)? | low(18)? << 16,
        _ => 0,
    };
    Some(Smb {
        kind,
        is_answer,
        id: u16_at(head, 30)?.into(),
        status: u32_at(head, 5)?,
        offset,
        data_bytes,
        dialect: match (head.get(4)?, is_answer, words_bytes) {
            (0x72, true, NT_LM_WORDS_BYTES) => Some("NT LM 0.12"),
            _ => None,
        },
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
