//! OPLOCK_BREAK: the server takes back what the client may keep of a file, and the client's word that it knows.

use super::super::bytes_le::{Put, Reader};
use super::super::error::WireError;
use super::header::HEADER_BYTES;
use super::open::FileId;

/// Of an oplock: notification, acknowledgment and its answer look alike (MS-SMB2 2.2.23.1, 2.2.24.1, 2.2.25.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OplockBreak {
    /// What is left.
    pub oplock: u8,
    /// Of which file.
    pub file: FileId,
}

/// Of a lease (MS-SMB2 2.2.23.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseBreak {
    /// NewEpoch.
    pub epoch: u16,
    /// 1: an acknowledgment is due.
    pub flags: u32,
    /// Of which file.
    pub key: [u8; 16],
    /// What there was.
    pub state_before: u32,
    /// What is left.
    pub state: u32,
}

/// The client's acknowledgment of a lease break, and its answer (MS-SMB2 2.2.24.2, 2.2.25.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseAcknowledgment {
    /// Of which file.
    pub key: [u8; 16],
    /// What is left.
    pub state: u32,
}

/// Any of them; the structure's size tells which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Of an oplock.
    Oplock(OplockBreak),
    /// Of a lease.
    Lease(LeaseBreak),
    /// Of a lease, acknowledged.
    LeaseAcknowledgment(LeaseAcknowledgment),
}

impl Break {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        match reader.u16()? {
            24 => {
                let oplock = reader.u8()?;
                reader.take(5)?;
                let file = FileId::parse(&mut reader)?;
                Ok(Self::Oplock(OplockBreak { oplock, file }))
            }
            44 => {
                let (epoch, flags, key) = (reader.u16()?, reader.u32()?, reader.array()?);
                let (state_before, state) = (reader.u32()?, reader.u32()?);
                reader.take(12)?;
                Ok(Self::Lease(LeaseBreak {
                    epoch,
                    flags,
                    key,
                    state_before,
                    state,
                }))
            }
            36 => {
                reader.take(6)?;
                let (key, state) = (reader.array()?, reader.u32()?);
                reader.u64()?;
                Ok(Self::LeaseAcknowledgment(LeaseAcknowledgment {
                    key,
                    state,
                }))
            }
            seen => Err(WireError::Structure { seen, expected: 24 }),
        }
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        match self {
            Self::Oplock(oplock) => {
                message.put_16(24);
                message.put_8(oplock.oplock);
                message.put_bytes(&[0; 5]);
                oplock.file.emit(message);
            }
            Self::Lease(lease) => {
                message.put_16(44);
                message.put_16(lease.epoch);
                message.put_32(lease.flags);
                message.put_bytes(&lease.key);
                message.put_32(lease.state_before);
                message.put_32(lease.state);
                message.put_bytes(&[0; 12]);
            }
            Self::LeaseAcknowledgment(lease) => {
                message.put_16(36);
                message.put_bytes(&[0; 6]);
                message.put_bytes(&lease.key);
                message.put_32(lease.state);
                message.put_64(0);
            }
        }
    }
}
