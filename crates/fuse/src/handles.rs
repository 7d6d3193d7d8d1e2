//! Files that the kernel has open on a mount that is written. Each keeps its inode from disappearing when the last
//! name goes.

use brindle_fs::{InodeId, OpenFile, RootId};
use brindle_ondisk::IdMap;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Each shard of the table has a lock of its own.
const SHARDS: usize = 16;

/// An open file.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) file: OpenFile,
    /// True if it was opened to be written: the kernel may have pages that have not come to us yet.
    writes: bool,
    /// Each write is to be durable before it is answered.
    is_synchronous: bool,
    /// True if reads and writes go past the kernel's page cache.
    is_past_cache: bool,
    /// True if it was opened to append.
    only_appends: bool,
    /// True once the time of access has been handled.
    is_accessed: AtomicBool,
}

/// The purpose for which a file was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    /// Open to be written.
    pub(crate) writes: bool,
    /// Each write is to be durable before it is answered.
    pub(crate) is_synchronous: bool,
    /// Reads and writes go past the kernel's page cache.
    pub(crate) is_past_cache: bool,
    /// Open to append.
    pub(crate) only_appends: bool,
}

impl From<OFlags> for Opened {
    fn from(flags: OFlags) -> Self {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let is_past_cache = flags.contains(OFlags::DIRECT);
        let only_appends = flags.contains(OFlags::APPEND);
        Self { writes, is_synchronous: is_synchronous(flags), is_past_cache, only_appends }
    }
}

/// Returns true if each write by such a descriptor is to be durable before it is answered.
pub(crate) fn is_synchronous(flags: OFlags) -> bool {
    // A bit of O_SYNC. (`OFlags::DSYNC` is all of them.)
    const O_DSYNC: u32 = 0o10000;
    flags.bits() & O_DSYNC != 0
}

impl Handle {
    pub(crate) fn new(file: OpenFile, how: Opened) -> Self {
        let Opened { writes, is_synchronous, is_past_cache, only_appends } = how;
        if !is_past_cache {
            file.inode().count_cached_opening(true);
        }
        let is_accessed = AtomicBool::new(false);
        Self { file, writes, is_synchronous, is_past_cache, only_appends, is_accessed }
    }

    /// Returns true if it was opened to be written.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Returns true if it was opened to append.
    pub(crate) fn only_appends(&self) -> bool {
        self.only_appends
    }

    /// Returns true if each write is to be durable before it is answered.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.is_synchronous
    }

    /// Returns true if reads and writes go past the kernel's page cache.
    pub(crate) fn is_past_cache(&self) -> bool {
        self.is_past_cache
    }

    /// Returns true if a write by this handle goes past the kernel's page cache, which another opening may be filling.
    pub(crate) fn writes_behind_cache(&self) -> bool {
        self.is_past_cache && self.file.inode().is_cached_by_host()
    }

    /// Takes note that the kernel has closed it.
    pub(crate) fn end(&self) {
        if !self.is_past_cache {
            self.file.inode().count_cached_opening(false);
        }
    }

    /// Returns true if this is the first access by this handle.
    pub(crate) fn is_first_access(&self) -> bool {
        !self.is_accessed.load(Ordering::Relaxed) && !self.is_accessed.swap(true, Ordering::Relaxed)
    }
}

/// The handles that write a file.
#[derive(Clone, Copy, Debug, Default)]
struct Writers {
    all: u32,
    /// Handles that were not opened to append.
    overwriters: u32,
}

/// Open files, by the number that the kernel was given for each.
#[derive(Debug)]
pub(crate) struct Handles {
    last: AtomicU64,
    shards: [Mutex<IdMap<u64, Arc<Handle>>>; SHARDS],
    /// The files that are open to be written.
    written: Mutex<BTreeMap<InodeId, Writers>>,
}

impl Default for Handles {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { last: AtomicU64::new(0), shards, written: Mutex::default() }
    }
}

impl Handles {
    /// Gives an open file a number, which is never 0.
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if handle.writes {
            let mut written = self.writers();
            let writers = written.entry(handle.file.id()).or_default();
            writers.all += 1;
            writers.overwriters += u32::from(!handle.only_appends);
        }
        self.shard(number).insert(number, Arc::new(handle));
        number
    }

    /// The open file of a number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.shard(number).get(&number).cloned()
    }

    /// Takes the number back.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        let handle = self.shard(number).remove(&number)?;
        if handle.writes {
            let mut written = self.writers();
            let id = handle.file.id();
            let writers = written.get_mut(&id).expect("a writer is counted as long as it has a number");
            writers.all -= 1;
            writers.overwriters -= u32::from(!handle.only_appends);
            if writers.all == 0 {
                written.remove(&id);
            }
        }
        Some(handle)
    }

    /// Returns true if anything is open to be written.
    pub(crate) fn has_writers(&self) -> bool {
        !self.writers().is_empty()
    }

    /// Returns true if an inode is open to be written.
    pub(crate) fn has_writer(&self, inode: InodeId) -> bool {
        self.writers().contains_key(&inode)
    }

    /// Returns true if an inode is open to be written, and not only to append.
    pub(crate) fn has_overwriter(&self, inode: InodeId) -> bool {
        self.writers().get(&inode).is_some_and(|writers| writers.overwriters > 0)
    }

    /// The inodes that are open to be written, each once; of one subvolume, if one is named.
    pub(crate) fn written(&self, only: Option<RootId>) -> Vec<InodeId> {
        self.writers().keys().copied().filter(|id| only.is_none_or(|tree| id.tree == tree)).collect()
    }

    fn writers(&self) -> MutexGuard<'_, BTreeMap<InodeId, Writers>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, IdMap<u64, Arc<Handle>>> {
        let index = brindle_ondisk::to_usize(number) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
