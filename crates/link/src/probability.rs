//! A probability kept as whole parts per billion, so that a profile can be
//! compared, printed and read back without rounding.

use std::fmt;

const PARTS: u32 = 1_000_000_000;
/// Parts per billion in one percent.
pub(crate) const PARTS_PER_PERCENT: u32 = PARTS / 100;

/// A probability from 0 to 100 %, in steps of one part per billion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(PARTS);

    /// From parts per billion; `None` above 1,000,000,000.
    pub const fn from_ppb(ppb: u32) -> Option<Self> {
        if ppb <= PARTS { Some(Self(ppb)) } else { None }
    }

    /// From a percentage, rounded to the nearest part per billion; `None`
    /// if it is negative, above 100 or not a number.
    pub fn from_percent(percent: f64) -> Option<Self> {
        if !(0.0..=100.0).contains(&percent) {
            return None;
        }
        Self::from_ppb((percent * f64::from(PARTS_PER_PERCENT)).round() as u32)
    }

    /// Parts per billion.
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// As a fraction from 0 to 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(PARTS)
    }

    /// 100 % minus this.
    pub const fn complement(self) -> Self {
        Self(PARTS - self.0)
    }

    /// Whether a uniform 64-bit draw falls inside this probability. Exact at
    /// both ends: never at 0 %, always at 100 %.
    pub(crate) fn hit(self, draw: u64) -> bool {
        let threshold = (u128::from(self.0) << 64) / u128::from(PARTS);
        u128::from(draw) < threshold
    }
}

/// Prints as a percentage with as many decimals as it has: `0.05%`.
impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / PARTS_PER_PERCENT;
        let rest = self.0 % PARTS_PER_PERCENT;
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let decimals = format!("{rest:07}");
        write!(f, "{whole}.{}%", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact() {
        assert!(!Probability::ZERO.hit(0));
        assert!(Probability::ONE.hit(u64::MAX));
        let half = Probability::from_percent(50.0).unwrap();
        assert!(half.hit((1 << 63) - 1));
        assert!(!half.hit(1 << 63));
    }

    #[test]
    fn impossible_values_are_refused() {
        for percent in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Probability::from_percent(percent), None);
        }
        assert_eq!(Probability::from_ppb(PARTS + 1), None);
    }

    #[test]
    fn prints_the_shortest_percentage() {
        let text = |percent| Probability::from_percent(percent).unwrap().to_string();
        assert_eq!(text(0.0), "0%");
        assert_eq!(text(0.05), "0.05%");
        assert_eq!(text(1.0), "1%");
        assert_eq!(text(12.3456789), "12.3456789%");
        assert_eq!(text(100.0), "100%");
    }
}
