//! What is asked of an open file with a failed write that its client believes done. The other part of `far`; why the server is to
//! refuse it, SMB2's `refused` says.

use bytes::{Bytes, BytesMut};

use super::super::netbios::PREFIX_BYTES;
use super::super::smb1::header::set_word;
use super::effect::changed_files;
use super::far::FarCifs;
use super::file_id;

/// The highest FID that an open file can have (MS-CIFS 2.2.1.2.1): all ones are all files. Servers begin at the other end.
const FID_MAX: u16 = 0xfffe;

impl FarCifs {
    /// A client's packet as the server is to see it: what must not be done is of a file that nobody has open.
    pub(super) fn refuse(&self, packet: Bytes) -> Bytes {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let mut changed = changed_files(message);
        changed.retain(|(_, file)| self.writing.has_failed(*file));
        if changed.is_empty() {
            return packet;
        }
        let is_free = |fid: &u16| !self.openers.contains_key(&file_id(*fid));
        let nobodys = (0..=FID_MAX).rev().find(is_free).unwrap_or(FID_MAX);
        let mut edited = BytesMut::from(&*packet);
        for (at, _) in changed {
            set_word(&mut edited, PREFIX_BYTES + at, nobodys);
        }
        edited.freeze()
    }
}
