//! What can be wrong with a plan: in which file, on which line, which key.

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("{file}: {why}")]
    Unread {
        /// The plan's file.
        file: String,
        /// The system's answer.
        why: String,
    },
    /// No TOML, an unknown key, a value of the wrong kind; the text shows line and column.
    #[error("{file}: {why}")]
    Text {
        /// The plan's file.
        file: String,
        /// What is wrong, with its line.
        why: String,
    },
    /// A value that cannot be.
    #[error("{file}, line {line}: {key}: {why}")]
    Value {
        /// The plan's file.
        file: String,
        /// Line, counted from 1.
        line: usize,
        /// Which key, with its table.
        key: &'static str,
        /// Why not.
        why: String,
    },
}
