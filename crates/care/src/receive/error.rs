//! Reasons for which a stream is not received.

use brindle_fs::{DecompressError, FsError};
use brindle_ondisk::Uuid;
use brindle_stream::{CommandNumber, Origin, StreamError};
use thiserror::Error;

/// A stream that was not received to its end.
#[derive(Debug, Error)]
#[error("{failure}{}", left(.incomplete.as_deref()))]
pub struct ReceiveError {
    /// The reason.
    pub failure: ReceiveFailure,
    /// Name of the subvolume that was being received, and stays: writable, and not marked as received.
    pub incomplete: Option<Vec<u8>>,
}

/// Reason to end.
#[derive(Debug, Error)]
pub enum ReceiveFailure {
    /// The stream is none, or is damaged.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream has no end command.
    #[error("the stream ends at offset {0} without the command that ends it: it is cut off")]
    NoEnd(u64),
    /// Commands failed, as many as were allowed.
    #[error(transparent)]
    Command(#[from] Box<CommandError>),
    /// Commands failed, fewer than were allowed.
    #[error("{0} commands failed")]
    Failures(u64),
    /// The observer ended it.
    #[error("receiving was cancelled")]
    Cancelled,
}

/// A command that could not be carried out.
#[derive(Debug, Error)]
#[error("the stream, at offset {offset}, {command}{}: {problem}", of_path(.path))]
pub struct CommandError {
    /// Offset of the command in the stream, in bytes.
    pub offset: u64,
    /// The command.
    pub command: CommandNumber,
    /// The path that it is for.
    pub path: Vec<u8>,
    /// The reason.
    pub problem: ReceiveProblem,
}

/// Reason for which a command is not carried out.
#[derive(Debug, Error)]
pub enum ReceiveProblem {
    /// The filesystem refuses it, or fails.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// The system refuses it, or fails.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A path that would leave the subvolume, or is none.
    #[error("the path {} {why}", String::from_utf8_lossy(.path))]
    Path {
        /// The path.
        path: Vec<u8>,
        /// The reason.
        why: &'static str,
    },
    /// No subvolume was begun.
    #[error("it comes before any subvolume")]
    NoSubvolume,
    /// No subvolume has the UUID.
    #[error("the pool has no subvolume that was received as {}: send that one first", .0.uuid)]
    NoSource(Origin),
    /// The subvolumes of the UUID are not what the sender knows.
    #[error(
        "the subvolume {} of this pool is as of transaction {found}, and the stream builds on transaction {}", .wanted.uuid, .wanted.transid
    )]
    OtherState {
        /// The subvolume that is wanted.
        wanted: Origin,
        /// The transaction that it has.
        found: u64,
    },
    /// The subvolume of the UUID can be written, and may have changed.
    #[error("the subvolume {0} of this pool is writable, so it need not be what was sent")]
    Writable(Uuid),
    /// The path leads to something other than a regular file.
    #[error("it is no regular file")]
    NotAFile,
    /// A number that no file can have.
    #[error("the {what} is {found:#x}, beyond its range")]
    Range {
        /// The attribute.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// The source of a clone is shorter than the clone.
    #[error("only {found} of {expected} bytes are in the source")]
    ShortSource {
        /// Number of bytes that are there.
        found: u64,
        /// Number of bytes that are to be cloned.
        expected: u64,
    },
    /// Contents that this version can't decode.
    #[error("contents of {what} {found} are not supported")]
    Encoding {
        /// The property.
        what: &'static str,
        /// Its number.
        found: u32,
    },
    /// Contents that don't decode.
    #[error("compressed contents: {0}")]
    Decompress(#[from] DecompressError),
    /// Lengths that contradict each other.
    #[error("encoded contents: {0}")]
    Lengths(&'static str),
    /// The stream only tells which contents have changed.
    #[error("the stream was sent without data (--no-data), and can't be received")]
    NoData,
    /// An operation of fallocate(2) that is not known.
    #[error("the mode {0:#x} of fallocate is not supported")]
    AllocateMode(u32),
}

fn of_path(path: &[u8]) -> String {
    if path.is_empty() { String::new() } else { format!(" {}", String::from_utf8_lossy(path)) }
}

fn left(name: Option<&[u8]>) -> String {
    let Some(name) = name else { return String::new() };
    let name = String::from_utf8_lossy(name);
    format!("; the subvolume {name} is incomplete: it stays, writable, until you delete it")
}
