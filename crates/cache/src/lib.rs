//! The flash cache: one device made of a fast and a slow one. A [`Cache`] is a [`WritableDevice`](brindle_device::WritableDevice)
//! with the contents of its disk, as they were last written; parts of them lie on the flash. `docs/design/cache.md` has the
//! design. Each walk is told where it is done: a read in `read.rs`, a write in `write.rs`, a flush in `commit.rs`, cleaning in
//! `clean.rs`, the start in `load.rs`, the mark on the disk in `veil.rs`, two SSDs in `mirror.rs`; a cache as a device of a pool in `attached.rs`; the format on flash is in `format.rs`.
//!
//! Promises. A call that returned is kept as by a disk: after a flush everything that was written before it survives any
//! crash of the machine and any of both devices' losses of unflushed writes. Contents older than the last ones flushed are
//! never served. Decisions of admission and replacement are those of `brindle_policy::cache`.
//! Must not know: btrfs, or any filesystem.

mod attached;
mod clean;
mod clock;
mod commit;
mod commits;
mod create;
mod device_errors;
mod engine;
mod error;
mod files;
mod flash;
mod format;
mod guard;
mod keeper;
mod latency;
mod load;
mod mirror;
mod open;
mod read;
mod report;
mod requests;
mod settings;
mod slots;
mod ssds;
mod statistics;
mod superblock;
mod table;
mod veil;
mod watch;
mod word;
mod workers;
mod write;

pub use attached::close_all;
pub use clock::{CacheClock, HostClock};
pub use create::{
    ASSOCIATIVITY, BLOCK_BYTES, CreateOptions, DestroyedCache, MEMORY_PER_SLOT, create, create_mirrored,
    destroy, planned_slots, planned_slots_mirrored,
};
pub use engine::{Cache, CacheStatus, GivenUpSsd, MirrorState};
pub use error::CacheError;
pub use files::load_files;
pub use guard::guard_disk;
pub use keeper::CacheKeeper;
pub use latency::{Histogram, Latencies};
pub use load::{CacheFacts, inspect, load, load_mirrored, load_mirrored_to_read, load_to_read};
pub use mirror::add_mirror;
pub use open::{
    look_at_device, open_device, open_device_to_write, open_pool_device, open_pool_device_to_write,
    open_pool_device_with_claim,
};
pub use settings::{Change, Mode, Settings, UnknownMode};
pub use slots::DISK_ASSOCIATIVITY;
pub use statistics::{CacheCounters, ERROR_COUNTERS};
pub use veil::{DISK_MAGIC, DiskMark, disk_mark, remove_mark};
pub use word::{CacheWord, is_no_path, path_of};
