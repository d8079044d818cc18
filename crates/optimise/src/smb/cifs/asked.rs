//! Reads of SMB1 that a half may answer by itself, and the answers to them.

use bytes::Bytes;

use super::super::files::Part;
use super::super::netbios::packet;
use super::super::smb1::header::{Header, READ_ANDX, lone_block};
use super::super::smb1::transfer::{ReadRequest, emit_read_response};
use super::file_id;

/// The longest answer whose packet every client reads (RFC 1002 4.3.1: 17 bits of length).
const READ_BYTES_MAX: u32 = (128 << 10) - 1024;

/// A read that stands alone and asks for nothing but bytes.
#[must_use]
pub fn plain_read(message: &[u8]) -> Option<(Header, Part)> {
    let header = Header::parse(message).ok()?;
    let is_plain = header.command == READ_ANDX && !header.is_response() && !header.is_signed();
    let block = lone_block(message).ok().filter(|_| is_plain)?;
    let read = ReadRequest::parse(&block).ok()?;
    let part = Part {
        session: header.user.into(),
        tree: header.tree.into(),
        file: file_id(read.file),
        offset: read.offset,
        length: read.length,
    };
    let has_length = (1..=READ_BYTES_MAX).contains(&read.length);
    has_length.then_some((header, part))
}

/// A server's answer. Where the file has ended there are no bytes, and that is no error.
#[must_use]
pub fn read_answer(request: &Header, bytes: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(64 + bytes.len());
    request.response(0).emit(&mut message);
    emit_read_response(bytes, &mut message);
    packet(&message)
}
