//! Commands of btrfs send streams, versions 1 and 2: bytes to values and back.
//!
//! A stream is a header, then commands. A command is its length, number and checksum, and a list of attributes, each a number
//! and a value. All integers are little-endian.
//!
//! The walk of a stream that is received: [`StreamReader::new`] reads the header; [`StreamReader::next`] reads one command into its buffer
//! (`reader.rs`), verifies the checksum, finds the attributes (`attributes.rs`), and makes a [`Command`] of those that its
//! number asks for (`decode.rs`). Values are borrowed from the buffer. One that is sent goes the other way: [`StreamWriter::write`]
//! (`writer.rs`).
//!
//! The bytes are those of an untrusted peer. All that the format forbids is a [`StreamError`], which names the offset in the stream and
//! the command. Memory is bounded by [`COMMAND_BYTES_MAX`]. The meaning of a path, an offset or a mode is the business of the caller.
//!
//! The checksum is CRC32C with a first value of 0, without the usual inversions. In version 2, data is the last attribute of its command,
//! has no length of its own, and reaches to the end.
//! Must not know: pools, files, where a stream comes from.

mod attributes;
mod command;
mod decode;
mod error;
mod number;
mod reader;
mod show;
mod writer;

pub use brindle_ondisk::Uuid;
pub use command::{Command, EncodedWrite, Origin, Placed, StreamTime};
pub use error::{StreamError, StreamProblem};
pub use number::CommandNumber;
pub use reader::StreamReader;
pub use writer::StreamWriter;

/// First bytes of a stream, in front of the version.
pub(crate) const MAGIC: [u8; 13] = *b"btrfs-stream\0";
/// Length of the header: the magic and the version, in bytes.
pub(crate) const HEADER_BYTES: u64 = 17;
/// Length of a command in front of its attributes, in bytes.
pub(crate) const COMMAND_HEADER_BYTES: usize = 10;
/// Longest list of attributes that is accepted, in bytes. The longest that the kernel sends has 144 KiB.
pub const COMMAND_BYTES_MAX: u32 = 16 << 20;
/// Newest version of the format that is understood.
pub const VERSION_MAX: u32 = 2;

#[cfg(test)]
mod tests;
