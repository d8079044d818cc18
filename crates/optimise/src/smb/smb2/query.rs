//! QUERY_DIRECTORY and QUERY_INFO: what is in a folder, and what a server says of an open file.

use super::super::bytes_le::{Put, Reader, narrow, slice_at};
use super::super::error::WireError;
use super::header::{HEADER_BYTES, write};
use super::open::FileId;

/// STATUS_NO_MORE_FILES: the folder was listed to its end.
pub const STATUS_NO_MORE_FILES: u32 = 0x8000_0006;
/// SMB2_RESTART_SCANS, SMB2_REOPEN: from the first name again.
pub const FLAGS_FROM_THE_FIRST: u8 = 0x1 | 0x10;
/// SMB2_0_INFO_FILE: of a file, not of its disk, its owner or its quota.
pub const INFO_FILE: u8 = 1;
/// FileIdBothDirectoryInformation (MS-FSCC 2.4.22).
pub const CLASS_ID_BOTH: u8 = 37;

/// Where FileId lies in the body of QUERY_INFO.
const INFO_FILE_AT: usize = HEADER_BYTES + 24;
/// Where each class of listing that tells sizes has the name (MS-FSCC 2.4.10, 2.4.14, 2.4.8, 2.4.22, 2.4.23).
const NAMES_AT: [(u8, usize); 5] = [(1, 64), (2, 68), (3, 94), (CLASS_ID_BOTH, 104), (38, 80)];
/// The longest name of a file: 255 characters of UTF-16 (MS-FSCC 2.1.5).
const NAME_BYTES_MAX: usize = 510;

/// MS-SMB2 2.2.33.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryDirectoryRequest {
    /// FileInformationClass.
    pub class: u8,
    /// Flags.
    pub flags: u8,
    /// The open folder.
    pub file: FileId,
    /// Which names, in UTF-16.
    pub pattern: Vec<u8>,
    /// The longest answer.
    pub output_bytes_max: u32,
}

impl QueryDirectoryRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(33)?;
        let (class, flags) = (reader.u8()?, reader.u8()?);
        reader.u32()?;
        let file = FileId::parse(&mut reader)?;
        let (pattern_at, pattern_bytes) = (reader.u16()?, reader.u16()?);
        Ok(Self {
            class,
            flags,
            file,
            pattern: slice_at(message, pattern_at.into(), pattern_bytes.into())?.to_vec(),
            output_bytes_max: reader.u32()?,
        })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(33);
        message.put_8(self.class);
        message.put_8(self.flags);
        message.put_32(0);
        self.file.emit(message);
        message.put_16(narrow(HEADER_BYTES + 32));
        message.put_16(narrow(self.pattern.len()));
        message.put_32(self.output_bytes_max);
        message.put_bytes(&self.pattern);
    }
}

/// What answers QUERY_DIRECTORY and QUERY_INFO (MS-SMB2 2.2.34, 2.2.38).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryResponse<'a> {
    /// What was asked for.
    pub data: &'a [u8],
}

impl<'a> QueryResponse<'a> {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(9)?;
        let (data_at, data_bytes) = (reader.u16()?, reader.u32()?);
        let data = slice_at(message, data_at.into(), data_bytes as usize)?;
        Ok(Self { data })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(9);
        message.put_16(narrow(HEADER_BYTES + 8));
        message.put_32(narrow(self.data.len()));
        message.put_bytes(self.data);
    }
}

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// In UTF-16.
    pub name: Vec<u8>,
    /// EndofFile.
    pub size_bytes: u64,
    /// FileAttributes.
    pub attributes: u32,
}

/// The names of a listing of this class, in their order, up to what cannot be read; none of a class without sizes. They
/// are no longer than the listing, all together.
#[must_use]
pub fn entries(class: u8, data: &[u8]) -> Vec<Entry> {
    let mut found = Vec::new();
    let known = NAMES_AT.iter().find(|(known, _)| *known == class);
    let mut rest = known.map(|(_, name_at)| (data, *name_at));
    while let Some((listing, name_at)) = rest {
        let Ok((entry, next_bytes)) = entry(listing, name_at) else {
            break;
        };
        found.push(entry);
        let next = listing.get(next_bytes..).filter(|_| next_bytes > 0);
        rest = next.map(|next| (next, name_at));
    }
    found
}

fn entry(listing: &[u8], name_at: usize) -> Result<(Entry, usize), WireError> {
    let next_bytes = Reader::new(listing, 0).u32()? as usize;
    let size_bytes = Reader::new(listing, 40).u64()?;
    let mut reader = Reader::new(listing, 56);
    let (attributes, name_bytes) = (reader.u32()?, reader.u32()? as usize);
    // One that overlaps the next could be told again and again: all names together are no longer than the listing.
    let is_apart = next_bytes == 0 || next_bytes >= name_at + name_bytes;
    if name_bytes > NAME_BYTES_MAX || !is_apart {
        return Err(WireError::Names);
    }
    let entry = Entry {
        name: slice_at(listing, name_at, name_bytes)?.to_vec(),
        size_bytes,
        attributes,
    };
    Ok((entry, next_bytes))
}

/// A listing of [`CLASS_ID_BOTH`].
#[must_use]
pub fn listing(entries: &[Entry]) -> Vec<u8> {
    let mut data = Vec::new();
    for (nth, entry) in entries.iter().enumerate() {
        let length = (104 + entry.name.len()).next_multiple_of(8);
        let is_last = nth + 1 == entries.len();
        data.put_32(if is_last { 0 } else { narrow(length) });
        data.put_bytes(&[0; 36]);
        data.put_64(entry.size_bytes);
        data.put_64(entry.size_bytes);
        data.put_32(entry.attributes);
        data.put_32(narrow(entry.name.len()));
        data.put_bytes(&[0; 40]);
        data.put_bytes(&entry.name);
        data.pad_8(0);
    }
    data
}

/// MS-SMB2 2.2.37, without input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryInfoRequest {
    /// InfoType.
    pub kind: u8,
    /// FileInfoClass.
    pub class: u8,
    /// The longest answer.
    pub output_bytes_max: u32,
    /// InputBufferLength.
    pub input_bytes: u32,
    /// The open file.
    pub file: FileId,
}

impl QueryInfoRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(41)?;
        let (kind, class, output_bytes_max) = (reader.u8()?, reader.u8()?, reader.u32()?);
        reader.u32()?;
        let input_bytes = reader.u32()?;
        reader.u64()?;
        Ok(Self {
            kind,
            class,
            output_bytes_max,
            input_bytes,
            file: FileId::parse(&mut reader)?,
        })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(41);
        message.put_8(self.kind);
        message.put_8(self.class);
        message.put_32(self.output_bytes_max);
        message.put_32(0);
        message.put_32(self.input_bytes);
        message.put_64(0);
        self.file.emit(message);
        // 2.2.37: the buffer is never empty.
        message.put_8(0);
    }
}

/// Writes another file into a QUERY_INFO.
pub fn set_info_file(message: &mut [u8], file: FileId) {
    let mut field = Vec::with_capacity(16);
    file.emit(&mut field);
    write(message, INFO_FILE_AT, &field);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read_up_to_what_cannot_be() {
        let name =
            |name: &str| -> Vec<u8> { name.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        let all: Vec<Entry> = ["a", "longer.bin", "ü"]
            .iter()
            .zip([0, 10_000, 1 << 40])
            .map(|(text, size_bytes)| Entry {
                name: name(text),
                size_bytes,
                attributes: 0x20,
            })
            .collect();
        let data = listing(&all);
        assert_eq!(entries(CLASS_ID_BOTH, &data), all);
        assert_eq!(entries(12, &data), [], "names alone");
        for length in 0..data.len() {
            let known = entries(CLASS_ID_BOTH, &data[..length]);
            assert_eq!(known, all[..known.len()], "{length}");
        }
    }

    /// Every eight bytes another entry whose name is all that follows.
    #[test]
    fn entries_that_overlap_end_the_listing() {
        let piled: Vec<u8> = [8, 0, 0, 0, 0, 0, 2, 0].repeat(32 << 10);
        let apart = |name_bytes: u32, next: u32| {
            let mut data = vec![0; 2 * 640];
            data[..4].copy_from_slice(&next.to_le_bytes());
            data[60..64].copy_from_slice(&name_bytes.to_le_bytes());
            data
        };
        for (class, name_at) in NAMES_AT {
            assert_eq!(entries(class, &piled), []);
            let touching = name_at as u32 + 510;
            assert_eq!(entries(class, &apart(510, touching)).len(), 2);
            assert_eq!(entries(class, &apart(510, touching - 1)), []);
            assert_eq!(entries(class, &apart(512, touching + 2)), []);
        }
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let file = FileId {
            persistent: 3,
            volatile: 4,
        };
        let directory = QueryDirectoryRequest {
            class: CLASS_ID_BOTH,
            flags: 1,
            file,
            pattern: vec![b'*', 0],
            output_bytes_max: 65_536,
        };
        let mut message = vec![0; HEADER_BYTES];
        directory.emit(&mut message);
        assert_eq!(QueryDirectoryRequest::parse(&message), Ok(directory));
        let mut info = QueryInfoRequest {
            kind: INFO_FILE,
            class: 18,
            output_bytes_max: 65_535,
            input_bytes: 0,
            file,
        };
        let mut message = vec![0; HEADER_BYTES];
        info.emit(&mut message);
        assert_eq!(QueryInfoRequest::parse(&message), Ok(info));
        info.file.volatile = 9;
        set_info_file(&mut message, info.file);
        assert_eq!(QueryInfoRequest::parse(&message), Ok(info));
        let data = b"told";
        let mut message = vec![0; HEADER_BYTES];
        QueryResponse { data }.emit(&mut message);
        assert_eq!(QueryResponse::parse(&message), Ok(QueryResponse { data }));
    }
}
