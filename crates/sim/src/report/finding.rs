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
}
