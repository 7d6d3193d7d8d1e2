//! Messages to a mount of ours about a change of its devices, and its answers.

use super::work::WorkReport;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// State of a device: it is not there.
pub const DEVICE_MISSING: u64 = 1;
/// State of a device: it has missed transactions, and is not written.
pub const DEVICE_STALE: u64 = 2;
/// State of a device: it lacks something that it failed to take.
pub const DEVICE_BEHIND: u64 = 4;

/// A change of devices to begin (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceStart {
    /// [`DEVICE_ADD`] and the following.
    pub change: u64,
    /// The device that leaves, is replaced or gets another size; 0 for the first that is missing.
    pub devid: u64,
    /// Meaning of the new size: [`SIZE_MAX`] and the following.
    pub size_kind: u64,
    /// Its bytes.
    pub size_bytes: u64,
    /// Of a device that joins: [`DEVICE_FORCE`] and the following.
    pub flags: u64,
    /// Path of a device that joins: absolute, with a zero at the end.
    pub path: [u8; 4096],
}

/// A device joins.
pub const DEVICE_ADD: u64 = 1;
/// A device leaves.
pub const DEVICE_REMOVE: u64 = 2;
/// A device gets another size.
pub const DEVICE_RESIZE: u64 = 3;
/// A device takes the place of another.
pub const DEVICE_REPLACE: u64 = 4;
/// A device that was away comes back.
pub const DEVICE_REJOIN: u64 = 5;

/// All of the device.
pub const SIZE_MAX: u64 = 0;
/// A size in bytes.
pub const SIZE_TO: u64 = 1;
/// Bytes to grow by.
pub const SIZE_GROW: u64 = 2;
/// Bytes to shrink by.
pub const SIZE_SHRINK: u64 = 3;

/// Also if something lies on it.
pub const DEVICE_FORCE: u64 = 1 << 0;
/// Its space is given back first.
pub const DEVICE_DISCARD: u64 = 1 << 1;
/// Marks the device as fast.
pub const DEVICE_FAST: u64 = 1 << 2;
/// Marks the device as bulk.
pub const DEVICE_BULK: u64 = 1 << 3;
/// The device that is replaced is read only where no other copy can be read.
pub const DEVICE_AVOID: u64 = 1 << 4;

/// Progress of a change of devices (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceReport {
    /// 1 if a change is under way, else 0.
    pub is_running: u64,
    /// Kind of the change, or of the last one: [`DEVICE_ADD`] and the following.
    pub change: u64,
    /// Id of the device, as soon as it is known.
    pub devid: u64,
    /// Its progress.
    pub work: WorkReport,
}
