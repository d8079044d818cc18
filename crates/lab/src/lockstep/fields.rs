//! Numbers and names in messages, least significant byte first.

use super::error::LockstepError;

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}

/// UTF-16 as names are written.
pub(super) fn wide(name: &str) -> Vec<u8> {
    name.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

const SHORT: LockstepError = LockstepError::Malformed("it is too short");

pub(super) fn bytes_at(message: &[u8], at: usize, count: usize) -> Result<&[u8], LockstepError> {
    let end = at.checked_add(count).ok_or(SHORT)?;
    message.get(at..end).ok_or(SHORT)
}

fn array_at<const N: usize>(message: &[u8], at: usize) -> Result<[u8; N], LockstepError> {
    bytes_at(message, at, N)?.try_into().map_err(|_| SHORT)
}

pub(super) fn u8_at(message: &[u8], at: usize) -> Result<u8, LockstepError> {
    array_at::<1>(message, at).map(u8::from_le_bytes)
}

pub(super) fn u16_at(message: &[u8], at: usize) -> Result<u16, LockstepError> {
    array_at(message, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(message: &[u8], at: usize) -> Result<u32, LockstepError> {
    array_at(message, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(message: &[u8], at: usize) -> Result<u64, LockstepError> {
    array_at(message, at).map(u64::from_le_bytes)
}
