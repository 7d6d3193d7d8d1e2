//! Reasons for which a pool was not asked or changed.

use crate::control::ControlError;
use crate::tier::TierError;
use brindle_care::balance::BalanceError;
use brindle_care::device::DeviceCareError;
use brindle_care::scrub::{RecordError, ScrubError};
use brindle_device::DeviceError;
use brindle_fs::FsError;
use brindle_ondisk::{DevId, Logical};
use brindle_policy::class::ClassesProblem;
use brindle_tree::TreeError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Error of the administration of a pool.
#[derive(Debug, Error)]
pub enum AdminError {
    /// A directory among devices.
    #[error("give either one directory of a mounted pool, or the devices of one that is not mounted")]
    Mixed,
    /// The mount did not do what it was asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Fences could not be put up or taken down.
    #[error(transparent)]
    Tier(TierError),
    /// The balance failed.
    #[error(transparent)]
    Balance(#[from] BalanceError),
    /// The change of devices failed.
    #[error(transparent)]
    Change(#[from] DeviceCareError),
    /// The scrub failed.
    #[error(transparent)]
    Scrub(#[from] ScrubError),
    /// Another scrub runs.
    #[error("a scrub is running; `brindle scrub status` shows it, and `brindle scrub cancel` ends it")]
    ScrubRuns,
    /// More devices than a request can name.
    #[error("no more than {0} devices can be named; without any, all are scrubbed")]
    TooManyDevices(usize),
    /// The record of a scrub could not be read.
    #[error(transparent)]
    ScrubRecord(#[from] RecordError),
    /// A device could not be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The pool could not be read or written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The filesystem could not be read or written.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// The kernel's balance lacks something.
    #[error("mounted by the kernel, which balances by itself: {0}")]
    KernelBalance(&'static str),
    /// The kernel takes no device back.
    #[error(
        "{0}: mounted by the kernel, which takes no device back; unmount it and give its devices by --pool, or mount it \
         with brindle"
    )]
    KernelRejoins(PathBuf),
    /// A replacement runs.
    #[error(
        "a replacement of a device is under way; `brindle device replace status` shows it, and `brindle device replace \
         cancel` ends it"
    )]
    ReplacementRuns,
    /// The kernel keeps no classes of devices.
    #[error("the kernel keeps no classes: leave the word behind the colon away, and see `brindle property`")]
    KernelClasses,
    /// Classes of devices that the pool stores can't be understood, or can't be as they are asked for.
    #[error("device classes of the pool: {0}")]
    Classes(#[from] ClassesProblem),
    /// The pool has no such device.
    #[error("the pool has no device of id {0}")]
    NoDevice(u64),
    /// A device has joined, and the name of its class was not stored.
    #[error(
        "devid {devid} is in the pool, but not of class {name}; `brindle tier class set --device` makes it that"
    )]
    ClassNotStored {
        /// The device.
        devid: u64,
        /// Name of the class.
        name: String,
        /// The reason.
        source: Box<AdminError>,
    },
    /// An extent lies in no chunk.
    #[error("logical {0}: in no chunk of the pool")]
    NoChunk(Logical),
    /// A device has no superblock.
    #[error("{0}: no btrfs: it has no superblock")]
    NoPool(PathBuf),
    /// A path is not there.
    #[error("{path}")]
    Path {
        /// The path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A path has no room in the message.
    #[error("the path is too long")]
    LongPath,
    /// Another change of devices runs.
    #[error("another operation is under way on this pool, a {0}: wait for its end, or end it")]
    UnderWay(&'static str),
    /// Failure of the job in the process that serves the mount, in its words.
    #[error("{0}")]
    Failed(String),
    /// The process that served the mount has ended.
    #[error(
        "{0}: the process that served the mount is gone; the pool is whole, and may be as it was: `brindle umount` it, mount \
         it again, and give the same command"
    )]
    ServerGone(PathBuf),
    /// The mount has stopped answering about a job.
    #[error("it may go on")]
    Silent(#[source] ControlError),
    /// A resize was stopped.
    #[error("stopped before device {0} had its size")]
    Stopped(DevId),
}
