//! What can be wrong with a plan.

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No TOML, an unknown key, a value of the wrong kind: with line and column.
    #[error("{0}")]
    Text(String),
    /// A value that cannot be.
    #[error("{key}: {why}")]
    Value {
        /// Which key, with its table.
        key: String,
        /// Why not.
        why: String,
    },
}

impl PlanError {
    pub(super) fn value(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Value {
            key: key.into(),
            why: why.into(),
        }
    }
}
