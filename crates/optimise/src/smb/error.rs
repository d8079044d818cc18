//! What can be wrong with a message.

use thiserror::Error;

/// Why bytes are no message that we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// A field lies beyond the message's end.
    #[error("the message ends inside a field")]
    Short,
    /// Not the mark of the protocol.
    #[error("the message does not begin with the protocol's mark")]
    Mark,
    /// A structure of another size.
    #[error("structure size {seen} where {expected} belongs")]
    Structure {
        /// In the message.
        seen: u16,
        /// By the specification.
        expected: u16,
    },
    /// Compounded messages that overlap or are not aligned.
    #[error("compounded messages do not follow each other")]
    Compound,
    /// Contexts that do not follow each other.
    #[error("contexts do not follow each other")]
    Context,
    /// Names of a listing that overlap, or longer ones than files have.
    #[error("names that overlap or are too long")]
    Names,
    /// A packet of several messages that nobody would send.
    #[error("a packet of compounded messages is too long")]
    Long,
    /// As many words as no such command has, or bytes that are none of its.
    #[error("words or bytes that do not belong to the command")]
    Count,
    /// A NetBIOS packet type that the session service does not know.
    #[error("NetBIOS packet type {0:#04x}")]
    Packet(u8),
}
