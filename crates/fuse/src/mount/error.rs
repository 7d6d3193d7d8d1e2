//! Why a mount could not be made, served or ended.

use brindle_fs::FsError;
use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;

/// Why a mount could not be made, served or ended.
#[derive(Debug, Error)]
pub enum MountError {
    /// There is nothing at the mount point.
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
        /// Why.
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
    /// Whoever is not root needs the help of `fusermount3`.
    #[error("only root can mount without fusermount3, and that cannot be started ({0}); install fuse3")]
    NoHelper(std::io::Error),
    /// What is to unmount when this process dies.
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
        /// What the kernel or `fusermount3` said.
        why: String,
    },
    /// `fusermount3` failed for another reason.
    #[error("{path}: fusermount3: {message}")]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What it said.
        message: String,
    },
    /// The kernel refused the mount.
    #[error("{path}: mount: {source}")]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Why.
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
    /// What was written could not be made durable.
    #[error("what was written last is lost: {0}")]
    Lost(Box<FsError>),
    /// Somebody uses the mount.
    #[error("{0}: busy: somebody has a file open there, or stands in a directory of it")]
    Busy(PathBuf),
    /// The kernel refused to unmount.
    #[error("{path}: unmount: {source}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
}
