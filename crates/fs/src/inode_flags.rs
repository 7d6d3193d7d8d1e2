//! The flags of `chattr`.

use crate::{Filesystem, FsError, InodeId};
use bitflags::bitflags;

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

impl Filesystem {
    /// The flags of an inode (`FS_IOC_GETFLAGS`).
    pub fn flags(&self, id: InodeId) -> Result<FileFlags, FsError> {
        let _ = id;
        todo!()
    }

    /// Sets the flags of an inode (`FS_IOC_SETFLAGS`).
    pub fn set_flags(&self, id: InodeId, flags: FileFlags) -> Result<(), FsError> {
        let _ = (id, flags);
        todo!()
    }
}
