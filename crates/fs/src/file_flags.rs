//! The flags of `chattr`.

use bitflags::bitflags;
use brindle_ondisk::item::InodeFlags;

bitflags! {
    /// Flags of an inode as `chattr` and `FS_IOC_GETFLAGS` know them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FileFlags: u32 {
        /// `chattr +c`: compressed.
        const COMPRESS = 0x4;
        /// `chattr +S`: written at once.
        const SYNC = 0x8;
        /// `chattr +i`: not to be changed.
        const IMMUTABLE = 0x10;
        /// `chattr +a`: only to be added to.
        const APPEND = 0x20;
        /// `chattr +d`: not to be dumped.
        const NODUMP = 0x40;
        /// `chattr +A`: no time of last access.
        const NOATIME = 0x80;
        /// `chattr +m`: not to be compressed.
        const NOCOMPRESS = 0x400;
        /// `chattr +D`: directory written at once.
        const DIRSYNC = 0x1_0000;
        /// fs-verity is on; can't be changed.
        const VERITY = 0x10_0000;
        /// `chattr +C`: overwritten in place.
        const NOCOW = 0x80_0000;
    }
}

/// Flags that `chattr` and the pool have for the same.
pub(crate) const SAME: [(FileFlags, InodeFlags); 9] = [
    (FileFlags::SYNC, InodeFlags::SYNC),
    (FileFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
    (FileFlags::APPEND, InodeFlags::APPEND),
    (FileFlags::NODUMP, InodeFlags::NODUMP),
    (FileFlags::NOATIME, InodeFlags::NOATIME),
    (FileFlags::DIRSYNC, InodeFlags::DIRSYNC),
    (FileFlags::COMPRESS, InodeFlags::COMPRESS),
    (FileFlags::NOCOMPRESS, InodeFlags::NOCOMPRESS),
    (FileFlags::NOCOW, InodeFlags::NODATACOW),
];

impl FileFlags {
    /// The flags that an inode has.
    pub(crate) fn of(flags: InodeFlags) -> Self {
        let mut shown = Self::empty();
        for (file, inode) in SAME {
            shown.set(file, flags.contains(inode));
        }
        shown.set(Self::VERITY, flags.contains(InodeFlags::RO_VERITY));
        shown
    }
}
