//! Items of space that a commit writes: chunks and device extents, device items, block group items, free space.
//!
//! Each call writes what has changed since the one before; to write is to change trees, and so to use space, and so
//! it takes several rounds, each with less to do.

use crate::editor::{Editor, Verdict};
use crate::error::TreeError;
use crate::space::Space;
use crate::space::chunks::describe;
use crate::space::free_space::{Bounds, Edits, FreeSpace, difference};
use crate::space::load::read_items;
use crate::space::state::AbsentChange;
use crate::space::unwritten::{DeviceChange, GroupChange, Unwritten};
use crate::tree::Tree;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::item::{BlockGroupItem, DevExtent, DevItem, InodeItem, WriteBackHeader};
use brindle_ondisk::{Defect, DevId, Generation, Item, Key, KeyType, Logical, ObjectId, RootId};
use std::collections::BTreeMap;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Writes items of space in the running transaction.
pub(super) struct SpaceItems<'p> {
    editor: Editor<'p>,
    space: &'p Space,
}

impl<'p> SpaceItems<'p> {
    /// Items of the space of a pool, to be written by an editor.
    pub(super) fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor, space: &editor.changes.space }
    }

    /// Writes what has changed since the last call: free space tree, block groups, chunks and devices; whether there was
    /// anything.
    pub(super) fn write(&self) -> Result<bool, TreeError> {
        let (editor, space) = (&self.editor, self.space);
        let work = space.take_unwritten(editor.load())?;
        if work.is_empty() {
            return Ok(false);
        }
        self.write_chunks(&work)?;
        self.write_devices(&work.devices)?;
        write_absent(editor, &work.absent)?;
        if let Some(item) = &work.write_back {
            write_write_back_item(editor, item.as_deref())?;
        }
        let groups = editor.store.tree(space.block_group_tree())?;
        for group in &work.groups {
            write_block_group(editor, &groups, group)?;
        }
        for group in &work.removed {
            editor.remove(&groups, &describe(group).0)?;
        }
        let sectorsize = editor.store.superblock().sectorsize.get().into();
        if space.has_free_space_tree() {
            for group in &work.groups {
                self.write_free_space(group)?;
            }
            for group in &work.removed {
                self.forget_free_space(group.bounds(sectorsize))?;
            }
        } else {
            for group in &work.groups {
                invalidate_cache(editor, group.bounds.start)?;
            }
        }
        space.note_removed(work.removed);
        Ok(true)
    }

    /// Chunks, and their pieces of devices.
    fn write_chunks(&self, work: &Unwritten) -> Result<(), TreeError> {
        if work.chunks.is_empty() && work.removed.is_empty() {
            return Ok(());
        }
        let chunks = self.editor.store.tree(RootId::CHUNK_TREE)?;
        let devices = self.editor.store.tree(RootId::DEV_TREE)?;
        let chunk_key = |start| Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start);
        let extent_key =
            |(devid, start): &(DevId, u64)| Key::new(ObjectId::new(devid.get()), KeyType::DEV_EXTENT, *start);
        for group in &work.removed {
            self.editor.remove(&chunks, &chunk_key(group.start))?;
            for stripe in &group.stripes {
                self.editor.remove(&devices, &extent_key(stripe))?;
            }
        }
        for (start, item) in &work.chunks {
            self.editor.insert(&chunks, &chunk_key(*start), item)?;
        }
        for group in work.groups.iter().filter(|group| group.is_new) {
            let item = DevExtent {
                chunk_tree: RootId::CHUNK_TREE,
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE,
                chunk_offset: Logical::new(group.bounds.start),
                length: U64::new(group.stripe_bytes),
                chunk_tree_uuid: work.chunk_tree_uuid,
            };
            for stripe in &group.stripes {
                self.editor.insert(&devices, &extent_key(stripe), item.as_bytes())?;
            }
        }
        Ok(())
    }

    fn write_devices(&self, devices: &[DeviceChange]) -> Result<(), TreeError> {
        let tree = self.editor.store.tree(RootId::CHUNK_TREE)?;
        for device in devices {
            let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, device.devid.get());
            let found = self.editor.update(&tree, &key, |data| {
                if let Ok((item, _)) = DevItem::mut_from_prefix(data) {
                    item.device_type.set(device.stored_type);
                    item.total_bytes.set(device.total_bytes);
                    item.bytes_used.set(device.used_bytes);
                }
            })?;
            if found.is_none() {
                let defect = Defect::new("no item of device", device.devid.get());
                return Err(TreeError::item(RootId::CHUNK_TREE, key, defect));
            }
            // Each device's superblock has a copy.
            self.editor.store.volume().update_device(device.devid, device.total_bytes, device.used_bytes);
            self.editor.store.volume().set_device_type(device.devid, device.stored_type);
        }
        Ok(())
    }

    /// Brings the free space tree up to date about one group.
    fn write_free_space(&self, group: &GroupChange) -> Result<(), TreeError> {
        if group.delta.is_empty() && !group.is_new && group.recounted.is_none() {
            return Ok(());
        }
        let bounds = group.bounds;
        let _loading = self.space.lock_free_space();
        let before = read_items(self.editor.store, bounds)?;
        let mut space = if let Some(ranges) = &group.recounted {
            FreeSpace { ranges: ranges.clone(), uses_bitmaps: false }
        } else if group.is_new {
            // What mkfs may have left behind about a group of long ago does not count.
            let ranges = IntervalSet::of(Interval::new(bounds.start, bounds.length));
            FreeSpace { ranges, uses_bitmaps: false }
        } else {
            FreeSpace::parse(bounds, &before)?
        };
        group.delta.apply(&mut space.ranges).map_err(|wrong| {
            let problem = if wrong.is_free {
                "it is freed, and free already by the free space tree"
            } else {
                "it is in use, and the free space tree does not have it as free before"
            };
            TreeError::Space { start: Logical::new(wrong.start), length: wrong.length, problem }
        })?;
        space.choose_layout(bounds);
        apply_edits(&self.editor, &difference(&before, space.items(bounds)))
    }

    fn forget_free_space(&self, bounds: Bounds) -> Result<(), TreeError> {
        let tree = self.editor.store.tree(RootId::FREE_SPACE_TREE)?;
        self.editor.remove_range(&tree, &bounds.first_key(), &bounds.last_key(), |_, _| Verdict::Remove)?;
        Ok(())
    }
}

/// Stores the hints of missing devices. A device that was removed meanwhile has no item any more.
fn write_absent(editor: &Editor<'_>, changes: &BTreeMap<DevId, AbsentChange>) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::CHUNK_TREE)?;
    let volume = editor.store.volume();
    for (devid, change) in changes {
        let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, devid.get());
        let changed = editor.update(&tree, &key, |data| {
            let (item, _) = DevItem::mut_from_prefix(data).ok()?;
            item.bytes_used.set(item.bytes_used.get().saturating_sub(change.given_up));
            if let Some(hint) = change.hint {
                item.device_type.set(hint);
            }
            Some(*item)
        })?;
        if let Some(item) = changed.flatten() {
            volume.update_device(*devid, item.total_bytes.get(), item.bytes_used.get());
            volume.set_device_type(*devid, item.device_type.get());
        }
    }
    Ok(())
}

/// Stores which chunks are of the write-back tier, and its settings.
fn write_write_back_item(editor: &Editor<'_>, item: Option<&[u8]>) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::DEV_TREE)?;
    let key = WriteBackHeader::KEY;
    match item {
        Some(item) => editor.replace(&tree, &key, item),
        None if editor.store.with_item(&tree, &key, |_| ())?.is_some() => {
            editor.remove(&tree, &key).map(|_| ())
        }
        None => Ok(()),
    }
}

/// Invalidates the version 1 cache of a group, if there is one. That the superblock says that caches are of the past
/// is not enough: the kernel says otherwise with its next commit, and leaves alone the cache of a group that it did
/// not change.
fn invalidate_cache(editor: &Editor<'_>, start: u64) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::ROOT_TREE)?;
    let header = Key::new(ObjectId::FREE_SPACE, KeyType(0), start);
    let parsed = editor.store.with_item(&tree, &header, |data| match Item::parse(&header, data) {
        Ok(Item::FreeSpaceHeader(item)) => Some(item.location),
        _ => None,
    })?;
    let Some(inode) = parsed.flatten() else { return Ok(()) };
    let is_valid = editor.store.with_item(&tree, &inode, |data| {
        InodeItem::ref_from_prefix(data).is_ok_and(|(item, _)| item.generation != Generation::new(0))
    })?;
    if is_valid == Some(true) {
        editor.update(&tree, &inode, |data| {
            if let Ok((item, _)) = InodeItem::mut_from_prefix(data) {
                item.generation = Generation::new(0);
            }
        })?;
    }
    Ok(())
}

fn write_block_group(editor: &Editor<'_>, tree: &Tree, group: &GroupChange) -> Result<(), TreeError> {
    if group.is_new {
        let item = BlockGroupItem {
            used: U64::new(group.used),
            chunk_objectid: ObjectId::FIRST_CHUNK_TREE,
            flags: U64::new(group.kind.bits()),
        };
        return editor.insert(tree, &group.key, item.as_bytes());
    }
    if !group.is_used_changed {
        return Ok(());
    }
    let found = editor.update(tree, &group.key, |data| {
        if let Ok((item, _)) = BlockGroupItem::mut_from_prefix(data) {
            item.used.set(group.used);
        }
    })?;
    found.ok_or_else(|| TreeError::item(tree.id(), group.key, Defect::new("block group item is gone", 0)))
}

/// Applies edits. New items come in before old ones go: a leaf whose items are all replaced would else leave the
/// tree, and another one join it, whose own places change the free space again, round after round.
pub(crate) fn apply_edits(editor: &Editor<'_>, edits: &Edits) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::FREE_SPACE_TREE)?;
    if !edits.added.is_empty() {
        let added: Vec<(Key, &[u8])> =
            edits.added.iter().map(|(key, data)| (*key, data.as_slice())).collect();
        editor.insert_all(&tree, &added)?;
    }
    for (key, data) in &edits.changed {
        editor.replace(&tree, key, data)?;
    }
    for key in &edits.removed {
        editor.remove(&tree, key)?;
    }
    Ok(())
}
