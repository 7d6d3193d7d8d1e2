//! Marks in the chunk tree of a device with an older superblock.
//!
//! A pool that is written without a device is marked so ([`mend`](crate::write)) on the devices that it is written on. Where the absent
//! one was written by itself by a driver that makes no marks, and further than the others, its chunk tree knows nothing of that: the
//! marks are on the devices that are now stale. What comes after a mark has it, or the one that ended it, which is no lower. So a
//! device that has come to the generation of its absence, in a pool without that, is of another history.

use super::BLOCKS;
use crate::Volume;
use crate::device::{PoolDevice, absent_since};
use crate::pool::Pool;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{Item, Logical, Node, NodeExpectation, ObjectId, Superblock};

impl Volume {
    /// The device that was written although an older one has it marked as absent, while the pool has no such mark.
    pub(super) fn written_after_mark(
        &self,
        pool: &Pool,
        older: usize,
        superblock: &Superblock,
    ) -> Option<usize> {
        let items = self.own_device_items(&pool.devices[older], superblock);
        items.iter().find_map(|item| {
            let since = absent_since(item.generation)?;
            let is_apart = |device: &PoolDevice| {
                let mark = device.item.generation;
                let is_it = (device.devid, device.uuid) == (item.devid, item.uuid);
                let is_member = device.is_confirmed && !device.is_seed && device.device.is_some();
                let has_come_to_it = device.generation.is_some_and(|generation| generation >= since);
                is_it && is_member && has_come_to_it && absent_since(mark).unwrap_or(mark) < since
            };
            pool.devices.iter().position(is_apart).filter(|index| *index != older)
        })
    }

    /// Device items of the chunk tree that a device's superblock leads to, as far as that device has it.
    fn own_device_items(&self, device: &PoolDevice, superblock: &Superblock) -> Vec<DevItem> {
        let mut alone = Pool::default();
        let mut device = device.clone();
        device.devid = superblock.dev_item.devid;
        alone.devices.push(device);
        for chunk in superblock.system_chunks() {
            let added = chunk.ok().map(|(key, chunk)| alone.add_chunk(Logical::new(key.offset()), &chunk));
            if !matches!(added, Some(Ok(()))) {
                return Vec::new();
            }
        }
        let Superblock { chunk_root, chunk_root_generation, chunk_root_level, .. } = superblock;
        let mut next = vec![NodeExpectation::root(*chunk_root, *chunk_root_generation, *chunk_root_level)];
        let mut items = Vec::new();
        for _ in 0..BLOCKS {
            let Some(expected) = next.pop() else { break };
            let copies = alone.copies_on(0, expected.bytenr, self.tree_context().nodesize);
            let check = |bytes| Node::check(bytes, self.tree_context(), &expected).ok();
            let Some(node) = copies.into_iter().find_map(check) else { continue };
            // Device items have the least objectid of the tree.
            let pointers = node.key_ptrs().iter().take_while(|it| it.key.objectid <= ObjectId::DEV_ITEMS);
            next.extend(pointers.map(|pointer| NodeExpectation::child(pointer, node.level())));
            let found = (0..node.items().len()).filter_map(|slot| node.item(slot));
            items.extend(found.filter_map(|(key, data)| match Item::parse(&key, data) {
                Ok(Item::Device(item)) => Some(*item),
                _ => None,
            }));
        }
        items
    }
}
