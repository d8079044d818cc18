//! Little-endian fields, read with bounds checked and written at the end of a buffer.

use super::error::WireError;

/// Reads fields one after the other. Never past the end.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins `at` bytes into a message.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(length).ok_or(WireError::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(WireError::Short)?;
        self.at = end;
        Ok(taken)
    }

    /// The next bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A body's first field, which must be what its command demands.
    pub fn structure(&mut self, expected: u16) -> Result<(), WireError> {
        match self.u16()? {
            seen if seen == expected => Ok(()),
            seen => Err(WireError::Structure { seen, expected }),
        }
    }
}

/// What lies at an offset from the message's first byte. Nothing has no place.
pub fn slice_at(message: &[u8], offset: usize, length: usize) -> Result<&[u8], WireError> {
    if length == 0 {
        return Ok(&[]);
    }
    Reader::new(message, offset).take(length)
}

/// A count as a field of the wire; what does not fit is capped, which no message of legal length reaches.
pub fn narrow<T: TryFrom<usize> + Bounded>(count: usize) -> T {
    T::try_from(count).unwrap_or(T::MAX)
}

/// Integers that know their largest value.
pub trait Bounded {
    /// The largest value.
    const MAX: Self;
}

impl Bounded for u8 {
    const MAX: Self = u8::MAX;
}

impl Bounded for u16 {
    const MAX: Self = u16::MAX;
}

impl Bounded for u32 {
    const MAX: Self = u32::MAX;
}

/// Appends fields.
pub trait Put {
    /// One byte.
    fn put_8(&mut self, value: u8);
    /// Two bytes.
    fn put_16(&mut self, value: u16);
    /// Four bytes.
    fn put_32(&mut self, value: u32);
    /// Eight bytes.
    fn put_64(&mut self, value: u64);
    /// Bytes as they are.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Zeros up to a multiple of eight, counted from `start`.
    fn pad_8(&mut self, start: usize);
}

impl Put for Vec<u8> {
    fn put_8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn pad_8(&mut self, start: usize) {
        while !(self.len() - start).is_multiple_of(8) {
            self.push(0);
        }
    }
}
