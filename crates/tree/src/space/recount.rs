//! Counting anew of what is usually believed: used bytes and free ranges by the extent tree, used bytes of devices by their device
//! extents. For repairs: what was counted is written by the first commit, in the same transaction as everything else.
//!
//! Nothing may have changed since the last commit when this runs, so that the extent tree has all that is in use. From then on the
//! free ranges live in memory like those that are looked up, and a free space tree begins with them and the changes since.

use super::Space;
use super::state::State;
use crate::error::TreeError;
use crate::options::Recount;
use crate::store::Store;
use crate::store::cursor::Readahead;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{CompatRo, DevId, Item, Key, KeyType, Logical, ObjectId, RootId};
use std::collections::BTreeMap;

/// Returns true if the pool has a free space tree, valid or not, or is meant to.
pub(crate) fn makes_free_space_tree(store: &Store) -> bool {
    store.superblock().compat_ro().contains(CompatRo::FREE_SPACE_TREE)
}

/// Device items of the chunk tree, those of missing devices included.
pub(crate) fn device_items(store: &Store) -> Result<Vec<DevItem>, TreeError> {
    let mut cursor = store.cursor(&store.tree(RootId::CHUNK_TREE)?, Readahead::None);
    cursor.seek(&Key::first_of(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM))?;
    let mut items = Vec::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == ObjectId::DEV_ITEMS) {
        match Item::parse(&key, data) {
            Ok(Item::Device(item)) => items.push(*item),
            Ok(_) => {}
            Err(defect) => return Err(TreeError::item(RootId::CHUNK_TREE, key, defect)),
        }
        cursor.next()?;
    }
    Ok(items)
}

impl Space {
    /// Counts anew what is asked for.
    pub(super) fn recount(
        &self,
        store: &Store,
        state: &mut State,
        recount: Recount,
    ) -> Result<(), TreeError> {
        if recount.space {
            self.recount_groups(store, state)?;
        }
        if recount.devices {
            self.recount_devices(store, state)?;
        }
        Ok(())
    }

    fn recount_groups(&self, store: &Store, state: &mut State) -> Result<(), TreeError> {
        let mut free: BTreeMap<u64, IntervalSet<u64>> =
            state.groups().map(|group| (group.start, IntervalSet::of(group.interval()))).collect();
        let mut cursor = store.cursor(&store.tree(RootId::EXTENT_TREE)?, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        while let Some(key) = cursor.key() {
            let length = match key.item_type {
                KeyType::EXTENT_ITEM => Some(key.offset()),
                KeyType::METADATA_ITEM => Some(self.nodesize),
                _ => None,
            };
            if let Some(length) = length {
                let start = key.objectid.get();
                let span = Interval { start, end: start.saturating_add(length) };
                let group = free.range_mut(..=start).next_back().map(|(_, free)| free);
                let Some(free) = group.filter(|free| free.contains(span)) else {
                    let problem = "it lies over another one, or not in one block group";
                    return Err(TreeError::Space { start: Logical::new(start), length, problem });
                };
                free.remove(span);
            }
            cursor.next()?;
        }
        for (start, ranges) in free {
            let writes_tree = self.has_free_space_tree;
            state.change(start, |group| {
                group.used = group.length - ranges.bytes();
                let mut unused: super::FreeRanges = ranges.iter().collect();
                group.excluded.iter().for_each(|span| drop(unused.remove(span)));
                group.free = Some(unused);
                group.recounted = writes_tree.then_some(ranges);
            });
        }
        Ok(())
    }

    fn recount_devices(&self, store: &Store, state: &mut State) -> Result<(), TreeError> {
        let mut used: BTreeMap<DevId, u64> = BTreeMap::new();
        let mut cursor = store.cursor(&store.tree(RootId::DEV_TREE)?, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        while let Some((key, data)) = cursor.item() {
            match Item::parse(&key, data) {
                Ok(Item::DevExtent(item)) => {
                    let bytes = used.entry(DevId::new(key.objectid.get())).or_default();
                    *bytes = bytes.saturating_add(item.length.get());
                }
                Ok(_) => {}
                Err(defect) => return Err(TreeError::item(RootId::DEV_TREE, key, defect)),
            }
            cursor.next()?;
        }
        let stored: BTreeMap<DevId, DevItem> =
            device_items(store)?.into_iter().map(|item| (item.devid, item)).collect();
        for device in &mut state.devices {
            let Some(item) = stored.get(&device.devid) else { continue };
            let used_bytes = used.get(&device.devid).copied().unwrap_or(0);
            let total_bytes = device.total_bytes / self.sectorsize * self.sectorsize;
            if (used_bytes, total_bytes) != (item.bytes_used.get(), item.total_bytes.get()) {
                (device.used_bytes, device.is_changed) = (used_bytes, true);
                device.set_end(total_bytes);
                device.withheld = Default::default();
                device.total_bytes = total_bytes;
            }
        }
        Ok(())
    }
}
