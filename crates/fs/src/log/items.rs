//! Items of an inode for the log.

use super::Logged;
use crate::attributes::InodeId;
use crate::error::FsError;
use crate::log::FsLog;
use brindle_ondisk::item::InodeItem;
use brindle_ondisk::{Item, Key, KeyType, ObjectId};
use brindle_tree::{LogRange, Readahead, Tree, Unlogged};
use std::sync::Arc;
use zerocopy::FromBytes;

/// An inode's items before its extents or entries: the inode item, names, attributes.
pub(super) struct Items {
    pub(super) id: InodeId,
    pub(super) inode: InodeItem,
    all: Vec<(Key, Vec<u8>)>,
}

impl Items {
    /// Range of the log in which these items are, and no others.
    pub(super) fn range(&self) -> LogRange {
        LogRange {
            first: Key::first_of(self.id.number, KeyType::INODE_ITEM),
            last: Key::last_of(self.id.number, KeyType::XATTR_ITEM),
            items: self.all.clone(),
        }
    }

    /// Returns true if the inode may have extents: contents of a file, or the target of a symbolic link.
    pub(super) fn has_extents(&self) -> bool {
        self.inode.is_regular() || self.inode.is_symlink()
    }
}

impl FsLog {
    /// An inode's items for the log; `None` if it is gone, or has no name.
    pub(super) fn items_to_log(
        &self,
        tree: &Arc<Tree>,
        id: InodeId,
    ) -> Result<Logged<Option<Items>>, FsError> {
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek(&id.key(KeyType::INODE_ITEM, 0))?;
        let (mut inode, mut all) = (None, Vec::new());
        while let Some((key, data)) = cursor
            .item()
            .filter(|(key, _)| key.objectid == id.number && key.item_type < KeyType::DIR_LOG_ITEM)
        {
            match key.item_type {
                KeyType::INODE_ITEM => inode = InodeItem::read_from_bytes(data).ok(),
                KeyType::INODE_REF | KeyType::INODE_EXTREF | KeyType::XATTR_ITEM => {}
                _ => return Ok(Err(Unlogged::Kind)),
            }
            all.push((key, data.to_vec()));
            cursor.next()?;
        }
        let named = inode.filter(|inode| inode.nlink.get() > 0);
        Ok(Ok(named.map(|inode| Items { id, inode, all })))
    }
}

/// Tells the directories of the names in an item of an inode.
pub(super) fn directories_in(key: &Key, data: &[u8], mut tell: impl FnMut(ObjectId)) {
    match Item::parse(key, data) {
        Ok(Item::InodeRef(_)) => tell(ObjectId::new(key.offset())),
        Ok(Item::InodeExtref(names)) => names.flatten().for_each(|name| tell(name.parent)),
        _ => {}
    }
}
