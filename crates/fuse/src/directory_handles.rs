//! Directories that the kernel has open on a mount that is written. Each keeps its inode from disappearing when the name
//! goes.
//!
//! **Bound.** A listing shows the entries that were there when it began, at offset 0, or when this handle was first asked
//! for entries: an entry that is renamed gets a new index behind all others, and a program that renames each entry it is
//! given would be given it again without an end. A listing that begins anew takes a new bound.
//!
//! **The kernel's cache of listings.** All handles of a directory that were opened with `FOPEN_CACHE_DIR` fill one cache
//! together, each from the place where another one stopped. Listings with different bounds must not be mixed so: the
//! shorter one would end the cache too early, and names would be missing from all listings until the directory changes. So
//! one handle of a directory at a time has that flag. The kernel marks what it fills with the directory's version before
//! it asks for offset 0, so that the bound taken then covers all that this version has.

use brindle_fs::InodeHold;
use brindle_ondisk::IdMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bound of a listing that has not begun. An index is 2 at the least.
const NOT_BEGUN: u64 = 0;

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    pub(crate) inode: InodeHold,
    /// The kernel keeps what this handle lists, for other listings.
    fills_cache: bool,
    /// The greatest index that is listed.
    bound: AtomicU64,
}

impl DirectoryHandle {
    /// An opening of the directory.
    pub(crate) fn new(inode: InodeHold) -> Self {
        let fills_cache = inode.begin_only_cached_opening();
        Self { inode, fills_cache, bound: AtomicU64::new(NOT_BEGUN) }
    }

    /// Returns true if the kernel is to keep what this handle lists.
    pub(crate) fn fills_cache(&self) -> bool {
        self.fills_cache
    }

    /// The greatest index that a listing from `offset` on shows. `last_index` looks up the directory's last one.
    pub(crate) fn bound<E>(
        &self,
        offset: u64,
        last_index: impl FnOnce() -> Result<u64, E>,
    ) -> Result<u64, E> {
        let taken = self.bound.load(Ordering::Acquire);
        if offset > 0 && taken != NOT_BEGUN {
            return Ok(taken);
        }
        let bound = last_index()?;
        self.bound.store(bound, Ordering::Release);
        Ok(bound)
    }

    /// Takes note that the kernel has closed it.
    pub(crate) fn end(&self) {
        if self.fills_cache {
            self.inode.count_cached_opening(false);
        }
    }
}

/// Open directories, by the number that the kernel was given for each.
#[derive(Debug, Default)]
pub(crate) struct DirectoryHandles {
    last: AtomicU64,
    table: Mutex<IdMap<u64, Arc<DirectoryHandle>>>,
}

impl DirectoryHandles {
    /// Gives an open directory a number, which is never 0.
    pub(crate) fn add(&self, handle: DirectoryHandle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.table().insert(number, Arc::new(handle));
        number
    }

    /// The open directory of a number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<DirectoryHandle>> {
        self.table().get(&number).cloned()
    }

    /// Takes the number back.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<DirectoryHandle>> {
        self.table().remove(&number)
    }

    fn table(&self) -> MutexGuard<'_, IdMap<u64, Arc<DirectoryHandle>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
