//! Reasons for which something is not extracted: all, a file, or a property of files.

use brindle_fs::FsError;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reason for which nothing is extracted.
#[derive(Debug, Error)]
pub enum ExtractError {
    /// The source could not be read.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// The destination could not be made.
    #[error("cannot make the directory {path}")]
    Make {
        /// The destination.
        path: PathBuf,
        /// The reason.
        source: Errno,
    },
    /// The destination could not be opened.
    #[error("cannot open the directory {path}")]
    Open {
        /// The destination.
        path: PathBuf,
        /// The reason.
        source: Errno,
    },
    /// Another process extracts into the destination.
    #[error("{0}: another copy into this directory is under way; only one may go on with what is there")]
    Busy(PathBuf),
    /// A file goes into a directory, and has no name of its own.
    #[error("the path has no last name to call the file by")]
    NoName,
    /// The destination of a file ends in no name.
    #[error("{0}: cannot make a file of this name")]
    NotAName(PathBuf),
}

/// Reason for which a file, or part of it, is not extracted. The rest goes on.
#[derive(Debug, Error)]
pub enum Failure {
    /// The source could not be read.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// A name would lead elsewhere.
    #[error("not a name that a file can have")]
    NotAName,
    /// A damaged pool has a directory twice.
    #[error("the directory has two names; restored once")]
    TwoNames,
    /// A file or directory was not made, or did not get its name.
    #[error("cannot make it: {0}")]
    Make(Errno),
    /// Something of another kind has the name, in the destination.
    #[error("{found} of this name is in the way, and stays{advice}")]
    InTheWay {
        /// Kind of what is there.
        found: &'static str,
        /// The way to have it replaced, if there is one.
        advice: &'static str,
    },
    /// Chunks with contents of a file can't be read, for devices are missing. Only a survey tells so.
    #[error("{bytes} bytes lie in chunks that can't be read")]
    LostChunks {
        /// Bytes on devices.
        bytes: u64,
    },
    /// A file has its name, and may not survive a loss of power.
    #[error("cannot make it durable: {0}; it has the time of the copy, so that --resume copies it anew")]
    NotDurable(Errno),
    /// A symbolic link was not made.
    #[error("cannot make the symbolic link: {0}")]
    Symlink(Errno),
    /// A special file was not made.
    #[error("cannot make the special file: {0}")]
    Special(Errno),
    /// A further name was not given.
    #[error("cannot link it: {0}")]
    Link(Errno),
    /// The file under this first name was not extracted, so it has no further one.
    #[error("cannot link it: {0} was not restored")]
    FirstLost(String),
    /// A file did not get its size.
    #[error("cannot set its size: {0}")]
    Size(Errno),
    /// A file did not get its size, and was given up.
    #[error("cannot set its size: {0}; nothing is left of it")]
    SizeLost(Errno),
    /// A file could not be written, and was given up.
    #[error("cannot write: {0}; nothing is left of it")]
    Write(io::Error),
    /// The data of a file ends before its size.
    #[error("ends at {0}, before its size")]
    Short(u64),
    /// Sectors of a file have no right copy, and are holes.
    #[error("{bytes} bytes can't be read, first: {first}")]
    Unreadable {
        /// Bytes that are lost.
        bytes: u64,
        /// The first error.
        first: FsError,
    },
    /// An unfinished file was not removed.
    #[error("cannot remove its unfinished copy: {0}")]
    Discard(Errno),
    /// Owner, mode or times were not set.
    #[error("cannot set {what}: {error}")]
    Set {
        /// The property.
        what: &'static str,
        /// The reason.
        error: Errno,
    },
    /// Extended attributes were not set.
    #[error("cannot set {count} extended attributes, the first: {name}: {error}")]
    SetXattrs {
        /// Number of those.
        count: u64,
        /// Name of the first.
        name: String,
        /// The reason.
        error: Errno,
    },
}

/// Property that is left out of every file that has it. Each is told as often as it is met.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Note {
    /// Only root makes device nodes.
    #[error("not root: device nodes are left out")]
    DeviceNodes,
    /// Only root sets extended attributes of this kind.
    #[error("not root: extended attributes {0}.* are left out")]
    XattrsOfRoot(String),
    /// The destination takes no extended attributes of this kind.
    #[error("the destination takes no extended attributes such as {name}: {kind}.* is left out there")]
    NoXattrs {
        /// Name of the attribute.
        name: String,
        /// Its first part.
        kind: String,
    },
}
