//! Structures of the protocol (kernel header `linux/fuse.h`), in the byte order of the host. Each is padded to eight bytes by
//! fields of its own; [`sizes`](tests::sizes_are_those_of_the_protocol) are checked.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol that this crate speaks at most.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
/// The least minor version: that of Linux 5.4, since which structures only grow at their ends.
pub(crate) const MINOR_MIN: u32 = 31;

/// Operation codes (`enum fuse_opcode`).
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Commands of rings (`enum fuse_uring_cmd`).
pub(crate) mod ring_command {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Codes of notifications (`enum fuse_notify_code`).
pub(crate) mod notification {
    pub(crate) const INVALIDATE_INODE: i32 = 2;
    pub(crate) const INVALIDATE_ENTRY: i32 = 3;
}

/// Declares structures that are read and written as they lie in memory, with their sizes.
macro_rules! structures {
    ($($(#[$note:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$note])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $kind,)*
            }
        )*

        #[cfg(test)]
        const SIZES: &[(&str, usize, usize)] = &[$((stringify!($name), size_of::<$name>(), $size)),*];
    };
}

structures! {
    /// Head of a request.
    InHeader: 40 {
        length: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32, extension_words: u16,
        padding: u16,
    }
    /// Head of an answer, or of a notification.
    OutHeader: 16 { length: u32, error: i32, unique: u64 }
    /// The part of a handshake that every kernel sends.
    InitIn: 16 { major: u32, minor: u32, readahead_bytes_max: u32, flags: u32 }
    InitOut: 64 {
        major: u32, minor: u32, readahead_bytes_max: u32, flags: u32, background_max: u16,
        congestion_threshold: u16, write_bytes_max: u32, time_granularity: u32, pages_max: u16,
        map_alignment: u16, more_flags: u32, stack_depth_max: u32, request_timeout: u16, padding: u16,
        unused: [u32; 5],
    }
    /// Headers of a ring's entry (`fuse_uring_req_header`): those of the request, or of its answer; the part that belongs to
    /// the operation; and what is said of the rest.
    RingHead: 288 {
        in_out: [u64; 16], operation: [u64; 16], flags: u64, commit: u64, payload_bytes: u32, padding: u32,
        reserved: u64,
    }
    /// Command of a submission (`fuse_uring_cmd_req`).
    RingCommand: 24 { flags: u64, commit: u64, queue: u16, padding: [u8; 6] }
    ForgetIn: 8 { lookups: u64 }
    InterruptIn: 8 { unique: u64 }
    BatchForgetIn: 8 { count: u32, padding: u32 }
    ForgetOne: 16 { node: u64, lookups: u64 }
    GetAttrIn: 16 { flags: u32, padding: u32, handle: u64 }
    SetAttrIn: 88 {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, accessed: i64, modified: i64,
        changed: i64, accessed_nanoseconds: u32, modified_nanoseconds: u32, changed_nanoseconds: u32, mode: u32,
        unused: u32, uid: u32, gid: u32, unused_too: u32,
    }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn: 8 { mode: u32, umask: u32 }
    RenameIn: 8 { new_parent: u64 }
    Rename2In: 16 { new_parent: u64, flags: u32, padding: u32 }
    LinkIn: 8 { node: u64 }
    OpenIn: 8 { flags: u32, open_flags: u32 }
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn: 24 { handle: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    ReadIn: 40 {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn: 40 {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    FsyncIn: 16 { handle: u64, flags: u32, padding: u32 }
    SetXattrIn: 8 { size: u32, flags: u32 }
    /// Follows the other, if that was agreed on.
    SetXattrMore: 8 { more_flags: u32, padding: u32 }
    GetXattrIn: 8 { size: u32, padding: u32 }
    AccessIn: 8 { mask: u32, padding: u32 }
    IoctlIn: 32 { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32 }
    FallocateIn: 32 { handle: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn: 24 { handle: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn: 56 {
        source_handle: u64, source_offset: u64, target: u64, target_handle: u64, target_offset: u64,
        length: u64, flags: u64,
    }
    AttrOut: 16 { seconds: u64, nanoseconds: u32, padding: u32 }
    Attr: 88 {
        ino: u64, size: u64, blocks: u64, accessed: i64, modified: i64, changed: i64, accessed_nanoseconds: u32,
        modified_nanoseconds: u32, changed_nanoseconds: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, block_bytes: u32, flags: u32,
    }
    /// Followed by an [`Attr`].
    EntryOut: 40 {
        node: u64, generation: u64, name_seconds: u64, attributes_seconds: u64, name_nanoseconds: u32,
        attributes_nanoseconds: u32,
    }
    StatxTime: 16 { seconds: i64, nanoseconds: u32, padding: u32 }
    StatxOut: 288 {
        seconds: u64, nanoseconds: u32, flags: u32, unused: [u64; 2],
        mask: u32, block_bytes: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, padding: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, accessed: StatxTime, born: StatxTime,
        changed: StatxTime, modified: StatxTime, rdev_major: u32, rdev_minor: u32, device_major: u32,
        device_minor: u32, unused_too: [u64; 14],
    }
    OpenOut: 16 { handle: u64, flags: u32, padding: u32 }
    WriteOut: 8 { size: u32, padding: u32 }
    CopyOut: 8 { bytes: u64 }
    StatfsOut: 80 {
        blocks: u64, free: u64, available: u64, files: u64, free_files: u64, block_bytes: u32, name_max: u32,
        fragment_bytes: u32, padding: u32, unused: [u32; 6],
    }
    SizeOut: 8 { size: u32, padding: u32 }
    IoctlOut: 16 { result: i32, flags: u32, in_vectors: u32, out_vectors: u32 }
    LseekOut: 8 { offset: u64 }
    /// Followed by the name, and zeros up to a multiple of eight bytes.
    Dirent: 24 { ino: u64, offset: u64, name_length: u32, kind: u32 }
    InvalidateInodeOut: 24 { node: u64, offset: i64, length: i64 }
    /// Followed by the name and a zero.
    InvalidateEntryOut: 16 { parent: u64, name_length: u32, flags: u32 }
}

/// Bits of [`SetAttrIn::valid`] (`FATTR_*`).
pub(crate) mod valid {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ACCESSED: u32 = 1 << 4;
    pub(crate) const MODIFIED: u32 = 1 << 5;
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ACCESSED_NOW: u32 = 1 << 7;
    pub(crate) const MODIFIED_NOW: u32 = 1 << 8;
    pub(crate) const CHANGED: u32 = 1 << 10;
}

/// Bit of the flags of GETATTR and STATX that says that a handle is given.
pub(crate) const HAS_HANDLE: u32 = 1 << 0;
/// Bit of the further flags of SETXATTR that takes the set-group-id bit away.
pub(crate) const ACL_KILL_SGID: u32 = 1 << 0;
/// Bit of the flags of FSYNC for fdatasync(2).
pub(crate) const DATA_ONLY: u32 = 1 << 0;

#[cfg(test)]
mod tests {
    use super::SIZES;

    #[test]
    fn sizes_are_those_of_the_protocol() {
        for (name, size, expected) in SIZES {
            assert_eq!(size, expected, "{name}");
        }
    }
}
