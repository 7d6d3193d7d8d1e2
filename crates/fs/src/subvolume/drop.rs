//! Dropping what deleted subvolumes leave, piece by piece.

use crate::error::FsError;
use crate::subvolume::Subvolumes;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_tree::{Need, Readahead, TreeDropper, TreeError};

/// Number of blocks of a deleted subvolume that are dropped in one step. Each may take a change of the extent tree.
const BLOCKS_PER_STEP: usize = 64;

impl Subvolumes {
    /// Drops a piece of a deleted subvolume; whether there was one that could be.
    pub(crate) fn drop_deleted_subvolume(&self) -> Result<bool, FsError> {
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let mut cursor = self.core.pool().cursor(&root_tree, Readahead::None);
        cursor.seek(&Key::first_of(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM))?;
        while let Some(key) = cursor.key().filter(|key| key.objectid == ObjectId::ORPHAN) {
            let id = RootId::new(key.offset());
            if key.item_type == KeyType::ORPHAN_ITEM && self.drop_some_of(id)? {
                return Ok(true);
            }
            cursor.next()?;
        }
        Ok(false)
    }

    fn drop_some_of(&self, id: RootId) -> Result<bool, FsError> {
        let tree = match self.core.pool().tree(id) {
            Ok(tree) => tree,
            Err(TreeError::NoTree(_)) => {
                let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
                self.core.change(Need::rescuing(1), |edit| edit.remove_orphan(&root_tree, id.object_id()))?;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        // What has changed waits for the commit.
        if !id.is_subvolume() || tree.is_dirty() {
            return Ok(false);
        }
        match self.core.pool().root_item(id)? {
            // A mark that an interrupted deletion of old left on a subvolume that is whole.
            Some((_, item)) if item.refs.get() > 0 => return Ok(false),
            _ => {}
        }
        // What is open is still used.
        if !self.core.end_use_of_deleted(id) {
            return Ok(false);
        }
        // From here on nothing in it can be found, and what is being written back is waited for.
        for inode in self.core.inodes.of_subvolume(id) {
            self.data.forget_contents(&inode);
        }
        if tree.is_dirty() {
            return Ok(false);
        }
        // The reservation of a full step may exceed the reserve of a full pool.
        let mut blocks = BLOCKS_PER_STEP;
        loop {
            match self
                .core
                .change(Need::rescuing(blocks), |edit| TreeDropper::of(&edit.editor).drop_part(&tree, blocks))
            {
                Err(FsError::Tree(TreeError::NoSpace(_))) if blocks > 1 => blocks /= 4,
                dropped => return dropped.map(|_| true),
            }
        }
    }
}
