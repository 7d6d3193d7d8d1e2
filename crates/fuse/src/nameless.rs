//! Inodes that have lost their last name, until the kernel forgets them: it has them by a number, and asks for them by it
//! as long as a program stands in a directory that was removed, has a path's end in its hand (`O_PATH`), uses a named pipe,
//! or had just resolved a path when a rename gave the name to another file.
//!
//! The kernel forgets an inode without a name as soon as nothing uses it, so that there are no more of these than programs
//! hold.

use brindle_fs::InodeHold;
use brindle_ondisk::IdMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Holds on inodes without a name, by the number that the kernel has for each.
#[derive(Debug, Default)]
pub(crate) struct NamelessNodes(Mutex<IdMap<u64, InodeHold>>);

impl NamelessNodes {
    /// Keeps an inode until its node is forgotten.
    pub(crate) fn keep(&self, node: u64, hold: InodeHold) {
        self.nodes().insert(node, hold);
    }

    /// The hold that was kept for a node.
    pub(crate) fn take(&self, node: u64) -> Option<InodeHold> {
        self.nodes().remove(&node)
    }

    /// Takes all holds that are kept.
    pub(crate) fn take_all(&self) -> Vec<InodeHold> {
        self.nodes().drain().map(|(_, hold)| hold).collect()
    }

    fn nodes(&self) -> MutexGuard<'_, IdMap<u64, InodeHold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
