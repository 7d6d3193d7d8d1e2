//! Classes of the devices of a mount of ours.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Upper bound on the item that the pool stores, in bytes.
pub const CLASSES_BYTES: usize = 3584;

/// Classes that are to be stored in the pool (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ClassesRequest {
    /// Length of the item, in bytes; 0 for no classes.
    pub length: u64,
    /// The item, as on disk, and any bytes behind it.
    pub item: [u8; CLASSES_BYTES],
}
