//! The write-back tier of a mount of ours.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Stands for a setting that stays as it is.
pub const WRITE_BACK_KEEP: u64 = u64::MAX;

/// Settings that are to be stored in the pool (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteBackRequest {
    /// Number of the mode as on disk; 0 for none stored, [`WRITE_BACK_KEEP`].
    pub mode: u64,
    /// Number of the profile as on disk; 0 for that of other data, [`WRITE_BACK_KEEP`].
    pub profile: u64,
}

/// State of the write-back tier (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteBackReport {
    /// Number of the mode, as on disk.
    pub mode: u64,
    /// Number of the stored mode; 0 for none.
    pub stored_mode: u64,
    /// Number of the profile of new chunks, as on disk.
    pub profile: u64,
    /// Number of the stored profile; 0 for none.
    pub stored_profile: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Bytes that could wait, those that do included.
    pub capacity_bytes: u64,
    /// Time since which the oldest have waited, in seconds since 1970; 0 if none do.
    pub since: u64,
    /// Bytes that were destaged since it was mounted.
    pub destaged_bytes: u64,
    /// Time that this took, in nanoseconds.
    pub destaging_ns: u64,
    /// Reason for which no data goes there, with a zero at the end; empty if there is none.
    pub obstacle: [u8; 512],
}
