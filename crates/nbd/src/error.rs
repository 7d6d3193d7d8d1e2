//! Errors: of messages, and those that messages carry.

use thiserror::Error;

/// Bytes of a peer that are no message.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// A magic number is another one.
    #[error("{what}: the magic number is {found:#x}")]
    Magic {
        /// The message.
        what: &'static str,
        /// The number that is there.
        found: u64,
    },
    /// A message is shorter than its fields.
    #[error("{what}: it ends after {found} bytes")]
    Short {
        /// The message.
        what: &'static str,
        /// Its length in bytes.
        found: usize,
    },
    /// A message is longer than its fields.
    #[error("{what}: {found} bytes follow its last field")]
    Long {
        /// The message.
        what: &'static str,
        /// Number of bytes too many.
        found: usize,
    },
    /// A name or a message of a peer is not UTF-8, has a NUL, or is too long.
    #[error("{what}: a string of {found} bytes is too long, or is not UTF-8 without NUL")]
    Text {
        /// The message.
        what: &'static str,
        /// Length of the string in bytes.
        found: usize,
    },
    /// The server speaks a dialect without options.
    #[error("the server does not know the fixed newstyle handshake (flags {found:#x})")]
    Dialect {
        /// Its flags.
        found: u16,
    },
}

/// Error of a request, as its reply carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyError {
    /// The request is not permitted: the export is read-only.
    Permission,
    /// The medium failed.
    Io,
    /// Memory is short.
    Memory,
    /// The request makes no sense.
    Invalid,
    /// No space, or a write beyond the end.
    NoSpace,
    /// The answer would be too long.
    Overflow,
    /// Not supported, or not fast.
    Unsupported,
    /// The server is about to end.
    Shutdown,
    /// Any other number.
    Other(u32),
}

/// Errors and their numbers, which are those of Linux.
const NUMBERS: [(ReplyError, u32); 8] = [
    (ReplyError::Permission, 1),
    (ReplyError::Io, 5),
    (ReplyError::Memory, 12),
    (ReplyError::Invalid, 22),
    (ReplyError::NoSpace, 28),
    (ReplyError::Overflow, 75),
    (ReplyError::Unsupported, 95),
    (ReplyError::Shutdown, 108),
];

impl ReplyError {
    /// The error with this number; `None` for 0, success.
    pub fn from_number(number: u32) -> Option<Self> {
        let known = NUMBERS.iter().find(|(_, known)| *known == number).map(|(error, _)| *error);
        (number != 0).then(|| known.unwrap_or(Self::Other(number)))
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Other(number) => number,
            known => NUMBERS.iter().find(|(error, _)| *error == known).map_or(22, |(_, number)| *number),
        }
    }
}
