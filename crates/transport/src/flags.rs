//! Bits of the protocol that servers choose or look at.

use bitflags::bitflags;

bitflags! {
    /// Features that kernel and server agree on (`FUSE_*` of the handshake). The upper half is sent in a word of its own.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Several reads of a file at once.
        const ASYNC_READ = 1 << 0;
        /// `O_TRUNC` comes with the opening.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// Handles of files outlive the kernel's cache of inodes.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// Listings with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// Such listings where they are useful only.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct reads and writes of one file at once.
        const ASYNC_DIO = 1 << 15;
        /// The kernel gathers what programs write.
        const WRITEBACK_CACHE = 1 << 16;
        /// Files are opened by the kernel alone, once an opening was answered with ENOSYS.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Names of one directory are looked up and listed in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// Access control lists are checked by the kernel.
        const POSIX_ACL = 1 << 20;
        /// Requests of more than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// Directories are opened by the kernel alone, once an opening was answered with ENOSYS.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached contents are dropped on demand only.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server clears set-user-id bits.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// The kernel tells whether a new access list takes the set-group-id bit away.
        const SETXATTR_EXT = 1 << 29;
        /// The upper half of these bits is sent.
        const INIT_EXT = 1 << 30;
        /// Files that are opened past the cache can be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Mounts may map owners (`MOUNT_ATTR_IDMAP`). Refused by the kernel where it does not check permissions. Callers are
        /// [told](crate::Caller::UNTOLD) where something is made only.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come by rings, as soon as there is one for each processor.
        const OVER_IO_URING = 1 << 41;
    }

    /// Treatment of an opened file (`FOPEN_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenAnswers: u32 {
        /// Reads and writes go past the kernel's cache.
        const DIRECT_IO = 1 << 0;
        /// Cached contents are still right.
        const KEEP_CACHE = 1 << 1;
        /// A listing may be cached.
        const CACHE_DIR = 1 << 3;
        /// No request at close(2).
        const NOFLUSH = 1 << 5;
        /// Direct writes of one file at once.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// Origin of a write (`FUSE_WRITE_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteKind: u32 {
        /// Written back from the kernel's cache; the caller is not the writer.
        const CACHE = 1 << 0;
        /// Set-user-id and set-group-id bits are to be cleared.
        const KILL_SUIDGID = 1 << 2;
    }
}
