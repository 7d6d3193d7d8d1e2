//! Errors of changing the devices of a pool.

use brindle_device::DeviceError;
use brindle_fs::FsError;
use brindle_ondisk::{DevId, Generation, Profile};
use brindle_tree::TreeError;
use brindle_volume::ReplaceError;
use thiserror::Error;

/// Error of changing the devices of a pool. Data moved before it stays moved.
#[derive(Debug, Error)]
pub enum DeviceCareError {
    /// There is no such device.
    #[error("the pool has no device with the id {devid}")]
    NotThere {
        /// The id.
        devid: DevId,
    },
    /// No device is missing.
    #[error("no device of the pool is missing")]
    NoneMissing,
    /// The device is missing, and has no size that could be changed.
    #[error("devid {devid} is missing")]
    Missing {
        /// Its id.
        devid: DevId,
    },
    /// A seed is not changed.
    #[error("{device} belongs to a seed, which is not changed")]
    Seed {
        /// Its name.
        device: String,
    },
    /// Too few devices would be left for a profile that is in use.
    #[error(
        "{profile} needs at least {needed} devices, and {left} would be left: add one first, or balance to another profile"
    )]
    TooFew {
        /// The profile.
        profile: Profile,
        /// Number that it needs.
        needed: u16,
        /// Number that would be left.
        left: usize,
    },
    /// The device is the last one.
    #[error("it is the only writable device")]
    Last,
    /// A balance was begun and not ended.
    #[error("a balance was interrupted or is paused: resume or cancel it first")]
    BalanceUnderWay,
    /// Something lies on the device.
    #[error("{device} holds {found}; use -f to overwrite it")]
    InUse {
        /// The device.
        device: String,
        /// Format found there.
        found: &'static str,
    },
    /// A device is too small to be of any use.
    #[error("{device} has {size_bytes} bytes, a device of a pool has at least {minimum_bytes}")]
    TooSmall {
        /// The device.
        device: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// The least size in bytes.
        minimum_bytes: u64,
    },
    /// A device is smaller than the one that it is to replace.
    #[error(
        "{device} has {size_bytes} bytes, and devid {devid} is used up to {minimum_bytes}: make that smaller first"
    )]
    TargetTooSmall {
        /// The device.
        device: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// The device that it is to replace.
        devid: DevId,
        /// Size of that in the pool, in bytes.
        minimum_bytes: u64,
    },
    /// A device does not belong to the pool, or is there.
    #[error("{device} is none of the pool's missing devices")]
    NotAway {
        /// The device.
        device: String,
    },
    /// A device has been written by itself while it was away.
    #[error(
        "{device} has been written by itself up to generation {generation}, and the pool is of generation {expected}: mount it \
         alone, with -o degraded=named, and copy out what only it has; device replace -f gives that up, and takes it in"
    )]
    Apart {
        /// The device.
        device: String,
        /// Generation of its superblock.
        generation: Generation,
        /// Generation of the pool.
        expected: Generation,
    },
    /// A device has a log that the pool does not hold.
    #[error(
        "{device} names a log, of files that were fsynced after generation {generation}, which {other} does not hold (any more): it may \
         have what the pool lacks; mount it alone, with -o degraded=named, and look; device replace -f gives that up, and takes it in"
    )]
    OwnLog {
        /// The device.
        device: String,
        /// Generation of its superblock.
        generation: Generation,
        /// A device of the pool.
        other: String,
    },
    /// A device would rejoin a pool in which another one has its place.
    #[error(
        "{device} was devid {devid} until another device took its place, in generation {since}: name that one, which rejoins if it was \
         away; device replace -f takes {device} in as a new one"
    )]
    Replaced {
        /// The device.
        device: String,
        /// Its former id in the pool.
        devid: DevId,
        /// Generation of the replacement.
        since: Generation,
    },
    /// Contents that have no checksums can be read nowhere: on another device, nothing would tell that they are lost.
    #[error(
        "{sectors} sectors without checksums can be read nowhere, the first of them: {first}; restore or delete what they \
         belong to, and start again: what is copied is kept"
    )]
    LostUnverified {
        /// Number of the sectors.
        sectors: u64,
        /// The first.
        first: String,
    },
    /// A device is to be made smaller than devices are made.
    #[error("{} are less than the {} that a device is shrunk to", amount(*.wanted_bytes), amount(*.minimum_bytes))]
    SizeTooSmall {
        /// Requested size in bytes.
        wanted_bytes: u64,
        /// The least size in bytes.
        minimum_bytes: u64,
    },
    /// A device is to be made smaller by more than the pool has of it.
    #[error("{device} cannot have {} less: the pool has {} of it", amount(*.less_bytes), amount(*.total_bytes))]
    ShrunkToNothing {
        /// The device.
        device: String,
        /// Bytes of it that the pool uses.
        total_bytes: u64,
        /// Requested decrease in bytes.
        less_bytes: u64,
    },
    /// A device is shorter than the pool is to use of it.
    #[error("{device} has only {}, and {} are wanted", amount(*.size_bytes), amount(*.wanted_bytes))]
    BeyondEnd {
        /// The device.
        device: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// Requested size in bytes.
        wanted_bytes: u64,
    },
    /// The rest of the pool has no room for the data that has to move.
    #[error(
        "no space left on the other devices for the data that has to move ({0}); data already moved stays moved"
    )]
    NoSpace(String),
    /// The pool has no room for the metadata of the change.
    #[error("the pool is full, and has no room to record the change ({0}): delete snapshots or files first")]
    Full(String),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A replacement could not go on.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// Files could not be written.
    #[error(transparent)]
    Files(#[from] FsError),
    /// The pool could not be read or written.
    #[error(transparent)]
    Tree(TreeError),
}

impl From<TreeError> for DeviceCareError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::NoSpace(why) => Self::Full(why),
            error => Self::Tree(error),
        }
    }
}

/// An amount in the unit in which it is a whole number.
fn amount(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes % MIB == 0 { format!("{} MiB", bytes / MIB) } else { format!("{bytes} bytes") }
}
