//! Agreement with the kernel when a mount begins.
//!
//! What the kernel caches it may keep: every change comes through the mount, so the kernel sees it, and what is
//! changed behind its back (by ioctls) it is told of. A mount that is only read goes further: files and directories
//! are opened without asking us. One that is written can't: the kernel knows neither of read-only subvolumes nor of
//! immutable files, and an opening of such a file to write it is to be refused then, not when the dirty pages are
//! written back; and a directory that is open has a listing with a bound, and outlives its name.

use fuser::{InitFlags, KernelConfig};

/// The largest request, in bytes; the kernel's own limit (`fs.fuse.max_pages_limit`) is the same by default.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Upper bound on the kernel's background requests: readahead and writeback.
const BACKGROUND_MAX: u16 = 64;

/// Flags that we ask the kernel for, if it has them.
const ALWAYS: [InitFlags; 8] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

/// Further flags for a mount that is written. Set-user-id bits are cleared by us (`HANDLE_KILLPRIV_V2`), for
/// otherwise the kernel would ask for `security.capability` before each write. The umask is applied by us, for a
/// default ACL counts instead of it (`DONT_MASK`).
const WRITABLE: [InitFlags; 6] = [
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

/// Agreement with the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreement {
    /// Directories are opened without asking us, once told that they may.
    pub(crate) opens_directories_alone: bool,
    /// Files are opened without asking us, once told that they may.
    pub(crate) opens_alone: bool,
}

/// Asks the kernel for all that we want and it can do.
pub(crate) fn negotiate(config: &mut KernelConfig, is_writable: bool) -> Agreement {
    let more: &[InitFlags] = if is_writable { &WRITABLE } else { &[] };
    for capability in ALWAYS.iter().chain(more) {
        // What it does not know it does without.
        config.add_capabilities(*capability).ok();
    }
    // Each takes the nearest possible value when refused.
    if let Err(nearest) = config.set_max_write(REQUEST_BYTES_MAX) {
        config.set_max_write(nearest).ok();
    }
    config.set_max_background(BACKGROUND_MAX).ok();
    let offers = config.capabilities();
    Agreement {
        opens_alone: !is_writable && offers.contains(InitFlags::FUSE_NO_OPEN_SUPPORT),
        opens_directories_alone: !is_writable && offers.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT),
    }
}
