//! Peer protocol.

/// Scheduling class of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// By behaviour.
    Auto,
    /// Control.
    Control,
    /// Interactive.
    Interactive,
    /// Bulk.
    Bulk,
    /// Background.
    Background,
}
