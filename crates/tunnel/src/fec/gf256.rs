//! Arithmetic over GF(256) with the polynomial x^8 + x^4 + x^3 + x^2 + 1, as in RFC 8681.
//!
//! Multiplication splits a byte in its halves: c x s = c x (s & 15) + c x (s & 240), two lookups
//! in tables of 16 bytes, which is also what vector units have an instruction for.

const POLYNOMIAL: u16 = 0x11d;

/// For every factor the products with 0..16 and with 0, 16, .. 240.
static PRODUCTS: [Products; 256] = products();
static INVERSES: [u8; 256] = inverses();

/// Products of one factor with the low and the high half of a byte.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(super) struct Products {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

impl Products {
    fn with(&self, byte: u8) -> u8 {
        let at = |table: &[u8; 16], half: u8| table.get(usize::from(half & 15)).copied();
        at(&self.low, byte).unwrap_or(0) ^ at(&self.high, byte >> 4).unwrap_or(0)
    }
}

pub(super) fn products_of(factor: u8) -> &'static Products {
    let [zero, ..] = &PRODUCTS;
    PRODUCTS.get(usize::from(factor)).unwrap_or(zero)
}

/// The product of two elements.
pub(super) fn multiply(a: u8, b: u8) -> u8 {
    products_of(a).with(b)
}

/// The element whose product with `a` is one; zero for zero.
pub(super) fn inverse(a: u8) -> u8 {
    INVERSES.get(usize::from(a)).copied().unwrap_or(0)
}

/// Adds `factor` x `source` to `sum`, as far as both reach.
pub(super) fn add_multiple(sum: &mut [u8], source: &[u8], factor: u8) {
    if factor == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if super::gf256_x86::add_multiple(sum, source, products_of(factor)) {
        return;
    }
    add_multiple_portable(sum, source, factor);
}

/// Multiplies every byte by `factor`.
pub(super) fn scale(bytes: &mut [u8], factor: u8) {
    let products = products_of(factor);
    bytes
        .iter_mut()
        .for_each(|byte| *byte = products.with(*byte));
}

pub(super) fn add_multiple_portable(sum: &mut [u8], source: &[u8], factor: u8) {
    let products = products_of(factor);
    for (sum, byte) in sum.iter_mut().zip(source) {
        *sum ^= products.with(*byte);
    }
}

const fn multiply_slowly(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a as u16, b, 0u16);
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    product as u8
}

// Evaluated by the compiler, where an index out of bounds is an error.
#[allow(clippy::indexing_slicing)]
const fn products() -> [Products; 256] {
    let zero = Products {
        low: [0; 16],
        high: [0; 16],
    };
    let mut all = [zero; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            all[factor].low[half] = multiply_slowly(factor as u8, half as u8);
            all[factor].high[half] = multiply_slowly(factor as u8, (half << 4) as u8);
            half += 1;
        }
        factor += 1;
    }
    all
}

#[allow(clippy::indexing_slicing)] // as above
const fn inverses() -> [u8; 256] {
    let mut all = [0; 256];
    // Powers of the generator 2 come in pairs of inverses: 2^i x 2^(255-i) = 1.
    let mut powers = [1u8; 256];
    let mut i = 1;
    while i < 256 {
        powers[i] = multiply_slowly(powers[i - 1], 2);
        i += 1;
    }
    let mut i = 0;
    while i < 256 {
        all[powers[i] as usize] = powers[255 - i];
        i += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        for a in 0..=255u8 {
            assert_eq!(multiply(a, 1), a);
            assert_eq!(multiply(a, 0), 0);
            if a != 0 {
                assert_eq!(multiply(a, inverse(a)), 1, "{a}");
            }
            for b in 0..=255u8 {
                assert_eq!(multiply(a, b), multiply_slowly(a, b));
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b ^ 77), multiply(a, b) ^ multiply(a, 77));
            }
        }
    }

    #[test]
    fn the_fast_sum_is_the_portable_one_at_every_length_and_offset() {
        let source: Vec<u8> = (0..900u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for length in (0..100).chain([735, 736, 800]) {
            for offset in [0, 1, 13] {
                for factor in [0, 1, 2, 0x1d, 0x80, 0xff] {
                    let mut fast: Vec<u8> = (0..length).map(|i| i as u8).collect();
                    let mut slow = fast.clone();
                    add_multiple(&mut fast, &source[offset..offset + length], factor);
                    add_multiple_portable(&mut slow, &source[offset..offset + length], factor);
                    assert_eq!(fast, slow, "length {length}, offset {offset}, x {factor}");
                }
            }
        }
    }

    #[test]
    fn a_sum_reaches_as_far_as_the_shorter() {
        let mut sum = vec![1; 40];
        add_multiple(&mut sum, &[1; 33], 1);
        assert_eq!(sum, [vec![0; 33], vec![1; 7]].concat());
        add_multiple(&mut sum[..3], &[1; 33], 1);
        assert_eq!(&sum[..4], [1, 1, 1, 0]);
    }
}
