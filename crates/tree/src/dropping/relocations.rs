//! Relocation trees that the kernel left when it was interrupted in a balance, or in the removal of a device. They are
//! dropped; the balance then begins anew with what has not moved yet.
//!
//! The kernel moves the blocks of a subvolume in a *relocation tree*, which begins as a copy of the subvolume's root. Its
//! blocks all refer to their children in their own name (`FULL_BACKREF`; the root is its own parent), and while it is
//! there the subvolume's root item says that every older block may be shared, so that either copies a block before it
//! changes it. *Merging* exchanges pointers: a moved block enters the subvolume, and the old one takes its place in
//! the relocation tree, with the references of both in the same transaction. So each commit has two whole trees that
//! share blocks as a subvolume and its snapshot do, wherever moving or merging has come to, and the relocation tree goes
//! as a snapshot goes. As no reference is filed under its name, nothing below it has to be converted.
//!
//! While merging, the kernel keeps its place in the root item (`drop_progress`), where a tree that is being dropped has
//! another meaning; `refs` tells them apart. So the first step sets both back, and the kernel, if it comes next, drops
//! the rest.

use super::{Doomed, Dropped, TreeDropper};
use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::store::Store;
use crate::store::cursor::Readahead;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Defect, Generation, Item, Key, KeyType, ObjectId, RootId};

/// A relocation tree.
#[derive(Debug)]
pub struct RelocationTree {
    key: Key,
    item: Box<RootItem>,
}

impl RelocationTree {
    /// A relocation tree that was left, if there is one.
    pub(crate) fn next(store: &Store) -> Result<Option<Self>, TreeError> {
        let root_tree = store.tree(RootId::ROOT_TREE)?;
        let mut cursor = store.cursor(&root_tree, Readahead::None);
        cursor.seek(&Key::first_of(ObjectId::TREE_RELOC, KeyType::ROOT_ITEM))?;
        let is_wanted =
            |key: &Key| (key.objectid, key.item_type) == (ObjectId::TREE_RELOC, KeyType::ROOT_ITEM);
        let Some((key, data)) = cursor.item().filter(|(key, _)| is_wanted(key)) else {
            return Ok(None);
        };
        let refuse = |defect| TreeError::item(RootId::ROOT_TREE, key, defect);
        match Item::parse(&key, data).map_err(refuse)? {
            Item::Root(item) => Ok(Some(RelocationTree { key, item })),
            _ => Err(refuse(Defect::new("no root item of a relocation tree", 0))),
        }
    }
}

impl TreeDropper<'_> {
    /// Drops at most about `budget` blocks of a relocation tree, progress kept in its root item; returns true if it is
    /// gone.
    ///
    /// # Errors
    /// Blocks that can't be read, or that are referred to otherwise than as blocks of one tree.
    pub fn drop_part_of_relocation(&self, tree: RelocationTree, budget: usize) -> Result<bool, TreeError> {
        let RelocationTree { key, mut item } = tree;
        let root_tree = self.editor.store.tree(RootId::ROOT_TREE)?;
        let refuse = |defect| TreeError::item(RootId::ROOT_TREE, key, defect);
        if item.refs.get() > 0 {
            (item.drop_progress, item.drop_level) = (Key::MIN, 0);
            self.editor
                .update(&root_tree, &key, RootItem::write_doomed)?
                .unwrap_or(Ok(()))
                .map_err(refuse)?;
        }
        let root = TreeRoot::from_item(RootId::TREE_RELOC, &item);
        // No block bears its name, whatever the generation.
        let doomed = Doomed { root, key, origin: Generation::new(u64::MAX) };
        match self.drop_blocks(&doomed, &item, budget)? {
            Dropped::Whole => {
                self.editor.remove(&root_tree, &key)?;
                return Ok(true);
            }
            Dropped::Until(progress, level) => {
                let write = |data: &mut [u8]| RootItem::write_drop_progress(data, &progress, level);
                self.editor.update(&root_tree, &key, write)?.unwrap_or(Ok(())).map_err(refuse)?;
            }
            Dropped::Nothing => {}
        }
        Ok(false)
    }
}
