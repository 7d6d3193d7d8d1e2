//! Directory entries and extended attributes, which share a structure.

use super::inode::next_packed;
use super::{prefix, split};
use crate::{Defect, Generation, Key};
use std::fmt;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of a directory entry or xattr (`btrfs_dir_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirEntryHeader {
    /// Key of the target: an inode item or, for a subvolume, a root item.
    pub location: Key,
    /// The transaction that made the entry.
    pub transid: Generation,
    /// Length of an xattr's value, in bytes.
    pub data_len: U16,
    /// Length of the name, in bytes.
    pub name_len: U16,
    /// A [`FileType`]; the top bit says that the name is encrypted.
    pub file_type: u8,
}
const _: () = assert!(size_of::<DirEntryHeader>() == 30);

/// One directory entry or xattr.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The fixed part.
    pub header: &'a DirEntryHeader,
    /// The name.
    pub name: &'a [u8],
    /// The value of an xattr.
    pub value: &'a [u8],
}

/// Type of an entry's target (`BTRFS_FT_*`), so that a listing need not read the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Regular file.
    Regular = 1,
    /// Directory, or a subvolume.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// Named pipe.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
    /// Extended attribute.
    Xattr = 8,
}

impl FileType {
    const ALL: [Self; 8] = [
        Self::Regular,
        Self::Directory,
        Self::CharDevice,
        Self::BlockDevice,
        Self::Fifo,
        Self::Socket,
        Self::Symlink,
        Self::Xattr,
    ];

    /// The type of a number on disk.
    pub fn from_disk(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The type that a mode says, if any.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o120_000 => Self::Symlink,
            _ => return None,
        })
    }
}

/// The form of `dump-tree`.
impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "FILE",
            Self::Directory => "DIR",
            Self::CharDevice => "CHRDEV",
            Self::BlockDevice => "BLKDEV",
            Self::Fifo => "FIFO",
            Self::Socket => "SOCK",
            Self::Symlink => "SYMLINK",
            Self::Xattr => "XATTR",
        })
    }
}

impl DirEntry<'_> {
    /// Type of the entry's target.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_disk(self.header.file_type & 0x7f)
    }
}

/// The entries of one item: several when their names have the same hash.
#[derive(Clone, Copy, Debug)]
pub struct DirEntries<'a>(&'a [u8]);

impl<'a> DirEntries<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }
}

impl<'a> Iterator for DirEntries<'a> {
    type Item = Result<DirEntry<'a>, Defect>;

    fn next(&mut self) -> Option<Self::Item> {
        next_packed(&mut self.0, |data| {
            let (header, rest) = prefix::<DirEntryHeader>(data, "directory entry is cut off")?;
            let (name, rest) = split(rest, header.name_len.get().into(), "name is cut off")?;
            let (value, rest) = split(rest, header.data_len.get().into(), "value is cut off")?;
            Ok((DirEntry { header, name, value }, rest))
        })
    }
}

/// A range in which a log is complete (`btrfs_dir_log_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirLogItem {
    /// The last index (or hash) of the range.
    pub end: U64,
}
