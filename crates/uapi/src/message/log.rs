//! The log of a mount of ours.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Profile of the log (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LogReport {
    /// Number of copies that are enough, which the mount goes by; 0 for as many as of other metadata.
    pub copies: u64,
    /// The same, as stored in the pool.
    pub stored_copies: u64,
}
