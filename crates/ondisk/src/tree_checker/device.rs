//! Devices, their extents, and block groups.

use super::ItemPlace;
use super::chunk::{check_content, check_profile};
use crate::item::{BlockGroupItem, DevExtent, DevItem, DevReplaceItem};
use crate::{Defect, Item, Key, KeyType, ObjectId, RootId};

/// The last state of a replacement (`BTRFS_DEV_REPLACE_ITEM_STATE_SUSPENDED`).
const REPLACE_STATE_MAX: u64 = 4;

/// The size is not held against anything: whether extents fit on it, `brindle check` sees.
pub(super) fn check_device(key: &Key, device: &DevItem) -> Result<(), Defect> {
    if key.objectid != ObjectId::DEV_ITEMS {
        return Err(Defect::new("objectid of device item", key.objectid.get()));
    }
    if device.devid.get() != key.offset() {
        return Err(Defect::expected("devid of device item", key.offset(), device.devid.get()));
    }
    let (total, used) = (device.total_bytes.get(), device.bytes_used.get());
    if used > total {
        return Err(Defect::expected("bytes_used of device item", total, used));
    }
    Ok(())
}

pub(super) fn check_dev_extent(place: ItemPlace<'_>, key: &Key, extent: &DevExtent) -> Result<(), Defect> {
    if extent.chunk_tree != RootId::CHUNK_TREE {
        return Err(Defect::new("chunk_tree of device extent", extent.chunk_tree.get()));
    }
    if extent.chunk_objectid != ObjectId::FIRST_CHUNK_TREE {
        return Err(Defect::new("chunk_objectid of device extent", extent.chunk_objectid.get()));
    }
    if !place.is_aligned(extent.chunk_offset.get()) {
        return Err(Defect::new("chunk_offset of device extent", extent.chunk_offset.get()));
    }
    if place.sectors_end(key.offset(), extent.length.get()).is_none() {
        return Err(Defect::new("length of device extent", extent.length.get()));
    }
    let previous = place.previous_of_type(KeyType::DEV_EXTENT);
    let Some((previous, data)) = previous.filter(|(previous, _)| previous.objectid == key.objectid) else {
        return Ok(());
    };
    let Item::DevExtent(before) = Item::parse(&previous, data)? else { return Ok(()) };
    let end = previous.offset().saturating_add(before.length.get());
    if end > key.offset() {
        return Err(Defect::expected("device extent lies over the one before", end, key.offset()));
    }
    Ok(())
}

pub(super) fn check_block_group(
    place: ItemPlace<'_>,
    key: &Key,
    group: &BlockGroupItem,
) -> Result<(), Defect> {
    let length = key.offset();
    if place.sectors_end(key.objectid.get(), length).is_none() {
        return Err(Defect::new("range of block group", length));
    }
    if group.chunk_objectid != ObjectId::FIRST_CHUNK_TREE {
        return Err(Defect::new("chunk_objectid of block group", group.chunk_objectid.get()));
    }
    if group.used.get() > length {
        return Err(Defect::expected("used of block group", length, group.used.get()));
    }
    check_content(group.block_group_type())?;
    check_profile(group.block_group_type()).map(|_| ())
}

pub(super) fn check_replace(state: &DevReplaceItem) -> Result<(), Defect> {
    let found = state.replace_state.get();
    if found > REPLACE_STATE_MAX {
        return Err(Defect::expected("state of a device replacement", REPLACE_STATE_MAX, found));
    }
    Ok(())
}
