//! Inodes and their names.

use super::{prefix, split};
use crate::{Defect, Generation, ObjectId};
use bitflags::bitflags;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A time (`btrfs_timespec`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Timespec {
    /// Seconds since 1970.
    pub sec: I64,
    /// Nanoseconds on top of them.
    pub nsec: U32,
}

/// An inode (`btrfs_inode_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeItem {
    /// The transaction that created the inode.
    pub generation: Generation,
    /// The transaction that last changed it.
    pub transid: Generation,
    /// Size in bytes; of a directory, twice the length of its names.
    pub size: U64,
    /// Bytes on disk.
    pub nbytes: U64,
    /// Hint for allocation; unused.
    pub block_group: U64,
    /// Number of names; 1 for directories.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Type and permissions, as in `st_mode`.
    pub mode: U32,
    /// Device number of a device node.
    pub rdev: U64,
    /// [`InodeFlags`]; the upper half has read-only flags (`ro_flags`).
    pub flags: U64,
    /// Change counter, for NFS.
    pub sequence: U64,
    /// Unused.
    pub reserved: [U64; 4],
    /// Last access.
    pub atime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Last change of the contents.
    pub mtime: Timespec,
    /// Creation.
    pub otime: Timespec,
}
const _: () = assert!(size_of::<InodeItem>() == 160 && std::mem::offset_of!(InodeItem, atime) == 112);

bitflags! {
    /// Flags of an inode (`BTRFS_INODE_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InodeFlags: u64 {
        /// No checksums.
        const NODATASUM = 1 << 0;
        /// Overwritten in place.
        const NODATACOW = 1 << 1;
        /// Opened read-only.
        const READONLY = 1 << 2;
        /// Not to be compressed.
        const NOCOMPRESS = 1 << 3;
        /// Has preallocated extents.
        const PREALLOC = 1 << 4;
        /// `chattr +S`
        const SYNC = 1 << 5;
        /// `chattr +i`
        const IMMUTABLE = 1 << 6;
        /// `chattr +a`
        const APPEND = 1 << 7;
        /// `chattr +d`
        const NODUMP = 1 << 8;
        /// `chattr +A`
        const NOATIME = 1 << 9;
        /// `chattr +D`
        const DIRSYNC = 1 << 10;
        /// `chattr +c`
        const COMPRESS = 1 << 11;
        /// The inode inside a root item has been brought up to date.
        const ROOT_ITEM_INIT = 1 << 31;
        /// fs-verity is on (first of the `ro_flags`).
        const RO_VERITY = 1 << 32;
    }
}

impl InodeItem {
    /// The flags, unknown ones kept.
    pub fn inode_flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }

    /// The type bits of the mode (`S_IFMT`).
    pub fn file_type_bits(&self) -> u32 {
        self.mode.get() & 0o170_000
    }

    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type_bits() == 0o040_000
    }

    /// Returns true for a regular file.
    pub fn is_regular(&self) -> bool {
        self.file_type_bits() == 0o100_000
    }

    /// Returns true for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type_bits() == 0o120_000
    }
}

/// One name of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeName<'a> {
    /// The directory. Of an `INODE_REF` the key's offset says it; here it is 0.
    pub parent: ObjectId,
    /// Index in the directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

/// The fixed part of a name of an inode in the directory that the key's offset says (`btrfs_inode_ref`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeRefHeader {
    /// Index in the directory.
    pub index: U64,
    /// Length of the name, in bytes.
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeRefHeader>() == 10);

/// The fixed part of a name of an inode in any directory (`btrfs_inode_extref`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeExtrefHeader {
    /// The directory.
    pub parent_objectid: ObjectId,
    /// Index in the directory.
    pub index: U64,
    /// Length of the name, in bytes.
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeExtrefHeader>() == 18);

/// The names of an inode in one directory (`btrfs_inode_ref`, packed one after the other).
#[derive(Clone, Copy, Debug)]
pub struct InodeRefs<'a>(&'a [u8]);

impl<'a> InodeRefs<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }
}

impl<'a> Iterator for InodeRefs<'a> {
    type Item = Result<InodeName<'a>, Defect>;

    fn next(&mut self) -> Option<Self::Item> {
        next_packed(&mut self.0, |data| {
            let (header, rest) = prefix::<InodeRefHeader>(data, "inode ref is cut off")?;
            let (name, rest) = split(rest, header.name_len.get().into(), "inode ref name is cut off")?;
            Ok((InodeName { parent: ObjectId::new(0), index: header.index.get(), name }, rest))
        })
    }
}

/// The names of an inode with one hash (`btrfs_inode_extref`, packed one after the other).
#[derive(Clone, Copy, Debug)]
pub struct InodeExtrefs<'a>(&'a [u8]);

impl<'a> InodeExtrefs<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }
}

impl<'a> Iterator for InodeExtrefs<'a> {
    type Item = Result<InodeName<'a>, Defect>;

    fn next(&mut self) -> Option<Self::Item> {
        next_packed(&mut self.0, |data| {
            let (header, rest) = prefix::<InodeExtrefHeader>(data, "inode extref is cut off")?;
            let (name, rest) = split(rest, header.name_len.get().into(), "inode extref name is cut off")?;
            Ok((InodeName { parent: header.parent_objectid, index: header.index.get(), name }, rest))
        })
    }
}

/// Steps through packed structures; after a defect there is nothing more.
pub(super) fn next_packed<'a, T>(
    data: &mut &'a [u8],
    parse: impl FnOnce(&'a [u8]) -> Result<(T, &'a [u8]), Defect>,
) -> Option<Result<T, Defect>> {
    if data.is_empty() {
        return None;
    }
    let parsed = parse(data);
    *data = parsed.as_ref().map_or(&[], |(_, rest)| *rest);
    Some(parsed.map(|(value, _)| value))
}
