//! Trees and caches that are made anew, for all that they hold is known from elsewhere; sizes of devices.

use crate::Step;
use crate::error::RescueError;
use crate::patient::Patient;
use crate::transaction::{change, change_sizes};
use brindle_ondisk::item::{ExtentDataRef, FileExtent};
use brindle_ondisk::{CompatRo, Item, Key, KeyType, ObjectId, RootId, Uuid, to_usize};
use brindle_tree::{DataRange, Editor, Readahead, Recount, Roots, Store, TreeError, Verdict};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Version of the free space cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceCache {
    /// Files of the tree of roots.
    V1,
    /// The free space tree.
    V2,
}

/// Removes the free space cache of version 1, or makes the free space tree anew (`clear-space-cache`).
///
/// # Errors
/// Those of [`change`]; a pool that has no free space tree.
pub fn clear_space_cache(patient: &Patient, version: SpaceCache) -> Result<Vec<Step>, RescueError> {
    match version {
        SpaceCache::V1 => {
            let removed = change(patient, Recount::default(), remove_caches)?;
            let step =
                || Step::new(format!("{removed} free space caches (version 1) are removed"), "asked for");
            Ok((removed > 0).then(step).into_iter().collect())
        }
        SpaceCache::V2 => {
            let recount = Recount { space: true, devices: false };
            let has_tree = change(patient, recount, |editor| {
                Ok(editor.store().superblock().compat_ro().contains(CompatRo::FREE_SPACE_TREE))
            })?;
            if !has_tree {
                let why = "the pool has no free space tree (cache of version 2)".to_owned();
                return Err(RescueError::Refused(why));
            }
            Ok(vec![Step::new("the free space tree is made anew from the extent tree", "asked for")])
        }
    }
}

/// Sets sizes of devices and the totals of the superblock right (`fix-device-size`).
///
/// # Errors
/// Those of [`change`]; a chunk that lies behind the end of its device.
pub fn fix_device_size(patient: &Patient) -> Result<Vec<Step>, RescueError> {
    let before = devices(patient)?;
    for (devid, device) in &before.devices {
        if device.end > device.room {
            let why = format!(
                "devid {devid}: a chunk ends at {}, and the device at {}: make the device as large as it was",
                device.end, device.room
            );
            return Err(RescueError::Refused(why));
        }
    }
    change_sizes(patient)?;
    let after = devices(patient)?;
    let mut steps = Vec::new();
    let mut compare = |what: String, before: u64, after: u64| {
        if before != after {
            steps.push(Step::new(format!("{what} is {after}"), format!("it was {before}")));
        }
    };
    for (devid, device) in &before.devices {
        let Some(now) = after.devices.get(devid) else { continue };
        compare(format!("devid {devid}: total_bytes"), device.total_bytes, now.total_bytes);
        compare(format!("devid {devid}: bytes_used"), device.used_bytes, now.used_bytes);
    }
    compare("superblock: total_bytes".to_owned(), before.total_bytes, after.total_bytes);
    compare("superblock: num_devices".to_owned(), before.count, after.count);
    Ok(steps)
}

/// Sizes that a pool has written down.
struct Sizes {
    devices: BTreeMap<u64, DeviceSize>,
    total_bytes: u64,
    count: u64,
}

struct DeviceSize {
    total_bytes: u64,
    used_bytes: u64,
    /// The device's own size.
    room: u64,
    /// End of its last chunk.
    end: u64,
}

fn devices(patient: &Patient) -> Result<Sizes, RescueError> {
    let pool = brindle_tree::Pool::open(patient.readable(), &brindle_tree::OpenOptions::default())?;
    let superblock = pool.superblock();
    let mut devices = BTreeMap::new();
    let mut cursor = pool.cursor(&pool.tree(RootId::CHUNK_TREE)?, Readahead::None);
    cursor.seek(&Key::first_of(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM))?;
    let present = pool.volume().devices();
    let given = patient.readable();
    let stripes: Vec<_> = pool.volume().chunks().into_iter().flat_map(|chunk| chunk.stripes).collect();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == ObjectId::DEV_ITEMS) {
        if let Ok(Item::Device(item)) = Item::parse(&key, data) {
            let member = present.iter().find(|device| device.devid == item.devid && !device.missing);
            let device = member.and_then(|member| given.iter().find(|device| device.name() == member.name));
            let ends = stripes.iter().filter(|stripe| stripe.devid == item.devid);
            let end = ends.map(|stripe| stripe.physical.get() + stripe.length).max().unwrap_or(0);
            let size = DeviceSize {
                total_bytes: item.total_bytes.get(),
                used_bytes: item.bytes_used.get(),
                room: device.map_or(u64::MAX, |device| device.size_bytes()),
                end,
            };
            devices.insert(item.devid.get(), size);
        }
        cursor.next()?;
    }
    Ok(Sizes { devices, total_bytes: superblock.total_bytes.get(), count: superblock.num_devices.get() })
}

/// Makes the UUID tree anew from the root items (`clear-uuid-tree`).
///
/// # Errors
/// Those of [`change`].
pub fn clear_uuid_tree(patient: &Patient) -> Result<Vec<Step>, RescueError> {
    let count = change(patient, Recount::default(), remake_uuid_tree)?;
    let change = format!("the UUID tree is made anew from root items, with {count} UUIDs");
    Ok(vec![Step::new(change, "asked for")])
}

/// Makes the UUID tree anew; number of its UUIDs.
pub(crate) fn remake_uuid_tree(editor: &Editor<'_>) -> Result<usize, TreeError> {
    let entries = uuid_entries(editor.store())?;
    let tree = Roots::of(editor).replant(RootId::UUID_TREE)?;
    let most = to_usize((editor.store().nodesize() / 2).into());
    for (key, mut ids) in entries.iter().map(|(key, ids)| (key, ids.clone())) {
        // An index: what a leaf can't hold is found by its root item alone.
        ids.truncate(most / size_of::<u64>());
        editor.insert(&tree, key, ids.as_bytes())?;
    }
    Ok(entries.len())
}

/// Subvolumes by the keys of their UUIDs.
fn uuid_entries(store: &Store) -> Result<BTreeMap<Key, Vec<RootId>>, TreeError> {
    let mut entries: BTreeMap<Key, Vec<RootId>> = BTreeMap::new();
    let mut cursor = store.cursor(&store.tree(RootId::ROOT_TREE)?, Readahead::Forward);
    cursor.seek(&Key::MIN)?;
    while let Some((key, data)) = cursor.item() {
        let id = RootId::new(key.objectid.get());
        let is_subvolume = id.is_file_tree() && id != RootId::DATA_RELOC_TREE;
        if key.item_type == KeyType::ROOT_ITEM && is_subvolume {
            let item =
                Item::parse(&key, data).map_err(|defect| TreeError::item(RootId::ROOT_TREE, key, defect))?;
            if let Item::Root(root) = item {
                if root.refs.get() > 0 {
                    for (uuid, kind) in [
                        (root.uuid, KeyType::UUID_KEY_SUBVOL),
                        (root.received_uuid, KeyType::UUID_KEY_RECEIVED_SUBVOL),
                    ] {
                        if !uuid.is_nil() {
                            entries.entry(uuid_key(uuid, kind)).or_default().push(id);
                        }
                    }
                }
            }
        }
        cursor.next()?;
    }
    Ok(entries)
}

/// The key of a UUID: its halves are the outer parts.
fn uuid_key(uuid: Uuid, kind: KeyType) -> Key {
    let half = |from: usize| {
        let bytes = uuid.0[from..from + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    Key::new(ObjectId::new(half(0)), kind, half(8))
}

/// Removes all free space caches of version 1; their number.
fn remove_caches(editor: &Editor<'_>) -> Result<usize, TreeError> {
    let store = editor.store();
    let tree = store.tree(RootId::ROOT_TREE)?;
    let mut inodes = Vec::new();
    let mut cursor = store.cursor(&tree, Readahead::Forward);
    cursor.seek(&Key::new(ObjectId::FREE_SPACE, KeyType(0), 0))?;
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == ObjectId::FREE_SPACE) {
        if let Ok(Item::FreeSpaceHeader(header)) = Item::parse(&key, data) {
            inodes.push(header.location.objectid);
        }
        cursor.next()?;
    }
    let (first, last) = (
        Key::new(ObjectId::FREE_SPACE, KeyType(0), 0),
        Key::new(ObjectId::FREE_SPACE, KeyType(u8::MAX), u64::MAX),
    );
    editor.remove_range(&tree, &first, &last, |_, _| Verdict::Remove)?;
    for inode in &inodes {
        let mut extents = Vec::new();
        let (first, last) = (Key::new(*inode, KeyType(0), 0), Key::new(*inode, KeyType(u8::MAX), u64::MAX));
        editor.remove_range(&tree, &first, &last, |key, data| {
            if let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) = Item::parse(key, data) {
                if extent.disk_bytenr.get() != 0 {
                    let reference = ExtentDataRef {
                        root: RootId::ROOT_TREE,
                        objectid: *inode,
                        offset: key.offset().wrapping_sub(extent.offset.get()).into(),
                        count: 1.into(),
                    };
                    let range = DataRange { start: extent.disk_bytenr, length: extent.disk_num_bytes.get() };
                    extents.push((range, reference));
                }
            }
            Verdict::Remove
        })?;
        for (range, reference) in extents {
            editor.references().drop_data(range, &reference);
        }
    }
    Ok(inodes.len())
}
