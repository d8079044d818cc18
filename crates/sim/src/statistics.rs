//! Numbers about many numbers: means, percentiles, intervals of confidence.

/// Samples; percentiles need them sorted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Of these numbers.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        Self(values.into_iter().collect()).sorted()
    }

    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Puts them in order.
    pub fn sort(&mut self) {
        self.0.sort_by(f64::total_cmp);
    }

    /// The same in order.
    pub fn sorted(mut self) -> Self {
        self.sort();
        self
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their mean; `None` of none.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.0.iter().sum();
        (!self.0.is_empty()).then(|| sum / self.0.len() as f64)
    }

    /// The greatest.
    pub fn max(&self) -> Option<f64> {
        self.0.iter().copied().max_by(f64::total_cmp)
    }

    /// The value below which a share of them lies, between neighbours where
    /// need be. They must be sorted.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let at = share.clamp(0.0, 1.0) * self.0.len().checked_sub(1)? as f64;
        let below = *self.0.get(at.floor() as usize)?;
        let above = *self.0.get(at.ceil() as usize)?;
        Some(below + (above - below) * (at - at.floor()))
    }

    /// Half the width of the 95 % interval of confidence of their mean
    /// (Student's t); `None` below two samples.
    pub fn confidence(&self) -> Option<f64> {
        let mean = self.mean()?;
        let count = self.0.len() as f64;
        if self.0.len() < 2 {
            return None;
        }
        let squares: f64 = self
            .0
            .iter()
            .map(|value| (value - mean) * (value - mean))
            .sum();
        let deviation = (squares / (count - 1.0)).sqrt();
        Some(student_t(self.0.len() - 1) * deviation / count.sqrt())
    }
}

/// Two-sided 95 % quantile of Student's t law. Table up to ten degrees, then
/// an expansion around the normal law (Abramowitz and Stegun 26.7.5).
fn student_t(degrees: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    if let Some(t) = degrees.checked_sub(1).and_then(|at| TABLE.get(at)) {
        return *t;
    }
    let (z, n) = (1.959_964_f64, degrees as f64);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_means() {
        let samples = Samples::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(samples.mean(), Some(2.5));
        assert_eq!(samples.percentile(0.5), Some(2.5));
        assert_eq!(samples.percentile(1.0), Some(4.0));
        assert_eq!(samples.max(), Some(4.0));
        let none = Samples::default();
        assert_eq!(
            (none.mean(), none.percentile(0.5), none.confidence()),
            (None, None, None)
        );
        assert_eq!(Samples::of([1.0]).confidence(), None);
    }

    #[test]
    fn confidence_is_that_of_the_tables() {
        assert!((student_t(29) - 2.045).abs() < 0.001);
        assert!((student_t(11) - 2.201).abs() < 0.001);
        // Mean 3, deviation 1.5811, n 5: 2.776 x 1.5811 / sqrt(5).
        let half = Samples::of([1.0, 2.0, 3.0, 4.0, 5.0]).confidence().unwrap();
        assert!((half - 1.963).abs() < 0.001);
    }
}
