//! Reading and writing the fields of a frame. The reader trusts nothing.

use crate::error::DecodeError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Takes fields off the front of a frame.
#[derive(Debug)]
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(super) fn new(frame: Bytes) -> Self {
        Reader { rest: frame }
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.rest.try_get_u8().map_err(|_| DecodeError::Truncated)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.rest.try_get_u16().map_err(|_| DecodeError::Truncated)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.rest.try_get_u64().map_err(|_| DecodeError::Truncated)
    }

    pub(super) fn u128(&mut self) -> Result<u128, DecodeError> {
        self.rest.try_get_u128().map_err(|_| DecodeError::Truncated)
    }

    pub(super) fn take(&mut self, length_bytes: usize) -> Result<Bytes, DecodeError> {
        if length_bytes > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(self.rest.split_to(length_bytes))
    }

    /// RFC 9000 section 16: the two top bits say 1, 2, 4 or 8 bytes.
    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let first = self.u8()?;
        let mut value = u64::from(first & 0x3f);
        for _ in 1..(1u32 << (first >> 6)) {
            value = (value << 8) | u64::from(self.u8()?);
        }
        Ok(value)
    }

    /// UTF-8 text of at most 255 bytes behind one byte of length.
    pub(super) fn text(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let length_bytes = usize::from(self.u8()?);
        let bytes = self.take(length_bytes)?;
        let text = core::str::from_utf8(&bytes).map_err(|_| DecodeError::BadValue(field))?;
        Ok(text.to_owned())
    }

    /// Address and port behind `family` (4 or 6).
    pub(super) fn address(
        &mut self,
        family: u8,
        field: &'static str,
    ) -> Result<SocketAddr, DecodeError> {
        let ip = match family {
            4 => {
                let bits = self
                    .rest
                    .try_get_u32()
                    .map_err(|_| DecodeError::Truncated)?;
                IpAddr::V4(Ipv4Addr::from_bits(bits))
            }
            6 => IpAddr::V6(Ipv6Addr::from_bits(self.u128()?)),
            _ => return Err(DecodeError::BadValue(field)),
        };
        Ok(SocketAddr::new(ip, self.u16()?))
    }

    /// Everything left, without copying.
    pub(super) fn rest(self) -> Bytes {
        self.rest
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}

/// Largest value a varint can hold.
pub(super) const VARINT_MAX: u64 = (1 << 62) - 1;

/// Writes a varint; a larger value than it can hold becomes the largest (all our counters stay
/// far below: 2^62 bytes are centuries).
pub(super) fn put_varint(out: &mut BytesMut, value: u64) {
    let value = value.min(VARINT_MAX);
    match value {
        0..=0x3f => out.put_u8(value as u8),
        0x40..=0x3fff => out.put_u16(value as u16 | 0x4000),
        0x4000..=0x3fff_ffff => out.put_u32(value as u32 | 0x8000_0000),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Writes family, address and port.
pub(super) fn put_address(out: &mut BytesMut, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put_u32(ip.to_bits());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put_u128(ip.to_bits());
        }
    }
    out.put_u16(address.port());
}

/// Writes text behind its length; the caller has checked that it fits 255 bytes.
pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    let bytes = text.as_bytes();
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    out.put_u8(length);
    out.put_slice(bytes.get(..usize::from(length)).unwrap_or(bytes));
}
