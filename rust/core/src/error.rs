//! The one error of the core: what was wrong, what was expected and what came.

use std::fmt;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A value outside its legal range, or two things that do not go together.
    Value,
    /// Bytes that are not what they should be.
    Decode,
}

/// An error: `subject must be expected, got got`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// A value that is not what it must be.
    pub fn value(subject: &str, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Value, message: format!("{subject} must be {expected}, got {got}") }
    }

    /// Bytes that cannot be decoded.
    pub fn decode(expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Decode, message: format!("sketch bytes must have {expected}, got {got}") }
    }

    /// Memory that is no meter's block.
    pub fn block(expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Decode, message: format!("a meter's block must {expected}, got {got}") }
    }

    /// Bytes that are no snapshot of a meter.
    pub fn snapshot(expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Decode, message: format!("snapshot bytes must {expected}, got {got}") }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A result whose error is the core's own.
pub type Result<T> = std::result::Result<T, Error>;
