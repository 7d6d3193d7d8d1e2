//! A counted use of an inode.

use crate::core::inodes::Inode;
use crate::core::orphan_queue::OrphanQueue;
use std::ops::Deref;
use std::sync::Arc;

/// A counted use of an inode.
#[derive(Debug)]
#[must_use = "the inode is kept as long as this lasts"]
pub struct InodeHold {
    inode: Arc<Inode>,
    /// The place for an inode that has to go; `None` if nothing is counted.
    orphans: Option<Arc<OrphanQueue>>,
}

impl InodeHold {
    /// The hold of a use that is counted already, if there is a place for inodes that have to go.
    pub(crate) fn new(inode: Arc<Inode>, orphans: Option<Arc<OrphanQueue>>) -> Self {
        Self { inode, orphans }
    }

    /// Returns true if the use is counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.orphans.is_some()
    }

    /// Gives the count back. Returns the inode, and true if it has to be removed; `None` if nothing was counted.
    pub(crate) fn end(mut self) -> Option<(Arc<Inode>, bool)> {
        self.orphans.take()?;
        let has_to_go = self.inode.give_back();
        Some((Arc::clone(&self.inode), has_to_go))
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        if let Some(orphans) = self.orphans.take() {
            if self.inode.give_back() {
                orphans.look_at(self.inode.id().tree);
            }
        }
    }
}

impl Deref for InodeHold {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}
