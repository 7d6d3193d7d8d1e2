//! Inodes in memory: one [`Inode`] each, shared by all who use it, gone when nobody does.

use crate::InodeId;
use crate::data::FileState;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The table is split into so many, each with a lock of its own.
const SHARDS: usize = 16;
/// A shard is swept when it has twice as many entries as after the last sweep, and so many at the least.
const SWEEP_MIN: usize = 64;

/// An inode that somebody uses.
#[derive(Debug)]
pub struct Inode {
    id: InodeId,
    /// What of its contents is in memory only.
    pub(crate) data: FileState,
}

impl Inode {
    fn new(id: InodeId) -> Self {
        Self { id, data: FileState::default() }
    }

    /// Which inode.
    pub fn id(&self) -> InodeId {
        self.id
    }
}

/// Every inode that somebody uses.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    inodes: HashMap<InodeId, Weak<Inode>>,
    /// How many entries there may be until those without an inode are looked for.
    sweep_at: usize,
}

impl InodeTable {
    /// The inode of this id, in memory from now on for as long as the answer is kept.
    pub(crate) fn get(&self, id: InodeId) -> Arc<Inode> {
        let mut shard = self.shard(id);
        if let Some(inode) = shard.inodes.get(&id).and_then(Weak::upgrade) {
            return inode;
        }
        if shard.inodes.len() >= shard.sweep_at.max(SWEEP_MIN) {
            shard.inodes.retain(|_, inode| inode.strong_count() > 0);
            shard.sweep_at = shard.inodes.len() * 2;
        }
        let inode = Arc::new(Inode::new(id));
        shard.inodes.insert(id, Arc::downgrade(&inode));
        inode
    }

    fn shard(&self, id: InodeId) -> MutexGuard<'_, Shard> {
        let mixed = id.number.get() ^ id.tree.get().rotate_left(7);
        let index = brindle_ondisk::to_usize(mixed) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
