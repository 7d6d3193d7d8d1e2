//! Agreement with the kernel when a mount begins.
//!
//! What the kernel caches it may keep: every change comes through the mount, so the kernel sees it, and what is
//! changed behind its back (by ioctls) it is told of. A mount that is only read goes further: files and directories
//! are opened without asking us. One that is written can't: the kernel knows neither of read-only subvolumes nor of
//! immutable files, and an opening of such a file to write it is to be refused then, not when the dirty pages are
//! written back; and a directory that is open has a listing with a bound, and outlives its name.

use brindle_transport::{Agreement, Features, RingUse, Wishes};

/// The largest request, in bytes; the kernel's own limit (`fs.fuse.max_pages_limit`) is the same by default.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Upper bound on the kernel's background requests: readahead and writeback.
const BACKGROUND_MAX: u16 = 64;

/// Features of every mount.
const ALWAYS: Features = Features::ASYNC_READ
    .union(Features::ASYNC_DIO)
    .union(Features::MAX_PAGES)
    .union(Features::DO_READDIRPLUS)
    .union(Features::READDIRPLUS_AUTO)
    .union(Features::PARALLEL_DIROPS)
    .union(Features::CACHE_SYMLINKS)
    .union(Features::POSIX_ACL)
    .union(Features::EXPLICIT_INVAL_DATA)
    .union(Features::EXPORT_SUPPORT)
    .union(Features::SETXATTR_EXT)
    .union(Features::INIT_EXT);

/// Further features of a mount that is written. Set-user-id bits are cleared by us (`HANDLE_KILLPRIV_V2`), for
/// otherwise the kernel would ask for `security.capability` before each write. The umask is applied by us, for a
/// default ACL counts instead of it (`DONT_MASK`).
const WRITABLE: Features = Features::BIG_WRITES
    .union(Features::WRITEBACK_CACHE)
    .union(Features::ATOMIC_O_TRUNC)
    .union(Features::HANDLE_KILLPRIV_V2)
    .union(Features::DONT_MASK)
    .union(Features::DIRECT_IO_ALLOW_MMAP);

/// Further features of a mount that is only read.
const READ_ONLY: Features = Features::NO_OPEN_SUPPORT.union(Features::NO_OPENDIR_SUPPORT);

/// Openings that the kernel does without us, once told that it may.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpensAlone {
    pub(crate) files: bool,
    pub(crate) directories: bool,
}

/// Features and limits of a mount. Owners are mapped where the kernel checks permissions: it knows the map, and we don't.
pub(crate) fn wishes(is_writable: bool, checks_permissions: bool, rings: RingUse) -> Wishes {
    let idmap = if checks_permissions { Features::ALLOW_IDMAP } else { Features::empty() };
    let features = ALWAYS | idmap | if is_writable { WRITABLE } else { READ_ONLY };
    Wishes { features, request_bytes: REQUEST_BYTES_MAX, background: BACKGROUND_MAX, rings }
}

impl OpensAlone {
    pub(crate) fn of(agreement: &Agreement) -> Self {
        Self {
            files: agreement.features.contains(Features::NO_OPEN_SUPPORT),
            directories: agreement.features.contains(Features::NO_OPENDIR_SUPPORT),
        }
    }
}
