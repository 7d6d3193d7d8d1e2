//! Errors of streams.

use crate::{COMMAND_BYTES_MAX, CommandNumber, VERSION_MAX};
use std::io;
use thiserror::Error;

/// A stream that can't be read any further.
#[derive(Debug, Error)]
#[error("the stream, at offset {offset}{}: {problem}", in_command(*.command))]
pub struct StreamError {
    /// Offset of the command in the stream, in bytes; of the header, 0.
    pub offset: u64,
    /// Number of the command, once it is known.
    pub command: Option<CommandNumber>,
    /// The reason.
    pub problem: StreamProblem,
}

/// Reason to refuse a stream.
#[derive(Debug, Error)]
pub enum StreamProblem {
    /// First bytes other than those of a stream.
    #[error("it is no stream of btrfs send: it begins with \"{}\"", found.escape_ascii())]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// Its version is not understood.
    #[error("version {found} of the format is not supported, only 1 to {VERSION_MAX}")]
    Version {
        /// The version.
        found: u32,
    },
    /// End of the source in the midst.
    #[error("it is cut off: {found} of {expected} bytes are there")]
    Truncated {
        /// Number of bytes that are there.
        found: u64,
        /// Number of bytes that had to be there.
        expected: u64,
    },
    /// A command is longer than any that is accepted.
    #[error("a command of {found} bytes, where {COMMAND_BYTES_MAX} are the most")]
    TooLong {
        /// Its length in bytes.
        found: u32,
    },
    /// The checksum is wrong.
    #[error("the checksum is {found:#010x}, and its bytes have {computed:#010x}: the stream is damaged")]
    Checksum {
        /// The checksum of the command.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The command is none of this version.
    #[error("version {version} of the format has no such command")]
    Unknown {
        /// The stream's version.
        version: u32,
    },
    /// An attribute reaches beyond its command.
    #[error("the attribute {attribute}, of {length} bytes, reaches beyond the command")]
    Overrun {
        /// Its name.
        attribute: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// An attribute is missing.
    #[error("the attribute {attribute} is missing")]
    Missing {
        /// Its name.
        attribute: &'static str,
    },
    /// An attribute has another length than its type.
    #[error("the attribute {attribute} has {found} bytes, not {expected}")]
    Length {
        /// Its name.
        attribute: &'static str,
        /// Its length in bytes.
        found: usize,
        /// The length of its type, in bytes.
        expected: usize,
    },
    /// A number is beyond its range.
    #[error("the attribute {attribute} is {found:#x}, beyond its range")]
    Range {
        /// Its name.
        attribute: &'static str,
        /// The number.
        found: u64,
    },
    /// A value is too long for version 1, in which an attribute has 65535 bytes at most.
    #[error("the attribute {attribute}, of {length} bytes, is too long for the format")]
    NoRoom {
        /// Its name.
        attribute: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// Failure of the source or the target.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn in_command(command: Option<CommandNumber>) -> String {
    command.map(|command| format!(", {command}")).unwrap_or_default()
}
