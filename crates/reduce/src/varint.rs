//! Numbers of one to ten bytes: seven bits each, lowest first, the top bit says that more follow.

/// Appends `value`.
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes one number off the front; `None` where it is cut short, longer than it need be, or beyond 64 bits.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (nth, &byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7F);
        if nth == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * nth);
        if byte < 0x80 {
            let is_shortest = byte != 0 || nth == 0;
            *bytes = bytes.get(nth + 1..)?;
            return is_shortest.then_some(value);
        }
    }
    None
}

/// Distances of either sign as numbers: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
pub(crate) fn from_signed(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The reverse of [`from_signed`].
pub(crate) fn to_signed(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_shortest_form_is_read() {
        for wrong in [
            &[0x80, 0x00][..],
            &[0x80],
            &[],
            &[0xFF; 11],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2],
        ] {
            assert_eq!(take(&mut &*wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_put_is_taken(value: u64, shift in 0u32..64, signed: i64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            bytes.push(7);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(rest, &[7][..]);
            prop_assert_eq!(to_signed(from_signed(signed)), signed);
        }
    }
}
