//! Holds on space: readers without a lock keep the places readable that they have looked up.

use super::Store;
use std::fmt::Debug;

/// Keeper of freed space: the allocator, whose kind is not known here.
pub(crate) trait FreedSpace: Debug + Send + Sync {
    /// Counts a reader; answers the number by which it leaves.
    fn enter(&self) -> u64;

    /// A reader leaves: frees what no other one delays.
    fn leave(&self, store: &Store, number: u64);
}

/// Hold on the space in use: space that is freed after the hold was taken is not used again while it lives.
#[derive(Debug)]
pub struct FreedSpaceHold<'p> {
    store: &'p Store,
    /// `None` for a pool that is only read, where nothing is freed.
    number: Option<u64>,
}

impl<'p> FreedSpaceHold<'p> {
    pub(super) fn of(store: &'p Store) -> Self {
        Self { store, number: store.freed.get().map(|keeper| keeper.enter()) }
    }
}

impl Drop for FreedSpaceHold<'_> {
    fn drop(&mut self) {
        let _stops = self.store.stop_on_panic();
        if let Some(number) = self.number {
            if let Some(keeper) = self.store.freed.get() {
                keeper.leave(self.store, number);
            }
        }
    }
}
