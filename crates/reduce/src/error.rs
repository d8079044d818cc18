//! What can be wrong with bytes from the other end.

/// Why a frame cannot be read. Such a frame is no accident of the link, which is authenticated: its sender is broken or hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It ends early.
    #[error("the frame is cut short")]
    Truncated,
    /// A number is not in its shortest form, or too large.
    #[error("a number in the frame is malformed")]
    Number,
    /// Flags that this version does not know.
    #[error("the frame has unknown flags {0:#04x}")]
    Flags(u8),
    /// More than a frame may hold.
    #[error("the frame claims {0} bytes, more than a frame may hold")]
    TooLong(u64),
    /// There are bytes after its end.
    #[error("the frame is followed by {0} bytes that do not belong to it")]
    Trailing(usize),
    /// Tokens and literals do not add up to the length.
    #[error("tokens and literals do not add up to the frame's length")]
    Length,
    /// A kind of token that this version does not know.
    #[error("a token is of an unknown kind")]
    Kind,
    /// A reference to what comes later, or to before the beginning.
    #[error("a token refers to what it cannot know")]
    Reference,
    /// The compressed bytes cannot be decompressed.
    #[error("the frame's payload cannot be decompressed")]
    Compression,
    /// Positions or addresses that this frame cannot have.
    #[error("the frame's place in the log is impossible")]
    Place,
}
