//! Reads and writes that a half may answer by itself, and the answers to them, in every dialect.

use bytes::Bytes;

use super::cifs;
use super::far::part_of;
use super::files::Part;
use super::netbios::{PREFIX_BYTES, packet, prefix};
use super::smb1;
use super::smb2::header::{Command, Header};
use super::smb2::transfer::{
    ErrorResponse, ReadRequest, ReadResponse, STATUS_END_OF_FILE, STATUS_OK, WriteHead,
    WriteResponse,
};

/// What one credit pays for (MS-SMB2 3.1.5.2).
const CREDIT_BYTES: u64 = 64 << 10;
/// A request to read is shorter; a longer one is padded, and not worth keeping.
const READ_PACKET_BYTES_MAX: usize = 256;

/// A read that stands alone and asks for nothing but bytes.
#[derive(Debug, Clone, Copy)]
pub struct AskedRead {
    /// What it asks for.
    pub part: Part,
    /// With less it is an error.
    pub length_min: u32,
    header: Either,
}

/// Its header.
#[derive(Debug, Clone, Copy)]
enum Either {
    Old(smb1::header::Header),
    Modern(Header),
}

impl Either {
    /// There are no credits in SMB1.
    fn ids_taken(&self) -> u64 {
        match self {
            Self::Old(_) => 0,
            Self::Modern(header) => header.ids_taken(),
        }
    }
}

impl AskedRead {
    /// Reads a packet.
    #[must_use]
    pub fn of(packet: &Bytes) -> Option<Self> {
        let message = packet
            .get(PREFIX_BYTES..)
            .filter(|_| packet.len() <= READ_PACKET_BYTES_MAX)?;
        match cifs::is_cifs(message) {
            true => Self::of_old(message),
            false => Self::of_modern(message),
        }
    }

    fn of_old(message: &[u8]) -> Option<Self> {
        let (header, part) = cifs::asked::plain_read(message)?;
        Some(Self {
            part,
            length_min: 0,
            header: Either::Old(header),
        })
    }

    fn of_modern(message: &[u8]) -> Option<Self> {
        let header = Header::parse(message).ok()?;
        let is_plain = header.command == Command::Read
            && header.next_bytes == 0
            && !header.is_response()
            && !header.is_related()
            && !header.is_signed()
            && header.tree().is_some();
        let read = ReadRequest::parse(message).ok().filter(|_| is_plain)?;
        let is_plain = read.flags == 0 && read.channel == 0;
        is_plain.then(|| Self {
            part: part_of(&header, &read),
            length_min: read.length_min,
            header: Either::Modern(header),
        })
    }

    /// Credits it takes.
    #[must_use]
    pub fn ids_taken(&self) -> u64 {
        self.header.ids_taken()
    }

    /// Whether this message cancels it (MS-SMB2 3.3.5.16, MS-CIFS 2.2.4.65).
    #[must_use]
    pub fn is_cancelled_by(&self, message: &[u8]) -> bool {
        match &self.header {
            Either::Old(header) => smb1::header::Header::parse(message).is_ok_and(|cancel| {
                cancel.command == smb1::header::NT_CANCEL
                    && cancel.multiplex == header.multiplex
                    && cancel.process == header.process
            }),
            Either::Modern(header) => Header::parse(message).is_ok_and(|cancel| {
                cancel.command == Command::Cancel && cancel.message_id == header.message_id
            }),
        }
    }

    /// A server's answer; nothing where the file has ended. In SMB2 with as many credits as the request took: the client
    /// has as many as before.
    #[must_use]
    pub fn answer(&self, bytes: Option<&[u8]>) -> Bytes {
        match &self.header {
            Either::Old(header) => cifs::asked::read_answer(header, bytes.unwrap_or_default()),
            Either::Modern(header) => answer_modern(header, bytes),
        }
    }
}

fn answer_modern(request: &Header, bytes: Option<&[u8]>) -> Bytes {
    let status = match bytes {
        Some(_) => STATUS_OK,
        None => STATUS_END_OF_FILE,
    };
    let mut message = Vec::with_capacity(96 + bytes.map_or(0, <[u8]>::len));
    let credits = request.credit_charge.max(1);
    request.response(status, credits).emit(&mut message);
    match bytes {
        Some(data) => ReadResponse { remaining: 0, data }.emit(&mut message),
        None => ErrorResponse::default().emit(&mut message),
    }
    packet(&message)
}

/// A write that stands alone and is nothing but bytes.
#[derive(Debug, Clone, Copy)]
pub struct AskedWrite {
    /// What it writes.
    pub part: Part,
    header: Either,
}

impl AskedWrite {
    /// Reads a packet, or the beginning of one.
    #[must_use]
    pub fn of(packet: &Bytes) -> Option<Self> {
        let message = packet.get(PREFIX_BYTES..)?;
        if cifs::is_cifs(message) {
            let (header, part) = cifs::asked::plain_write(message)?;
            let header = Either::Old(header);
            return Some(Self { part, header });
        }
        let header = Header::parse(message).ok()?;
        let (_, message_bytes) = prefix(packet).ok()??;
        let is_plain = header.command == Command::Write
            && header.next_bytes == 0
            && !header.is_response()
            && !header.is_related()
            && !header.is_signed();
        let write = WriteHead::parse(message).ok().filter(|_| is_plain)?;
        // A server refuses what is longer than its credits pay for.
        let is_paid = u64::from(write.length) <= header.ids_taken() * CREDIT_BYTES;
        let part = written(&header, &write)?;
        (is_paid && write.is_plain(message_bytes)).then_some(Self {
            part,
            header: Either::Modern(header),
        })
    }

    /// Credits it takes.
    #[must_use]
    pub fn ids_taken(&self) -> u64 {
        self.header.ids_taken()
    }

    /// How the far half tells it from others; of SMB1, where ids are used again at once, by how many came before.
    #[must_use]
    pub fn id(&self, before: u64) -> u64 {
        match &self.header {
            Either::Old(_) => before,
            Either::Modern(header) => header.message_id,
        }
    }

    /// A server's answer: all of it is taken (MS-SMB2 2.2.22).
    #[must_use]
    pub fn answer(&self, has_credits: bool) -> Bytes {
        let count = self.part.length;
        let header = match &self.header {
            Either::Old(header) => return cifs::asked::write_answer(header, count),
            Either::Modern(header) => header,
        };
        let credits = match has_credits {
            true => header.credit_charge.max(1),
            false => 0,
        };
        let mut message = Vec::new();
        header.response(STATUS_OK, credits).emit(&mut message);
        let remaining = 0;
        WriteResponse { count, remaining }.emit(&mut message);
        packet(&message)
    }
}

/// What a write of SMB2 writes.
pub fn written(header: &Header, write: &WriteHead) -> Option<Part> {
    Some(Part {
        session: header.session,
        tree: header.tree()?,
        file: write.file,
        offset: write.offset,
        length: write.length,
    })
}
