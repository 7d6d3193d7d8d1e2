//! A tree made anew: all of its blocks, by the extent tree, are given up unread, and an empty root takes their place.
//!
//! For trees that hold nothing that is not known from elsewhere, and that no other tree shares blocks with: the free space tree, the
//! UUID tree. Their blocks may be damaged.

use super::roots::Roots;
use crate::error::TreeError;
use crate::refs::delayed::{Extent, ExtentKind, Referrer};
use crate::store::cursor::Readahead;
use crate::tree::Tree;
use brindle_ondisk::item::{BackRef, ExtentFlags, RootItem, TreeBlockInfo};
use brindle_ondisk::{Defect, Item, Key, KeyType, Logical, RootId, Superblock};
use std::sync::Arc;
use zerocopy::FromZeros;

impl Roots<'_> {
    /// Puts an empty tree in the place of one that has not changed since the last commit, or is not there.
    ///
    /// # Errors
    /// An extent tree that can't be read; blocks that other trees refer to.
    pub fn replant(&self, id: RootId) -> Result<Arc<Tree>, TreeError> {
        let blocks = self.blocks_by_extent_tree(id)?;
        let mut item = RootItem::new_zeroed();
        if let Some((key, found)) = self.editor.store.root_item(id)? {
            item = *found;
            self.editor.remove(&*self.editor.store.tree(RootId::ROOT_TREE)?, &key)?;
        }
        self.editor.store.forget_tree(id);
        if id == RootId::UUID_TREE {
            // The caller fills it with what the root items say: it is current from then on.
            let mut superblock = Superblock::clone(&self.editor.store.superblock());
            superblock.uuid_tree_generation.set(superblock.generation.get());
            self.editor.store.volume().adopt_superblock(superblock);
        }
        for block in blocks {
            self.editor.changes.refs.change(&block, Referrer::Tree(id), -1);
        }
        item.refs.set(1);
        item.bytes_used.set(self.editor.store.nodesize().into());
        (item.generation, item.generation_v2) = (self.editor.generation, self.editor.generation);
        self.create(id, 0, &item)
    }

    /// Blocks of which a tree has the only reference.
    fn blocks_by_extent_tree(&self, id: RootId) -> Result<Vec<Extent>, TreeError> {
        let mut cursor =
            self.editor.store.cursor(&self.editor.store.tree(RootId::EXTENT_TREE)?, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        let (mut blocks, mut last) = (Vec::new(), None);
        while let Some((key, data)) = cursor.item() {
            let item = Item::parse(&key, data)
                .map_err(|defect| TreeError::item(RootId::EXTENT_TREE, key, defect))?;
            let is_ours = match &item {
                Item::Extent(extent) if extent.flags().contains(ExtentFlags::TREE_BLOCK) => {
                    let start = Logical::new(key.objectid.get());
                    let level = match (key.item_type, extent.tree_block) {
                        (KeyType::EXTENT_ITEM, Some(TreeBlockInfo { level, .. })) => *level,
                        _ => u8::try_from(key.offset()).unwrap_or(u8::MAX),
                    };
                    last = Some((start, level, extent.header.refs.get()));
                    extent.inline_refs.flatten().any(|reference| reference == BackRef::Tree(id))
                }
                Item::ExtentRef(BackRef::Tree(root)) => *root == id,
                _ => false,
            };
            if let Some((start, level, refs)) = last.filter(|_| is_ours) {
                if refs != 1 {
                    let defect =
                        Defect::expected("references to a block of a tree that shares none", 1, refs);
                    return Err(TreeError::item(RootId::EXTENT_TREE, key, defect));
                }
                let kind = ExtentKind::Block { level, first_key: Key::default() };
                let length = self.editor.store.nodesize().into();
                blocks.push(Extent { start, length, kind, owner: Some(id) });
            }
            cursor.next()?;
        }
        Ok(blocks)
    }
}
