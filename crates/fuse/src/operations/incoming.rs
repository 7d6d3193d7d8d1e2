//! Subvolumes that are being received. They change without the kernel's doing, so it keeps nothing of them: no names, attributes,
//! or pages, until they are whole.

use super::nodes::Nodes;
use brindle_fs::RootId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Subvolumes that are being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    nodes: Arc<Nodes>,
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
    pub(super) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, is_any: AtomicBool::new(false), trees: Mutex::default() }
    }

    /// Returns true if a node is in such a subvolume.
    pub(crate) fn has(&self, node: u64) -> bool {
        self.is_any.load(Ordering::Acquire)
            && self.nodes.inode(node).is_ok_and(|id| self.trees().contains(&id.tree))
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
