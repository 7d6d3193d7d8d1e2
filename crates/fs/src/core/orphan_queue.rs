//! Places where orphans are still to be looked for.

use crate::error::FsError;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_sync::{Mutex, Rank, Ranked};
use brindle_tree::{Pool, Readahead};
use std::collections::VecDeque;

/// Places where orphans are still to be looked for.
#[derive(Debug, Default)]
pub(crate) struct OrphanQueue {
    /// Subvolumes to be looked at.
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Subvolumes with orphans that were left and have to go.
    subvolumes: VecDeque<RootId>,
    /// Every subvolume from this one on is yet to be looked at; `None` if none is.
    all_from: Option<RootId>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { subvolumes: VecDeque::new(), all_from: Some(RootId::FS_TREE) }
    }
}

impl Ranked for Waiting {
    const RANK: Rank = Rank::Orphans;
}

impl OrphanQueue {
    /// Notes a subvolume that may have orphans.
    pub(crate) fn look_at(&self, id: RootId) {
        self.waiting.lock().subvolumes.push_back(id);
    }

    /// The next subvolume that may have orphans.
    pub(crate) fn next(&self, pool: &Pool) -> Result<Option<RootId>, FsError> {
        let mut waiting = self.waiting.lock();
        if let Some(id) = waiting.subvolumes.pop_front() {
            return Ok(Some(id));
        }
        let Some(mut from) = waiting.all_from else {
            return Ok(None);
        };
        let root_tree = pool.tree(RootId::ROOT_TREE)?;
        let mut cursor = pool.cursor(&root_tree, Readahead::None);
        loop {
            cursor.seek(&Key::first_of(from.object_id(), KeyType::ROOT_ITEM))?;
            let Some(key) = cursor.key().filter(|key| key.objectid <= ObjectId::LAST_FREE) else {
                waiting.all_from = None;
                return Ok(None);
            };
            let id = RootId::new(key.objectid.get());
            from = RootId::new(id.get() + 1);
            if key.item_type == KeyType::ROOT_ITEM && (id == RootId::FS_TREE || id.is_subvolume()) {
                waiting.all_from = Some(from);
                return Ok(Some(id));
            }
        }
    }
}
