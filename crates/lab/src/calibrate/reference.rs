//! The published calibration that ours stands beside.

/// `docs/reference/wx2006_calibration.csv`.
const CSV: &str = include_str!("../../../../docs/reference/wx2006_calibration.csv");

/// What a study measured for one setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    /// Mbit/s, ms or percent.
    pub(super) actual: f64,
    /// As printed, where it is.
    pub(super) accuracy_percent: Option<f64>,
}

impl Published {
    /// How far from right it was, in percent.
    pub(super) fn error_percent(self) -> Option<f64> {
        Some((self.accuracy_percent? - 100.0).abs())
    }
}

/// The row of a quantity (`bandwidth`, `rtt`, ...) at a setting.
pub(super) fn published(quantity: &str, configured: f64) -> Option<Published> {
    CSV.lines().skip(1).find_map(|line| {
        let mut fields = line.split(',');
        let (_table, name) = (fields.next()?, fields.next()?);
        let setting: f64 = fields.next()?.parse().ok()?;
        let (_unit, actual) = (fields.next()?, fields.next()?.parse().ok()?);
        let is_it = name == quantity && (setting - configured).abs() < 1e-9;
        is_it.then(|| Published {
            actual,
            accuracy_percent: fields.next().and_then(|text| text.parse().ok()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read() {
        let oc1 = published("bandwidth", 51.84).unwrap();
        assert_eq!((oc1.actual, oc1.accuracy_percent), (49.112, Some(101.2)));
        assert!((oc1.error_percent().unwrap() - 1.2).abs() < 1e-9);
        let none = published("rtt", 0.0).unwrap();
        assert_eq!((none.actual, none.accuracy_percent), (0.268, None));
        assert_eq!(published("loss", 0.05).unwrap().actual, 0.03);
        assert_eq!(published("bandwidth", 155.52), None);
    }
}
