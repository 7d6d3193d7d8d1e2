//! Reasons for which a subvolume is not sent.

use brindle_fs::{FsError, InodeId};
use brindle_ondisk::{ObjectId, RootId};
use brindle_stream::StreamError;
use brindle_tree::TreeError;
use thiserror::Error;

/// A subvolume that was not sent to its end. The stream has no end command, and no receiver takes it for whole.
#[derive(Debug, Error)]
pub enum SendError {
    /// The target fails, or a value is too long for the format.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Something can't be read.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// A subvolume can be written, and may change meanwhile.
    #[error(
        "subvolume {} is writable, and may change while it is sent: make a snapshot of it that is read-only (subvolume snapshot -r)",
        String::from_utf8_lossy(.0)
    )]
    Writable(Vec<u8>),
    /// There is no such subvolume.
    #[error("there is no subvolume {0}")]
    NoSubvolume(RootId),
    /// The top level has no name, and can't be sent.
    #[error(
        "the top level has no name to be sent by: make a snapshot of it that is read-only (subvolume snapshot -r)"
    )]
    TopLevel,
    /// A version of the format that is not written.
    #[error("version {0} of the format is not supported, only 1 and 2")]
    Version(u32),
    /// Compressed contents need version 2.
    #[error("compressed contents can be sent by version 2 of the format, not by version 1")]
    NotCompressed,
    /// Names of a tree contradict each other.
    #[error("corrupt names of subvolume {tree}: inode {inode} {why}")]
    Names {
        /// The subvolume.
        tree: RootId,
        /// The inode.
        inode: ObjectId,
        /// The contradiction.
        why: &'static str,
    },
    /// A file ends before its size.
    #[error("{file}, offset {offset}: its contents end here, and its size is {size}")]
    Short {
        /// The file.
        file: InodeId,
        /// Offset in bytes.
        offset: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// The observer ended it.
    #[error("sending was cancelled")]
    Cancelled,
}

impl From<TreeError> for SendError {
    fn from(error: TreeError) -> Self {
        Self::Filesystem(error.into())
    }
}
