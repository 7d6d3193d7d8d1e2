//! Messages about defragmentations: of metadata and of the contents of files by a mount of ours, and of contents by the kernel.

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

/// A part of the contents of the open file to be defragmented; what became of it, and where the next one begins (ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ContentsPart {
    /// Offset in the file, in bytes; [`CONTENTS_END`] in the answer after the last part.
    pub offset: u64,
    /// Length of a run on the devices, in bytes, from which on it is left alone; 0 for the server's choice.
    pub run_bytes: u64,
    /// [`CONTENTS_UNSHARE`], [`CONTENTS_COMPRESS`].
    pub flags: u32,
    /// Number of the wanted compression in the format.
    pub compression: u16,
    /// Its level; 0 for the default.
    pub level: i16,
    /// Number of extents looked at.
    pub extents: u64,
    /// Number of these that were written anew.
    pub moved: u64,
    /// Bytes of the file that these had.
    pub moved_bytes: u64,
    /// Extents that stay because something else shares them.
    pub shared: u64,
}

/// Extents that something else shares are written anew, too.
pub const CONTENTS_UNSHARE: u32 = 1 << 0;
/// All contents are to have the named compression.
pub const CONTENTS_COMPRESS: u32 = 1 << 1;
/// Offset after the last part.
pub const CONTENTS_END: u64 = u64::MAX;

/// Range of the open file that the kernel is to defragment (`btrfs_ioctl_defrag_range_args`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelDefragment {
    /// Offset, in bytes.
    pub start: u64,
    /// Length, in bytes; `u64::MAX` up to the end.
    pub length: u64,
    /// [`KERNEL_COMPRESS`].
    pub flags: u64,
    /// Extents of this length, in bytes, and longer ones are left alone.
    pub extent_threshold: u32,
    /// Number of the wanted compression in the format.
    pub compression: u32,
    /// Zeros.
    pub unused: [u32; 4],
}

/// `BTRFS_DEFRAG_RANGE_COMPRESS`.
pub const KERNEL_COMPRESS: u64 = 1 << 0;
