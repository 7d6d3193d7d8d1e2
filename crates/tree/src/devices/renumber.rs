//! Another id for a device of the pool.
//!
//! A mount goes by the superblock of the highest generation, and among equals by that of the lowest devid; so the ids of
//! devices decide which of them can hold a log alone. An id is in the device's item, in the chunks and device extents that
//! lie on it, in its statistics, and in its own superblocks, nowhere else. One commit changes all of it, for one device X,
//! to an id that no other device has had since the pool was opened.
//!
//! **A crash at each point.** What other superblocks say does not depend on X; X is found by the id in its own one. So the
//! first superblock of X is written first, by itself, and made durable.
//! - Before it, all superblocks are those of the last commit, where X has its old id: also those that are written again.
//! - After it, X has the newest superblock, and with it the trees in which it has the new id; the others are one commit
//!   behind, as after any crash between superblocks.
//! - If it is torn, the other copies of X are of the last commit. They are written when all first ones are durable.
//! - If X does not take it, the transaction is not published, and nothing more is written.

use super::Devices;
use crate::error::TreeError;
use crate::space::Urgency;
use crate::space::renumber::rename_stripes;
use crate::store::cursor::Readahead;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Key, KeyType, ObjectId, RootId};
use zerocopy::FromBytes;

/// Items that a block has at least which loses or gets them; that of small device extents in small blocks, half full.
const ITEMS_PER_BLOCK: usize = 8;
/// Blocks that the commit may change besides those with items that name the device.
const OTHER_BLOCKS: usize = 64;

/// An item that names a device, and the item in its place.
struct Renamed {
    tree: RootId,
    before: Key,
    after: Key,
    data: Vec<u8>,
}

impl Devices<'_> {
    /// Gives a device another id, which no device has, durably. Nothing else uses the pool meanwhile, and no device is
    /// missing.
    ///
    /// # Errors
    /// Devices that fail: then nothing more is written.
    pub(crate) fn renumber(&self, devid: DevId, new: DevId) -> Result<(), TreeError> {
        // Nothing that names the device waits to be written.
        self.transactions.commit()?;
        let renamed = self.items_of_device(devid, new)?;
        let blocks = renamed.len() / ITEMS_PER_BLOCK + OTHER_BLOCKS;
        let done = self.transactions.exclusively_with(blocks, Urgency::Normal, |editor| {
            for item in &renamed {
                let tree = self.store.tree(item.tree)?;
                if item.before != item.after {
                    editor.remove(&tree, &item.before)?;
                }
                editor.replace(&tree, &item.after, &item.data)?;
            }
            self.store.volume().renumber_device(devid, new);
            self.statistics.renumber(devid, new);
            self.space.renumber_device(devid, new)
        });
        if let Err(error) = done {
            self.store.stop().abort(&error);
            return Err(error);
        }
        self.transactions.commit()
    }

    /// Items that name a device, as they are to be.
    fn items_of_device(&self, devid: DevId, new: DevId) -> Result<Vec<Renamed>, TreeError> {
        let mut found = Vec::new();
        for tree in [RootId::CHUNK_TREE, RootId::DEV_TREE] {
            let mut cursor = self.store.cursor(&self.store.tree(tree)?, Readahead::Forward);
            cursor.seek(&Key::MIN)?;
            while let Some((key, data)) = cursor.item() {
                let mut data = data.to_vec();
                if let Some(after) = renamed(tree, &key, &mut data, devid, new) {
                    found.push(Renamed { tree, before: key, after, data });
                }
                cursor.next()?;
            }
        }
        Ok(found)
    }
}

/// Puts the new id into an item; its key then. `None` if it does not name the device.
fn renamed(tree: RootId, key: &Key, data: &mut [u8], devid: DevId, new: DevId) -> Option<Key> {
    let with_offset = Key::new(key.objectid, key.item_type, new.get());
    match key.item_type {
        KeyType::DEV_ITEM if tree == RootId::CHUNK_TREE && key.offset() == devid.get() => {
            let (item, _) = DevItem::mut_from_prefix(data).ok()?;
            item.devid = new;
            Some(with_offset)
        }
        KeyType::CHUNK_ITEM if tree == RootId::CHUNK_TREE => rename_stripes(data, devid, new).then_some(*key),
        KeyType::DEV_EXTENT if key.objectid == ObjectId::new(devid.get()) => {
            Some(Key::new(ObjectId::new(new.get()), key.item_type, key.offset()))
        }
        // Statistics of devices are those of the object 0.
        KeyType::PERSISTENT_ITEM if key.objectid == ObjectId::new(0) && key.offset() == devid.get() => {
            Some(with_offset)
        }
        _ => None,
    }
}
