//! Messages to a mount of the kernel about the replacement of a device, and its answers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request about the replacement of a device by the kernel, and its answer (`btrfs_ioctl_dev_replace_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelReplace {
    /// [`KERNEL_REPLACE_START`] and the following.
    pub command: u64,
    /// Answer: 0 for success, [`KERNEL_REPLACE_NOT_STARTED`] and the following.
    pub result: u64,
    /// A [`KernelReplaceStart`] where one is begun; for its state the answer has a [`KernelReplaceProgress`] in its first bytes.
    pub arguments: [u8; size_of::<KernelReplaceStart>()],
    /// Nothing.
    pub reserved: [u64; 64],
}
const _: () = assert!(size_of::<KernelReplace>() == 2600);

/// Begins one, and returns at its end.
pub const KERNEL_REPLACE_START: u64 = 0;
/// Asks for its state.
pub const KERNEL_REPLACE_STATUS: u64 = 1;
/// Ends it.
pub const KERNEL_REPLACE_CANCEL: u64 = 2;

/// None is under way.
pub const KERNEL_REPLACE_NOT_STARTED: u64 = 1;
/// Another one is under way.
pub const KERNEL_REPLACE_ALREADY_STARTED: u64 = 2;
/// A scrub is under way.
pub const KERNEL_REPLACE_SCRUB_RUNS: u64 = 3;

/// A replacement to begin.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelReplaceStart {
    /// Id of the device to be replaced.
    pub devid: u64,
    /// 0, or [`KERNEL_REPLACE_AVOID`].
    pub mode: u64,
    /// Its path; unused where it is named by id.
    pub source: [u8; 1025],
    /// Path of the target, with a zero at the end.
    pub target: [u8; 1025],
    /// Nothing.
    pub reserved: [u8; 6],
}

/// The device is read only where no other copy can be read.
pub const KERNEL_REPLACE_AVOID: u64 = 1;

/// State of a replacement.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelReplaceProgress {
    /// 0 never started, 1 started, 2 finished, 3 canceled, 4 suspended.
    pub state: u64,
    /// Part of the device that is copied, in thousandths.
    pub permille: u64,
    /// Begin, in seconds since 1970.
    pub started: u64,
    /// End, in seconds since 1970.
    pub stopped: u64,
    /// Writes that the target has failed to take.
    pub write_errors: u64,
    /// Reads that no copy could serve.
    pub lost_reads: u64,
}
