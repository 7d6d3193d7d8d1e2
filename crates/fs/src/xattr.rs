//! Extended attributes, POSIX ACLs among them.

use crate::{Filesystem, FsError, InodeId};
use brindle_ondisk::{Item, KeyType, name_hash};
use brindle_tree::Readahead;

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The full name, such as `user.comment`.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Filesystem {
    /// The value of an extended attribute, if there is one.
    pub fn xattr(&self, id: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        if id.is_empty_subvolume() {
            return Ok(None);
        }
        let key = id.key(KeyType::XATTR_ITEM, name_hash(name));
        let find = |data: &[u8]| {
            let refuse = |defect| FsError::Item { file: id, key, defect };
            let Item::Xattr(mut entries) = Item::parse(&key, data).map_err(refuse)? else {
                return Ok(None);
            };
            let entry = entries.find(|entry| entry.as_ref().map_or(true, |entry| entry.name == name));
            Ok(entry.transpose().map_err(refuse)?.map(|entry| entry.value.to_vec()))
        };
        let found = self.pool().with_item(&self.tree(id.tree)?, &key, find)?;
        found.unwrap_or(Ok(None))
    }

    /// Every extended attribute, in the order of the hashes of their names.
    pub fn xattrs(&self, id: InodeId) -> Result<Vec<Xattr>, FsError> {
        let mut found = Vec::new();
        if id.is_empty_subvolume() {
            return Ok(found);
        }
        let mut cursor = self.pool().cursor(&self.tree(id.tree)?, Readahead::None);
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
        Ok(found)
    }
}
