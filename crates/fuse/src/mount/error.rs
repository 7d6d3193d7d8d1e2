//! Errors of making, serving or ending a mount.

use brindle_fs::FsError;
use std::path::PathBuf;
use thiserror::Error;

/// Error of making, serving or ending a mount.
#[derive(Debug, Error)]
pub enum MountError {
    /// The kernel or a helper refused.
    #[error(transparent)]
    Kernel(#[from] brindle_transport::MountError),
    /// The mount point does not exist.
    #[error("{0}: no such directory to mount on")]
    NoMountpoint(PathBuf),
    /// Only directories are mounted on.
    #[error("{0}: not a directory")]
    NotADirectory(PathBuf),
    /// A server died and left its mount behind.
    #[error("{0}: a mount whose server is gone is in the way; remove it with fusermount3 -u")]
    DeadMount(PathBuf),
    /// The mount point cannot be looked at.
    #[error("{path}: {source}")]
    Mountpoint {
        /// The mount point.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The filesystem was opened to be read only.
    #[error("the filesystem was opened to be read, and can't be mounted to be written")]
    NotWritable,
    /// The kernel and we could not agree on a protocol.
    #[error("FUSE: {0}")]
    Session(std::io::Error),
    /// A thread that serves the mount failed.
    #[error("serving the mount: {0}")]
    Serve(std::io::Error),
    /// The last writes could not be made durable.
    #[error("the last writes are lost: {0}")]
    Lost(Box<FsError>),
}
