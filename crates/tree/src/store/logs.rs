//! The logs that a crash left, as they lie: their trees, and what they use.

use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::store::Store;
use crate::store::cursor::Readahead;
use crate::tree::Tree;
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{Defect, Item, Key, KeyType, Logical, NodeExpectation, RootId};
use std::sync::Arc;

/// The log of a subvolume.
#[derive(Debug)]
pub struct LogTree {
    /// The subvolume of the log.
    pub subvolume: RootId,
    /// Its items.
    pub tree: Arc<Tree>,
}

impl LogTree {
    /// The logs of all subvolumes, if there are any.
    pub(crate) fn all(store: &Store) -> Result<Vec<Self>, TreeError> {
        let Some(root) = TreeRoot::log_root_tree(&store.superblock()) else { return Ok(Vec::new()) };
        let mut cursor = store.cursor(&Tree::fixed(root), Readahead::None);
        cursor.seek(&Key::MIN)?;
        let mut found = Vec::new();
        while let Some((key, data)) = cursor.item() {
            let failed = |defect| TreeError::item(RootId::TREE_LOG, key, defect);
            match Item::parse(&key, data).map_err(failed)? {
                Item::Root(item) if key.item_type == KeyType::ROOT_ITEM => {
                    let tree = Tree::fixed(TreeRoot::from_item(RootId::TREE_LOG, &item));
                    found.push(Self { subvolume: RootId::new(key.offset()), tree });
                }
                _ => return Err(failed(Defect::new("no root item in the tree of log trees", 0))),
            }
            cursor.next()?;
        }
        Ok(found)
    }
}

/// All blocks of a tree.
pub(crate) fn blocks_of(store: &Store, root: TreeRoot) -> Result<Vec<Logical>, TreeError> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.expectation()]);
    while let Some(expected) = waiting.pop() {
        found.push(expected.bytenr);
        if expected.level == Some(0) {
            continue;
        }
        let node = store.read_node(&expected)?;
        let children = node.key_ptrs().iter();
        waiting.extend(children.map(|child| NodeExpectation::child(child, node.level())));
    }
    Ok(found)
}

/// Starts of all that the logs use: their blocks, and the extents of data that they name. The extent tree of the last commit may
/// have these as free.
pub(crate) fn used_by_logs(store: &Store) -> Result<Vec<Logical>, TreeError> {
    let Some(root) = TreeRoot::log_root_tree(&store.superblock()) else { return Ok(Vec::new()) };
    let mut used = blocks_of(store, root)?;
    for log in LogTree::all(store)? {
        used.extend(blocks_of(store, log.tree.root())?);
        let mut cursor = store.cursor(&log.tree, Readahead::None);
        cursor.seek(&Key::MIN)?;
        while let Some((key, data)) = cursor.item() {
            if key.item_type == KeyType::EXTENT_DATA {
                let failed = |defect| TreeError::item(RootId::TREE_LOG, key, defect);
                match Item::parse(&key, data).map_err(failed)? {
                    Item::FileExtent(FileExtent::OnDisk { extent, .. }) if extent.disk_bytenr.get() != 0 => {
                        used.push(extent.disk_bytenr);
                    }
                    _ => {}
                }
            }
            cursor.next()?;
        }
    }
    Ok(used)
}
