//! Errors of making, serving or ending a mount.

use brindle_fs::FsError;
use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;

/// Error of making, serving or ending a mount.
#[derive(Debug, Error)]
pub enum MountError {
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
    /// The kernel has no FUSE, or `/dev/fuse` is not there.
    #[error(
        "/dev/fuse: not there; load the kernel's FUSE driver (modprobe fuse), or let the container have it"
    )]
    NoFuse,
    /// `/dev/fuse` cannot be opened.
    #[error("/dev/fuse: {0}")]
    Device(Errno),
    /// Users other than root need the help of `fusermount3`.
    #[error("only root can mount without fusermount3, and that cannot be started ({0}); install fuse3")]
    NoHelper(std::io::Error),
    /// The process that is to unmount when this one dies could not be started.
    #[error("auto_unmount: /bin/sh: {0}")]
    NoGuard(std::io::Error),
    /// An ordinary user asked for `allow_other`.
    #[error("allow_other: an ordinary user may do that only if /etc/fuse.conf says user_allow_other")]
    AllowOtherForbidden,
    /// The user may not mount there.
    #[error("{path}: not permitted to mount there: {why}")]
    NotPermitted {
        /// The mount point.
        path: PathBuf,
        /// Message of the kernel or `fusermount3`.
        why: String,
    },
    /// `fusermount3` failed for another reason.
    #[error("{path}: fusermount3: {message}")]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// Its message.
        message: String,
    },
    /// The kernel refused the mount.
    #[error("{path}: mount: {source}")]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Cause.
        source: Errno,
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
    /// The mount is in use.
    #[error("{0}: busy: a process has a file open there, or its working directory")]
    Busy(PathBuf),
    /// The kernel refused to unmount.
    #[error("{path}: unmount: {source}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Cause.
        source: Errno,
    },
}
