//! Options of writing a pool.

use brindle_ondisk::item::Timespec;
use brindle_policy::log::LogProfile;
use brindle_policy::placement::{PlacementClass, PlacementMode};
use brindle_policy::writeback::WriteBackMode;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The memory that cached nodes may take unless told otherwise, in bytes.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// Options of opening a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Options of the volume.
    pub volume: brindle_volume::OpenOptions,
    /// The memory that cached nodes may take, in bytes.
    pub cache_bytes: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { volume: brindle_volume::OpenOptions::default(), cache_bytes: DEFAULT_CACHE_BYTES }
    }
}

/// Discard of freed space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscardMode {
    /// Never.
    #[default]
    None,
    /// Background discard, some time after the commit: by `Pool::discard_step`.
    Async,
}

/// Source of the mode of write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackWish {
    /// This one, whatever the pool has stored.
    Told(WriteBackMode),
    /// The stored one, or this.
    Stored(WriteBackMode),
}

impl Default for WriteBackWish {
    fn default() -> Self {
        Self::Stored(WriteBackMode::Off)
    }
}

/// Facts that are counted anew when a pool is opened to be repaired, instead of being believed. The first commit writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// Used bytes of block groups and free ranges, by the extent tree. A free space tree is made anew.
    pub space: bool,
    /// Used bytes of devices, by their device extents; a device that ends before its size ends there. Totals of the superblock.
    pub devices: bool,
}

/// The time that new things get.
pub type Clock = Arc<dyn Fn() -> Timespec + Send + Sync>;

/// Options of writing a pool.
#[derive(Clone)]
pub struct WriterOptions {
    /// Discard mode of freed space.
    pub discard: DiscardMode,
    /// Placement of new chunks.
    pub placement: PlacementMode,
    /// The class that a device is to have, by its name, whatever the pool or the host says of it.
    pub classes: BTreeMap<String, PlacementClass>,
    /// Source of the mode of write-back.
    pub write_back: WriteBackWish,
    /// Profile of the log, whatever the pool has stored.
    pub log_profile: Option<LogProfile>,
    /// Longer extents that are not compressed become several when they are moved, in bytes: a multiple of the sector size. No
    /// limit, but where it is to be seen what comes of that.
    pub moved_extent_bytes_max: u64,
    /// Items that an fsync logs are read and copied with the log's entries locked, and not before: only to measure the worth of that.
    pub log_prepare_locked: bool,
    /// The caller replays the log, and drops what a relocation of the kernel's left, before anything else. Without this a
    /// pool with either is refused.
    pub recovers: bool,
    /// True if nothing written lasts: a replacement that was interrupted is no reason to refuse, for it is left as it
    /// is, and so is a relocation.
    pub is_transient: bool,
    /// The caller ends a replacement that the kernel was interrupted in, before anything else. Without this a pool with one is refused.
    pub cancels_replacement: bool,
    /// Facts that are counted anew.
    pub recount: Recount,
    /// The clock.
    pub clock: Clock,
    /// Random number for the first series of commits: another one for each mount of a pool.
    pub series: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            discard: DiscardMode::default(),
            placement: PlacementMode::default(),
            classes: BTreeMap::new(),
            write_back: WriteBackWish::default(),
            log_profile: None,
            moved_extent_bytes_max: u64::MAX,
            log_prepare_locked: false,
            recovers: false,
            is_transient: false,
            cancels_replacement: false,
            recount: Recount::default(),
            clock: Arc::new(system_time),
            series: system_time().nsec.get().into(),
        }
    }
}

impl fmt::Debug for WriterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterOptions")
            .field("discard", &self.discard)
            .field("placement", &self.placement)
            .field("classes", &self.classes)
            .field("write_back", &self.write_back)
            .field("log_profile", &self.log_profile)
            .field("moved_extent_bytes_max", &self.moved_extent_bytes_max)
            .field("log_prepare_locked", &self.log_prepare_locked)
            .field("recovers", &self.recovers)
            .field("is_transient", &self.is_transient)
            .field("cancels_replacement", &self.cancels_replacement)
            .field("recount", &self.recount)
            .finish_non_exhaustive()
    }
}

fn system_time() -> Timespec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut time = Timespec::default();
    time.sec.set(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    time.nsec.set(since.subsec_nanos());
    time
}
