//! Progress of long work of a mount of ours.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Progress of long work, and outcome of the last one.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WorkReport {
    /// Outcome of the last one: [`WORK_ENDED_DONE`] and the following, 0 if none has ended.
    pub ended: u64,
    /// Number of block groups to be emptied.
    pub expected: u64,
    /// Number of those that were emptied.
    pub done: u64,
    /// Number of those that had no room elsewhere.
    pub left: u64,
    /// Used bytes in all that are to be emptied.
    pub expected_bytes: u64,
    /// Bytes moved.
    pub moved_bytes: u64,
    /// Reason of its failure, with a zero at the end.
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
