//! Random numbers: one stream for each purpose, all from one seed, so that
//! drawing more in one place changes nothing in another. Logarithms and powers
//! come from `libm`, not from the system, so that a seed means the same
//! workload on every machine.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Stream(Pcg64);

impl Stream {
    /// The stream of `seed` for a purpose and a number within it.
    pub fn new(seed: u64, purpose: &str, number: u64) -> Self {
        let named = purpose
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        let high = mix(seed ^ mix(named ^ mix(number)));
        let low = mix(high ^ seed);
        Self(Pcg64::new(
            u128::from(high) << 64 | u128::from(low),
            u128::from(named ^ number),
        ))
    }

    /// A uniform 64-bit number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From 0 (inclusive) to 1 (exclusive).
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 (inclusive) to `bound` (exclusive); 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.fraction())
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.fraction()));
        radius * libm::cos(std::f64::consts::TAU * self.fraction())
    }

    /// Lognormal whose logarithm has this mean and deviation.
    pub fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        libm::exp(mu + sigma * self.normal())
    }

    /// Pareto from `scale` on, with this shape.
    pub fn pareto(&mut self, shape: f64, scale: f64) -> f64 {
        scale / libm::pow(1.0 - self.fraction(), 1.0 / shape)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn mean(mut draw: impl FnMut() -> f64) -> f64 {
        (0..DRAWS).map(|_| draw()).sum::<f64>() / f64::from(DRAWS)
    }

    #[test]
    fn streams_repeat_and_differ() {
        let first = |seed, purpose, number| Stream::new(seed, purpose, number).draw();
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let others = [
            first(1, "a", 0),
            first(2, "a", 0),
            first(1, "b", 0),
            first(1, "a", 1),
        ];
        for (at, one) in others.iter().enumerate() {
            assert!(!others[..at].contains(one));
        }
    }

    #[test]
    fn laws_have_their_means() {
        let mut stream = Stream::new(7, "laws", 0);
        // Four standard errors of each mean.
        assert!((mean(|| stream.fraction()) - 0.5).abs() < 0.003);
        assert!((mean(|| stream.exponential(3.0)) - 3.0).abs() < 0.03);
        assert!(mean(|| stream.normal()).abs() < 0.01);
        let expected = (1.0f64 + 0.5 * 0.25).exp();
        assert!((mean(|| stream.lognormal(1.0, 0.5)) / expected - 1.0).abs() < 0.01);
        assert!((mean(|| stream.pareto(3.0, 2.0)) - 3.0).abs() < 0.03);
        assert!((mean(|| stream.below(11) as f64) - 5.0).abs() < 0.03);
        assert_eq!(stream.below(0), 0);
    }
}
