//! Subvolumes that are being received. They change without the kernel's doing, so it keeps nothing of them: no names, attributes,
//! or pages, until they are whole.

use brindle_fs::RootId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Subvolumes that are being received.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// True if there is one: most requests need know no more.
    is_any: AtomicBool,
    trees: Mutex<BTreeSet<RootId>>,
}

/// A subvolume that is being received, until this is dropped.
#[derive(Debug)]
pub(super) struct Arrival {
    incoming: Arc<Incoming>,
    pub(super) tree: RootId,
}

impl Incoming {
    /// Returns true if there is one.
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Returns true if a subvolume is one of them.
    pub(super) fn has(&self, tree: RootId) -> bool {
        self.is_any() && self.trees().contains(&tree)
    }

    /// Begins with one.
    pub(super) fn begin(self: &Arc<Self>, tree: RootId) -> Arrival {
        self.trees().insert(tree);
        self.is_any.store(true, Ordering::Release);
        Arrival { incoming: Arc::clone(self), tree }
    }

    fn trees(&self) -> MutexGuard<'_, BTreeSet<RootId>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut trees = self.incoming.trees();
        trees.remove(&self.tree);
        self.incoming.is_any.store(!trees.is_empty(), Ordering::Release);
    }
}
