//! How many of n packets a fair coin of probability p may lose.

/// The central interval of a binomial distribution: below its least value and
/// above its greatest lies at most half of `1 - confidence` each. Exact sums,
/// no normal approximation.
pub(super) fn interval(n: u64, probability: f64, confidence: f64) -> (u64, u64) {
    if probability <= 0.0 || n == 0 {
        return (0, 0);
    }
    if probability >= 1.0 {
        return (n, n);
    }
    let odds = probability / (1.0 - probability);
    let mode = (((n + 1) as f64) * probability).floor().min(n as f64) as u64;
    // Weights relative to the mode's, which is 1: none overflows, and those
    // too small for a number do not count.
    let below = weights(
        mode,
        |k| k.checked_sub(1),
        |k| k as f64 / ((n - k + 1) as f64 * odds),
    );
    let above = weights(
        mode,
        |k| (k < n).then_some(k + 1),
        |k| (n - k) as f64 * odds / (k + 1) as f64,
    );
    let total = below.iter().sum::<f64>() + above.iter().sum::<f64>() - 1.0;
    let tail = (1.0 - confidence) / 2.0 * total;
    // From the far ends inwards, until a tail is as heavy as allowed.
    let inwards = |weights: &[f64]| {
        let mut sum = 0.0;
        let outside = weights.iter().rev().take_while(|weight| {
            sum += **weight;
            sum <= tail
        });
        (weights.len() - 1 - outside.count()) as u64
    };
    (mode - inwards(&below), mode + inwards(&above))
}

/// Weights from the mode outwards in one direction: `step` gives the next
/// value, `ratio` what its weight is relative to that of the value it is given.
fn weights(mode: u64, step: impl Fn(u64) -> Option<u64>, ratio: impl Fn(u64) -> f64) -> Vec<f64> {
    let (mut k, mut weight) = (mode, 1.0);
    let mut weights = vec![weight];
    while let Some(next) = step(k) {
        weight *= ratio(k);
        if weight < 1e-30 {
            break;
        }
        weights.push(weight);
        k = next;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_intervals() {
        // 10 tosses of a fair coin: P(X = 0) = P(X = 10) = 0.00098, and
        // P(X <= 1) = 0.0107 is more than half a percent.
        assert_eq!(interval(10, 0.5, 0.99), (1, 9));
        // P(X <= 1) = 0.0107 is less than 2.5 %, P(X <= 2) = 0.0547 is not.
        assert_eq!(interval(10, 0.5, 0.95), (2, 8));
        assert_eq!(interval(100, 0.0, 0.99), (0, 0));
        assert_eq!(interval(100, 1.0, 0.99), (100, 100));
    }

    #[test]
    fn large_numbers_agree_with_the_normal_law() {
        for (n, p) in [
            (1_100_000u64, 0.0005f64),
            (1_100_000, 0.005),
            (100_000, 0.1),
        ] {
            let mean = n as f64 * p;
            let half = 2.5758 * (mean * (1.0 - p)).sqrt();
            let (low, high) = interval(n, p, 0.99);
            assert!((low as f64 - (mean - half)).abs() < 3.0, "{n} {p}: {low}");
            assert!((high as f64 - (mean + half)).abs() < 3.0, "{n} {p}: {high}");
        }
    }
}
