//! Items of the pool's trees, as `BTRFS_IOC_TREE_SEARCH` answers them.

use crate::errno::errno_of;
use brindle_fs::{Filesystem, Readahead, TreeError};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_uapi::message::{FoundItem, TreeSearch};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Items of the pool's trees.
#[derive(Debug)]
pub(super) struct TreeItems {
    filesystem: Arc<Filesystem>,
}

impl TreeItems {
    pub(super) fn new(filesystem: Arc<Filesystem>) -> Self {
        Self { filesystem }
    }

    /// Finds the items asked for, up to the room in the answer.
    pub(super) fn search(&self, mut asked: TreeSearch) -> Result<TreeSearch, Errno> {
        let pool = self.filesystem.pool();
        let errno = |error: TreeError| errno_of(&error.into());
        let tree = pool.tree(RootId::new(asked.tree)).map_err(errno)?;
        let (first, last) = bounds(&asked)?;
        let wanted = std::mem::replace(&mut asked.items, 0);
        let mut used = 0;
        let mut cursor = pool.cursor(&tree, Readahead::None);
        cursor.seek(&first).map_err(errno)?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| *key <= last && asked.items < wanted) {
            let transid = cursor.leaf().map_or(0, |(leaf, _)| leaf.generation().get());
            if (asked.transid_min..=asked.transid_max).contains(&transid) {
                let is_first = asked.items == 0;
                let length = put(&mut asked.records[used..], transid, &key, data);
                // One that is too long for any answer comes without its bytes.
                let length = match length {
                    None if is_first => put(&mut asked.records, transid, &key, &[]),
                    length => length,
                };
                let Some(length) = length else { break };
                used += length;
                asked.items += 1;
            }
            cursor.next().map_err(errno)?;
        }
        Ok(asked)
    }
}

/// First and last key of the search.
fn bounds(asked: &TreeSearch) -> Result<(Key, Key), Errno> {
    let key = |objectid, item_type, offset| {
        let item_type = KeyType(u8::try_from(item_type).map_err(|_| Errno::INVAL)?);
        Ok(Key::new(ObjectId::new(objectid), item_type, offset))
    };
    // Callers ask for everything with types that no key has.
    let type_max = asked.type_max.min(u8::MAX.into());
    Ok((
        key(asked.objectid_min, asked.type_min, asked.offset_min)?,
        key(asked.objectid_max, type_max, asked.offset_max)?,
    ))
}

/// Writes an item, if there is room; how much that took.
fn put(room: &mut [u8], transid: u64, key: &Key, data: &[u8]) -> Option<usize> {
    let header = FoundItem {
        transid,
        objectid: key.objectid.get(),
        offset: key.offset(),
        item_type: key.item_type.0.into(),
        length: u32::try_from(data.len()).ok()?,
    };
    let length = size_of::<FoundItem>() + data.len();
    let (before, after) = room.get_mut(..length)?.split_at_mut(size_of::<FoundItem>());
    before.copy_from_slice(header.as_bytes());
    after.copy_from_slice(data);
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn items_are_written_as_long_as_there_is_room() {
        let key = Key::new(ObjectId::new(256), KeyType::CHUNK_ITEM, 9);
        let mut room = [0; 40];
        assert_eq!(put(&mut room, 7, &key, b"abcdefgh"), Some(40));
        assert_eq!((&room[32..], room[0]), (&b"abcdefgh"[..], 7));
        assert_eq!(put(&mut room, 7, &key, b"abcdefghi"), None);
    }

    #[test]
    fn a_type_that_no_key_has_is_no_lower_bound() {
        let everything = TreeSearch { type_max: u32::MAX, ..TreeSearch::new_zeroed() };
        assert_eq!(bounds(&everything).expect("a range").1.item_type, KeyType(255));
        assert!(bounds(&TreeSearch { type_min: 256, ..everything }).is_err());
    }
}
