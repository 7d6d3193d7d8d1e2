//! Metadata defragmentation of a subvolume or of the whole pool, a piece at a time; the engine is in `tree`.

use crate::core::Core;
use crate::error::FsError;
use brindle_ondisk::{Item, Key, KeyType, RootId};
use brindle_tree::{Readahead, Tree, TreeError};
use std::sync::Arc;

/// Scope of a defragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefragmentScope {
    /// This subvolume.
    Subvolume(RootId),
    /// Every tree of the pool.
    Pool,
}

/// Start of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragmentPlace {
    /// The tree.
    pub tree: RootId,
    /// The key in it.
    pub key: Key,
}

/// Result of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragmentedPiece {
    /// Number of leaves that were looked at.
    pub leaves: u64,
    /// Number of them that were written anew.
    pub moved: u64,
    /// Start of the next piece; `None` after the last.
    pub next: Option<DefragmentPlace>,
}

/// Lays blocks of trees in the order of their keys again.
#[derive(Debug)]
pub(crate) struct Defragmentation {
    core: Arc<Core>,
}

impl Defragmentation {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn defragment(
        &self,
        scope: DefragmentScope,
        from: Option<DefragmentPlace>,
        leaves: usize,
    ) -> Result<DefragmentedPiece, FsError> {
        // A subvolume that is being dropped has pointers to blocks that are gone.
        let writing = self.core.writing()?;
        let _whole = writing.drops.lock();
        let start = |tree| DefragmentPlace { tree, key: Key::MIN };
        let place = match (from, scope) {
            (Some(place), _) => Some(place),
            (None, DefragmentScope::Subvolume(id)) => Some(start(id)),
            (None, DefragmentScope::Pool) => self.next_tree(None)?.map(start),
        };
        let Some(place) = place else { return Ok(DefragmentedPiece::default()) };
        let done = match self.living_tree(place.tree)? {
            Some(tree) => self.core.pool().defragment(&tree, &place.key, leaves)?,
            None => brindle_tree::Defragmented::default(),
        };
        let next = match (done.next, scope) {
            (Some(key), _) => Some(DefragmentPlace { key, ..place }),
            (None, DefragmentScope::Subvolume(_)) => None,
            (None, DefragmentScope::Pool) => self.next_tree(Some(place.tree))?.map(start),
        };
        Ok(DefragmentedPiece { leaves: done.leaves, moved: done.moved, next })
    }

    /// A tree, unless it is gone, or deleted.
    fn living_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>, FsError> {
        let tree = match self.core.pool().tree(id) {
            Err(TreeError::NoTree(_)) => return Ok(None),
            tree => tree?,
        };
        let is_deleted = self.core.pool().root_item(id)?.is_some_and(|(_, item)| item.refs.get() == 0);
        Ok(Some(tree).filter(|_| !is_deleted))
    }

    /// The tree behind one in the order in which a pool is defragmented: moving the blocks of one changes those behind it.
    fn next_tree(&self, before: Option<RootId>) -> Result<Option<RootId>, FsError> {
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let before = before.map(rank);
        let is_next = |id: &RootId| before.is_none_or(|before| rank(*id) > before);
        let mut next = Some(RootId::ROOT_TREE).filter(is_next);
        let mut cursor = self.core.pool().cursor(&root_tree, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        while let Some((key, data)) = cursor.item() {
            let id = RootId::new(key.objectid.get());
            if key.item_type == KeyType::ROOT_ITEM
                && is_next(&id)
                && next.is_none_or(|next| rank(id) < rank(next))
                && matches!(Item::parse(&key, data), Ok(Item::Root(item)) if item.refs.get() > 0)
            {
                next = Some(id);
            }
            cursor.next()?;
        }
        Ok(next)
    }
}

fn rank(id: RootId) -> (u8, RootId) {
    let rank = match id {
        id if id.is_file_tree() => 0,
        RootId::FREE_SPACE_TREE | RootId::BLOCK_GROUP_TREE => 2,
        RootId::EXTENT_TREE => 3,
        RootId::ROOT_TREE => 4,
        _ => 1,
    };
    (rank, id)
}
