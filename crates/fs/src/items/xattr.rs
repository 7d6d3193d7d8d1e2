//! Extended attributes, POSIX ACLs among them.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::items::InodeItems;
use brindle_ondisk::{Item, KeyType, name_hash};
use brindle_tree::{Readahead, Tree};
use std::sync::Arc;

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The full name, such as `user.comment`.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl InodeItems {
    pub(crate) fn xattr(&self, id: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        let found = self.xattr_if_any(id, name)?;
        if found.is_none() && !id.is_empty_subvolume() {
            self.check_is_there(&self.core.tree(id.tree)?, id)?;
        }
        Ok(found)
    }

    /// The same, of an inode that is there.
    pub(crate) fn xattr_if_any(&self, id: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        if id.is_empty_subvolume() {
            return Ok(None);
        }
        let key = id.key(KeyType::XATTR_ITEM, name_hash(name));
        let find = |data: &[u8]| -> Result<Option<Vec<u8>>, FsError> {
            let refuse = |defect| FsError::Item { file: id, key, defect };
            let Item::Xattr(mut entries) = Item::parse(&key, data).map_err(refuse)? else {
                return Ok(None);
            };
            let entry = entries.find(|entry| entry.as_ref().map_or(true, |entry| entry.name == name));
            Ok(entry.transpose().map_err(refuse)?.map(|entry| entry.value.to_vec()))
        };
        let tree = self.core.tree(id.tree)?;
        self.core.pool().with_item(&tree, &key, find)?.unwrap_or(Ok(None))
    }

    /// Refuses an inode that is gone: it has no attributes, but that is not the reason to give.
    fn check_is_there(&self, tree: &Arc<Tree>, id: InodeId) -> Result<(), FsError> {
        let is_there = self.core.pool().with_item(tree, &id.key(KeyType::INODE_ITEM, 0), |_| ())?;
        is_there.ok_or(FsError::NoInode(id))
    }

    pub(crate) fn xattrs(&self, id: InodeId) -> Result<Vec<Xattr>, FsError> {
        let mut found = Vec::new();
        if id.is_empty_subvolume() {
            return Ok(found);
        }
        let tree = self.core.tree(id.tree)?;
        let mut cursor = self.core.pool().cursor(&tree, Readahead::None);
        cursor.seek(&id.key(KeyType::XATTR_ITEM, 0))?;
        while let Some((key, data)) = cursor.item() {
            if (key.objectid, key.item_type) != (id.number, KeyType::XATTR_ITEM) {
                break;
            }
            let refuse = |defect| FsError::Item { file: id, key, defect };
            if let Item::Xattr(entries) = Item::parse(&key, data).map_err(refuse)? {
                for entry in entries {
                    let entry = entry.map_err(refuse)?;
                    found.push(Xattr { name: entry.name.to_vec(), value: entry.value.to_vec() });
                }
            }
            cursor.next()?;
        }
        if found.is_empty() {
            self.check_is_there(&tree, id)?;
        }
        Ok(found)
    }
}
