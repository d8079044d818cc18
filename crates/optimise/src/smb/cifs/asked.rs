//! Reads and writes of SMB1 that a half may answer by itself, and the answers to them.

use bytes::Bytes;

use super::super::files::Part;
use super::super::netbios::packet;
use super::super::smb1::header::{FLAG2_NT_STATUS, Header, READ_ANDX, WRITE_ANDX, lone_block};
use super::super::smb1::transfer::{ReadRequest, WriteHead, WriteResponse, emit_read_response};
use super::super::smb2::transfer::FILE_BYTES_MAX;
use super::part_of;

/// The longest answer whose packet every client reads (RFC 1002 4.3.1: 17 bits of length).
const READ_BYTES_MAX: u32 = (128 << 10) - 1024;

/// A read that stands alone and asks for nothing but bytes.
#[must_use]
pub fn plain_read(message: &[u8]) -> Option<(Header, Part)> {
    let header = Header::parse(message).ok()?;
    let is_plain = header.command == READ_ANDX && !header.is_response() && !header.is_signed();
    let block = lone_block(message).ok().filter(|_| is_plain)?;
    let read = ReadRequest::parse(&block).ok()?;
    let part = part_of(&header, read.file, read.offset, read.length);
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

/// RAW_MODE and MSG_START (MS-CIFS 2.2.4.43.1) mean something to pipes, which have no oplock and so no write answered early.
/// impacket sets the latter in every write.
const MODES_OF_PIPES: u16 = 0x000c;

/// A write that stands alone.
#[must_use]
pub fn lone_write(message: &[u8]) -> Option<(Header, Part, WriteHead)> {
    let header = Header::parse(message).ok()?;
    let is_plain = header.command == WRITE_ANDX && !header.is_response();
    let block = lone_block(message).ok().filter(|_| is_plain)?;
    let write = WriteHead::parse(&block).ok()?;
    let part = part_of(&header, write.file, write.offset, write.length);
    Some((header, part, write))
}

/// One that is nothing but bytes, all of them there, from a client that can be told later what went wrong.
#[must_use]
pub fn plain_write(message: &[u8]) -> Option<(Header, Part)> {
    let (header, part, write) = lone_write(message)?;
    let is_told = header.flags2 & FLAG2_NT_STATUS != 0 && !header.is_signed();
    let end = part.offset.checked_add(part.length.into());
    let has_place = end.is_some_and(|end| end <= FILE_BYTES_MAX);
    let is_whole = write.data(message).is_ok_and(|data| !data.is_empty());
    let is_plain = write.mode & !MODES_OF_PIPES == 0;
    (is_told && has_place && is_whole && is_plain).then_some((header, part))
}

/// A server's answer: all of it is taken.
#[must_use]
pub fn write_answer(request: &Header, count: u32) -> Bytes {
    let mut message = Vec::new();
    request.response(0).emit(&mut message);
    WriteResponse { count }.emit(&mut message);
    packet(&message)
}

#[cfg(test)]
mod tests {
    use super::super::super::smb1::transfer::emit_write_request;
    use super::*;

    #[test]
    fn what_is_of_pipes_alone_does_not_make_a_write_another() {
        let is_plain = |mode| {
            let mut message = Vec::new();
            let header = Header {
                command: WRITE_ANDX,
                status: 0,
                flags: 0,
                flags2: FLAG2_NT_STATUS,
                process_high: 0,
                signature: [0; 8],
                tree: 2,
                process: 1,
                user: 3,
                multiplex: 4,
            };
            header.emit(&mut message);
            emit_write_request(5, 100, mode, b"some", &mut message);
            plain_write(&message).is_some()
        };
        // Write-through, and the answer says how much is left in a pipe.
        let found = [0, 4, 8, 12, 1, 2, 9, 16].map(is_plain);
        let expected = [true, true, true, true, false, false, false, false];
        assert_eq!(found, expected);
    }
}
