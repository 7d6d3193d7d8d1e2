//! Errors of making and ending mounts.

use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;

/// Error of making or ending a mount.
#[derive(Debug, Error)]
pub enum MountError {
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
    /// `fusermount3` was started, and can't be spoken to.
    #[error("fusermount3: {0}")]
    HelperFailed(std::io::Error),
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
    /// The kernel refused a mount on a block device.
    #[error("{path}: mount on a block device: {source}")]
    BlockDevice {
        /// The block device.
        path: PathBuf,
        /// Cause.
        source: Errno,
    },
    /// The kernel refused the mount.
    #[error("{path}: mount: {source}")]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Cause.
        source: Errno,
    },
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
