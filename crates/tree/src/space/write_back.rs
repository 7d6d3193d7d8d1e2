//! Items of space that a commit writes: chunks and device extents, device items, block group items, free space.
//!
//! Each call writes what has changed since the one before; to write is to change trees, and so to use space, and so
//! it takes several rounds, each with less to do.

use super::Space;
use super::chunks::describe;
use super::delta::Delta;
use super::free_space::{Bounds, Edits, FreeSpace, difference};
use super::group::Group;
use super::load::read_items;
use super::state::{AbsentChange, State};
use crate::editor::{Editor, Verdict};
use crate::error::TreeError;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::item::{BlockGroupItem, DevExtent, DevItem, InodeItem, WriteBackHeader};
use brindle_ondisk::{
    BlockGroupType, Defect, DevId, Generation, Item, Key, KeyType, Logical, ObjectId, RootId, Uuid,
};
use std::collections::BTreeMap;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Changes since the last call.
#[derive(Debug, Default)]
struct Work {
    chunks: Vec<(u64, Vec<u8>)>,
    removed: Vec<Group>,
    devices: Vec<DeviceChange>,
    absent: BTreeMap<DevId, AbsentChange>,
    groups: Vec<GroupChange>,
    /// The item of the write-back tier, if it has changed; `None` inside if it goes.
    write_back: Option<Option<Vec<u8>>>,
    chunk_tree_uuid: Uuid,
}

#[derive(Debug)]
struct DeviceChange {
    devid: DevId,
    stored_type: u64,
    total_bytes: u64,
    used_bytes: u64,
}

#[derive(Debug)]
struct GroupChange {
    bounds: Bounds,
    key: Key,
    kind: BlockGroupType,
    used: u64,
    is_new: bool,
    is_used_changed: bool,
    delta: Delta,
    /// For a new one: where its chunk lies.
    stripes: Vec<(DevId, u64)>,
    stripe_bytes: u64,
}

impl Work {
    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
            && self.removed.is_empty()
            && self.devices.is_empty()
            && self.absent.is_empty()
            && self.groups.is_empty()
            && self.write_back.is_none()
    }
}

impl Space {
    /// Returns true if there is anything to write. A group that may have become empty is no reason: it goes with the
    /// next transaction that has one.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        !state.unwritten_chunks.is_empty()
            || !state.to_remove.is_empty()
            || state.devices.iter().any(|device| device.is_changed)
            || !state.absent.is_empty()
            || state.groups().any(|group| group.written_used != Some(group.used) || !group.delta.is_empty())
            || state.write_back.is_changed
            || state.has_drained()
    }

    /// Writes what has changed since the last call; whether there was anything.
    pub(super) fn write_changes(&self, editor: &Editor<'_>) -> Result<bool, TreeError> {
        let load = editor.load();
        let work = {
            let mut state = self.lock();
            if let Some((extent, problem)) = state.damage {
                let start = Logical::new(extent.start);
                return Err(TreeError::Space { start, length: extent.length(), problem });
            }
            if std::mem::take(&mut state.may_remove) || state.has_drained() {
                let needed = self.needed(&state, load, 0) + self.kept_back(&state).freeing;
                self.remove_empty(&mut state, needed);
            }
            state.forget_waiting_times();
            take_work(&mut state, self.sectorsize)
        };
        if work.is_empty() {
            return Ok(false);
        }
        self.write_chunks(editor, &work)?;
        self.write_devices(editor, &work.devices)?;
        write_absent(editor, &work.absent)?;
        if let Some(item) = &work.write_back {
            write_write_back_item(editor, item.as_deref())?;
        }
        let groups = editor.store.tree(self.block_group_tree)?;
        for group in &work.groups {
            write_block_group(editor, &groups, group)?;
        }
        for group in &work.removed {
            editor.remove(&groups, &describe(group).0)?;
        }
        if self.has_free_space_tree {
            for group in &work.groups {
                self.write_free_space(editor, group)?;
            }
            for group in &work.removed {
                self.forget_free_space(editor, group.bounds(self.sectorsize))?;
            }
        } else {
            for group in &work.groups {
                invalidate_cache(editor, group.bounds.start)?;
            }
        }
        self.lock().removed.extend(work.removed);
        Ok(true)
    }

    /// Chunks, and their pieces of devices.
    fn write_chunks(&self, editor: &Editor<'_>, work: &Work) -> Result<(), TreeError> {
        if work.chunks.is_empty() && work.removed.is_empty() {
            return Ok(());
        }
        let chunks = editor.store.tree(RootId::CHUNK_TREE)?;
        let devices = editor.store.tree(RootId::DEV_TREE)?;
        let chunk_key = |start| Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start);
        let extent_key =
            |(devid, start): &(DevId, u64)| Key::new(ObjectId::new(devid.get()), KeyType::DEV_EXTENT, *start);
        for group in &work.removed {
            editor.remove(&chunks, &chunk_key(group.start))?;
            for stripe in &group.stripes {
                editor.remove(&devices, &extent_key(stripe))?;
            }
        }
        for (start, item) in &work.chunks {
            editor.insert(&chunks, &chunk_key(*start), item)?;
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
                editor.insert(&devices, &extent_key(stripe), item.as_bytes())?;
            }
        }
        Ok(())
    }

    fn write_devices(&self, editor: &Editor<'_>, devices: &[DeviceChange]) -> Result<(), TreeError> {
        let tree = editor.store.tree(RootId::CHUNK_TREE)?;
        for device in devices {
            let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, device.devid.get());
            let found = editor.update(&tree, &key, |data| {
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
            editor.store.volume().update_device(device.devid, device.total_bytes, device.used_bytes);
            editor.store.volume().set_device_type(device.devid, device.stored_type);
        }
        Ok(())
    }

    /// Brings the free space tree up to date about one group.
    fn write_free_space(&self, editor: &Editor<'_>, group: &GroupChange) -> Result<(), TreeError> {
        if group.delta.is_empty() && !group.is_new {
            return Ok(());
        }
        let bounds = group.bounds;
        let _loading = self.loading.lock();
        let before = read_items(editor.store, bounds)?;
        let mut space = if group.is_new {
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
        apply_edits(editor, &difference(&before, space.items(bounds)))
    }

    fn forget_free_space(&self, editor: &Editor<'_>, bounds: Bounds) -> Result<(), TreeError> {
        let tree = editor.store.tree(RootId::FREE_SPACE_TREE)?;
        editor.remove_range(&tree, &bounds.first_key(), &bounds.last_key(), |_, _| Verdict::Remove)?;
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

/// Takes what has changed; it counts as written from then on, for if it can't be, nothing is any more.
fn take_work(state: &mut State, sectorsize: u64) -> Work {
    let mut work = Work {
        chunks: std::mem::take(&mut state.unwritten_chunks).into_iter().collect(),
        removed: std::mem::take(&mut state.to_remove),
        absent: std::mem::take(&mut state.absent),
        chunk_tree_uuid: state.chunk_tree_uuid,
        ..Work::default()
    };
    if std::mem::take(&mut state.write_back.is_changed) {
        work.write_back = Some(state.write_back.item());
    }
    for start in std::mem::take(&mut state.write_back.given_up) {
        state.change(start, |group| group.is_fresh = true);
    }
    for device in state.devices.iter_mut().filter(|device| device.is_changed) {
        device.is_changed = false;
        let (devid, stored_type) = (device.devid, device.stored_type);
        let (total_bytes, used_bytes) = (device.total_bytes, device.used_bytes);
        work.devices.push(DeviceChange { devid, stored_type, total_bytes, used_bytes });
    }
    let is_changed = |group: &&Group| group.written_used != Some(group.used) || !group.delta.is_empty();
    let changed: Vec<u64> = state.groups().filter(is_changed).map(|group| group.start).collect();
    for start in changed {
        let change = state.change(start, |group| take_group(group, sectorsize));
        work.groups.extend(change);
    }
    work
}

fn take_group(group: &mut Group, sectorsize: u64) -> GroupChange {
    let (key, kind) = describe(group);
    let before = group.written_used.replace(group.used);
    let is_new = before.is_none();
    GroupChange {
        bounds: group.bounds(sectorsize),
        key,
        kind,
        used: group.used,
        is_new,
        is_used_changed: before != Some(group.used),
        delta: std::mem::take(&mut group.delta),
        stripes: if is_new { group.stripes.clone() } else { Vec::new() },
        stripe_bytes: group.stripe_bytes,
    }
}

fn write_block_group(
    editor: &Editor<'_>,
    tree: &crate::tree::Tree,
    group: &GroupChange,
) -> Result<(), TreeError> {
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
pub(super) fn apply_edits(editor: &Editor<'_>, edits: &Edits) -> Result<(), TreeError> {
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
