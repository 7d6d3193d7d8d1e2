//! An open file: its inode, and what it keeps for the next read.

use crate::attributes::InodeId;
use crate::core::inode_hold::InodeHold;
use crate::core::inodes::Inode;
use crate::extent::cache::ExtentCache;
use brindle_sync::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An open file, to be shared by threads. It keeps its inode, also when that loses its last name:
/// [`Filesystem::close_file`](crate::Filesystem::close_file) removes it then; where the file is dropped instead, background work does.
#[derive(Debug)]
pub struct OpenFile {
    id: InodeId,
    inode: InodeHold,
    cache: Mutex<ExtentCache>,
    /// Number of failed writebacks of the file that this handle has reported, or that were reported before it was opened.
    pub(crate) known_failures: AtomicU64,
}

impl OpenFile {
    /// An open file of an inode whose contents are loaded.
    pub(crate) fn new(id: InodeId, inode: InodeHold) -> Self {
        let known_failures = inode.data.memory().failures.reported().into();
        Self { id, inode, cache: Mutex::default(), known_failures }
    }

    /// The hold of its inode, which outlives it.
    pub(crate) fn into_hold(self) -> InodeHold {
        self.inode
    }

    /// Id of the inode.
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.inode.data.size().expect("opening tells the size")
    }

    /// The inode, shared by all its users.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Lookups that are kept for the next one.
    pub(crate) fn cache(&self) -> MutexGuard<'_, ExtentCache> {
        self.cache.lock()
    }
}
