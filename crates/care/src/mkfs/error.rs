//! Errors of mkfs.

use brindle_device::DeviceError;
use brindle_ondisk::Profile;
use brindle_policy::class::ClassesProblem;
use brindle_policy::placement::NoSpace;
use thiserror::Error;

/// Error of mkfs. Except for [`MkfsError::Device`], nothing has been written.
#[derive(Debug, Error)]
pub enum MkfsError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no device to make it of.
    #[error("no device is given")]
    NoDevices,
    /// The same device twice.
    #[error("{device} is given twice")]
    Duplicate {
        /// Its name.
        device: String,
    },
    /// A profile needs more devices.
    #[error("profile {profile} for {content} needs at least {needed} devices, and {given} given")]
    Profile {
        /// For what.
        content: &'static str,
        /// The profile.
        profile: Profile,
        /// Number that it needs.
        needed: u16,
        /// Number given, with the verb.
        given: String,
    },
    /// Mixed block groups have one profile.
    #[error(
        "data and metadata share block groups, so their profiles must be the same: data is {data}, metadata {metadata}"
    )]
    MixedProfiles {
        /// Profile of data.
        data: Profile,
        /// Profile of metadata.
        metadata: Profile,
    },
    /// Mixed block groups need tree blocks as large as sectors.
    #[error("data and metadata share block groups, so nodesize must be the sector size, 4096, and not {0}")]
    MixedNodeSize(u32),
    /// A size of tree blocks that there is not.
    #[error("nodesize {0} is not one of 4096, 8192, 16384, 32768, 65536")]
    NodeSize(u32),
    /// A label that does not fit or can't be shown.
    #[error("label: {0}")]
    Label(&'static str),
    /// Classes of devices that can't be.
    #[error(transparent)]
    Classes(#[from] ClassesProblem),
    /// The UUID that stands for none.
    #[error("the UUID must not be all zeros")]
    Uuid,
    /// A feature that can't be.
    #[error("feature {name}: {why}")]
    Feature {
        /// Its name.
        name: String,
        /// Reason.
        why: &'static str,
    },
    /// Something lies there already.
    #[error("{device} holds {found}; use -f to overwrite it")]
    InUse {
        /// The device.
        device: String,
        /// Format found there.
        found: &'static str,
    },
    /// A device is too small.
    #[error(
        "{device} has {} MiB, with these options each device needs at least {} MiB",
        size_bytes >> 20,
        minimum_bytes.div_ceil(1 << 20)
    )]
    TooSmall {
        /// The device.
        device: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// The least size in bytes.
        minimum_bytes: u64,
    },
    /// There is no place for a chunk.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
}
