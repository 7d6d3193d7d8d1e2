//! Messages to a mount of ours about a defragmentation of metadata, and its answers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A piece of metadata to be defragmented; what became of it, and where the next one begins (ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DefragmentPiece {
    /// [`DEFRAGMENT_POOL`].
    pub flags: u64,
    /// The tree in which it begins; 0 for the beginning, and in the answer if there is nothing left.
    pub tree: u64,
    /// The key from which on, its objectid first.
    pub objectid: u64,
    /// Its type.
    pub item_type: u64,
    /// Its offset.
    pub offset: u64,
    /// Number of leaves looked at.
    pub leaves: u64,
    /// Number of these that were written anew.
    pub moved: u64,
}

/// All trees of the pool, and not the subvolume of the open file alone.
pub const DEFRAGMENT_POOL: u64 = 1 << 0;
