//! Messages to a mount about a scrub, and its answers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of devices that a request can name.
pub const SCRUB_DEVICES_MAX: usize = 64;

/// A scrub to begin or go on with (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScrubStart {
    /// [`SCRUB_READ_ONLY`], [`SCRUB_RESUME`], [`SCRUB_LEAVE_SLEEPING`].
    pub flags: u64,
    /// No more bytes of each device in a second; 0 for as many as can be.
    pub limit: u64,
    /// Number of devices that are named; 0 for all.
    pub count: u64,
    /// Ids of the devices.
    pub devices: [u64; SCRUB_DEVICES_MAX],
}

/// Nothing is written: errors are only looked for.
pub const SCRUB_READ_ONLY: u64 = 1 << 0;
/// The last one, which was cancelled or interrupted, goes on.
pub const SCRUB_RESUME: u64 = 1 << 1;
/// Devices that are asleep at its begin are left for later.
pub const SCRUB_LEAVE_SLEEPING: u64 = 1 << 2;

/// A limit of a scrub that runs (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScrubLimit {
    /// Id of the device; 0 for all.
    pub devid: u64,
    /// No more bytes in a second; 0 for as many as can be.
    pub bytes: u64,
}

/// A page of the record of the last scrub, as text (ours). A page from the beginning is of the present record, the others
/// are of the same.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScrubPage {
    /// First byte.
    pub offset: u64,
    /// Length of the whole text; 0 if there was no scrub.
    pub length: u64,
    /// 1 while it runs.
    pub is_running: u64,
    /// The text, from the first byte on.
    pub text: [u8; SCRUB_TEXT_BYTES],
}

/// Bytes of text in a page.
pub const SCRUB_TEXT_BYTES: usize = 8192 - 24;

/// A scrub of one device by the kernel (`btrfs_ioctl_scrub_args`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelScrub {
    /// Id of the device.
    pub devid: u64,
    /// First byte of the device.
    pub start: u64,
    /// Byte behind the last.
    pub end: u64,
    /// [`KERNEL_SCRUB_READ_ONLY`].
    pub flags: u64,
    /// Progress, and findings.
    pub progress: KernelScrubProgress,
    /// Nothing.
    pub reserved: [u8; 872],
}
const _: () = assert!(size_of::<KernelScrub>() == 1024);

/// Errors are only looked for (`BTRFS_SCRUB_READONLY`).
pub const KERNEL_SCRUB_READ_ONLY: u64 = 1;

/// Findings of a scrub by the kernel (`btrfs_scrub_progress`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelScrubProgress {
    /// Extents of data.
    pub data_extents: u64,
    /// Extents of tree blocks.
    pub tree_extents: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of tree blocks.
    pub tree_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Sectors that don't match their checksums.
    pub csum_errors: u64,
    /// Tree blocks that are not what they should be.
    pub verify_errors: u64,
    /// Sectors without a checksum.
    pub no_csum: u64,
    /// Checksums without an extent.
    pub csum_discards: u64,
    /// Copies of the superblock that are wrong.
    pub super_errors: u64,
    /// Failures for want of memory.
    pub malloc_errors: u64,
    /// Errors that could not be corrected.
    pub uncorrectable_errors: u64,
    /// Errors that were corrected.
    pub corrected_errors: u64,
    /// Address on the device up to which it was scrubbed.
    pub last_physical: u64,
    /// Errors that were gone at the second look.
    pub unverified_errors: u64,
}
