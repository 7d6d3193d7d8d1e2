//! How far a mount of ours is with what takes long.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How far long work is, and how the last one ended.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WorkReport {
    /// How the last one ended: [`WORK_ENDED_DONE`] and the following, 0 if none has.
    pub ended: u64,
    /// How many block groups are to be emptied.
    pub expected: u64,
    /// How many have been.
    pub done: u64,
    /// How many had no room elsewhere.
    pub left: u64,
    /// How many bytes are used in all that are to be emptied.
    pub expected_bytes: u64,
    /// How many bytes have been moved.
    pub moved_bytes: u64,
    /// Why it failed, with a zero at the end.
    pub error: [u8; 512],
}

/// The last one came to its end.
pub const WORK_ENDED_DONE: u64 = 1;
/// The last one was paused.
pub const WORK_ENDED_PAUSED: u64 = 2;
/// The last one was cancelled.
pub const WORK_ENDED_CANCELLED: u64 = 3;
/// The last one failed.
pub const WORK_ENDED_FAILED: u64 = 4;
