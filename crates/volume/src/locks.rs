//! Locks of writers.

use brindle_ondisk::Logical;
use brindle_sync::{Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Address of a row: its chunk and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    pub(crate) chunk: Logical,
    pub(crate) row: u64,
}

/// Number of locks that rows share.
const ROW_LOCKS: usize = 64;

/// Locks of a volume. They guard what is on the devices, so there is nothing that a panic could leave broken.
#[derive(Debug)]
pub(crate) struct Locks {
    /// One for each row, some rows sharing one; no thread holds two.
    rows: [Mutex<()>; ROW_LOCKS],
    repair: RwLock<()>,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            rows: std::array::from_fn(|_| Mutex::new(Rank::ParityRow, ())),
            repair: RwLock::new(Rank::Repair, ()),
        }
    }
}

impl Locks {
    /// Held while a part of a row is written, from reading the rest of it on.
    pub(crate) fn row(&self, key: RowKey) -> MutexGuard<'_, ()> {
        let number = key.chunk.get().wrapping_shr(16).wrapping_add(key.row);
        let number = brindle_ondisk::to_usize(number % ROW_LOCKS as u64);
        self.rows[number].lock()
    }

    /// Held while something is written.
    pub(crate) fn writer(&self) -> RwLockReadGuard<'_, ()> {
        self.repair.read()
    }

    /// Held while a bad copy is compared once more and written over: writes are locked out, so that the data read
    /// cannot have been replaced.
    pub(crate) fn repair(&self) -> RwLockWriteGuard<'_, ()> {
        self.repair.write()
    }
}
