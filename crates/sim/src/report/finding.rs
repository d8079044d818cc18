//! One number of a report, held against another.

/// A number with what it is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The circumstances: link and load.
    pub scenario: String,
    /// The architecture, or the rung of the ladder.
    pub config: String,
    /// What it is.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Ours; `None` where there is none.
    pub value: Option<f64>,
    /// Half the width of its 95 % interval of confidence.
    pub confidence: Option<f64>,
    /// What the paper or the formula says.
    pub reference: Option<f64>,
    /// What it must lie between.
    pub bounds: Option<(f64, f64)>,
    /// What is to be known about it.
    pub remark: String,
}

impl Finding {
    /// Whether it lies within its bounds; `None` where it has none.
    pub fn is_inside(&self) -> Option<bool> {
        let (low, high) = self.bounds?;
        Some(
            self.value
                .is_some_and(|value| value >= low && value <= high),
        )
    }

    /// Whether its interval of confidence and its bounds have anything in common.
    pub fn may_be_inside(&self) -> bool {
        let half = self.confidence.unwrap_or(0.0);
        self.bounds
            .zip(self.value)
            .is_some_and(|((low, high), value)| value + half >= low && value - half <= high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_may_reach_where_its_middle_does_not() {
        let finding = |value, confidence| Finding {
            scenario: String::new(),
            config: String::new(),
            metric: String::new(),
            unit: String::new(),
            value,
            confidence,
            reference: None,
            bounds: Some((0.60, 0.82)),
            remark: String::new(),
        };
        let verdict = |finding: Finding| (finding.is_inside(), finding.may_be_inside());
        assert_eq!(verdict(finding(Some(0.7), None)), (Some(true), true));
        assert_eq!(
            verdict(finding(Some(0.822), Some(0.005))),
            (Some(false), true)
        );
        assert_eq!(
            verdict(finding(Some(0.59), Some(0.02))),
            (Some(false), true)
        );
        assert_eq!(
            verdict(finding(Some(0.83), Some(0.005))),
            (Some(false), false)
        );
        assert_eq!(verdict(finding(None, None)), (Some(false), false));
    }
}
