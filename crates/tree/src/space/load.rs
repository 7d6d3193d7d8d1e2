//! Reading what is known of space: block groups and devices when the pool is opened, free ranges of a block group
//! when something is first to be taken from it.
//!
//! Free ranges are read from the free space tree as it is now. What it does not know yet is only what the running
//! transaction has freed (for nothing is taken from a block group before its free ranges are read), and that is
//! pinned anyway; so what is read, less what is pinned, is free, whatever the transaction is about to write.

use super::FreeRanges;
use super::Space;
use super::delta::Delta;
use super::device::{Device, device_of};
use super::estimate::TreeSizes;
use super::free_space::{Bounds, FreeSpace, FreeSpaceItem};
use super::group::{Group, Role};
use super::state::State;
use super::superblocks::excluded;
use super::tiers::placement_of;
use super::writeback_tier::WriteBackTier;
use crate::error::TreeError;
use crate::options::{Recount, WriterOptions};
use crate::settings;
use crate::store::Store;
use crate::store::cursor::Readahead;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::item::BlockGroupItem;
use brindle_ondisk::{CompatRo, Defect, Item, Key, KeyType, ObjectId, Physical, RootId};
use brindle_policy::class::DeviceClasses;
use brindle_policy::placement::PlacementClass;
use brindle_volume::{ChunkStatus, WritableDeviceStatus};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Number of free ranges that stay in memory after a commit.
const RANGES_MAX: usize = 1 << 20;

impl State {
    /// Forgets free ranges, if there are too many: of groups of which the free space tree knows everything, those
    /// with the most ranges first.
    pub(super) fn forget_ranges(&mut self) {
        let ranges = |group: &Group| group.free.as_ref().map_or(0, FreeRanges::len);
        let mut count: usize = self.groups().map(ranges).sum();
        if count <= self.ranges_max {
            return;
        }
        let is_settled =
            |group: &&Group| group.free.is_some() && group.reserved == 0 && group.delta.is_empty();
        let mut settled: Vec<(usize, u64)> =
            self.groups().filter(is_settled).map(|group| (ranges(group), group.start)).collect();
        settled.sort_unstable();
        while let Some((ranges, start)) = settled.pop().filter(|_| count > self.ranges_max / 2) {
            self.change(start, |group| (group.free, group.log_reserve) = (None, None));
            count -= ranges;
        }
    }
}

impl Space {
    /// Block groups, devices and the sizes of trees.
    pub(super) fn load_state(&self, store: &Store, options: &WriterOptions) -> Result<State, TreeError> {
        let mut state = State::default();
        state.ranges_max = RANGES_MAX;
        state.sizes = self.tree_sizes(store)?;
        state.devices = load_devices(store, &options.classes)?;
        state.placement = placement_of(store, options.placement);
        state.write_back = WriteBackTier::open(store, options.write_back)?;
        state.log_profile = match options.log_profile {
            Some(told) => told,
            None => settings::stored_log_profile(store)?,
        };
        state.classes = settings::stored_classes(store)?.unwrap_or_else(|problem| {
            tracing::warn!("the classes of devices that the pool stores count for nothing: {problem}");
            DeviceClasses::default()
        });
        self.update_tiers(&mut state);
        for chunk in store.volume().chunks() {
            state.add(self.load_group(store, &chunk, options.recount)?);
        }
        self.recount(store, &mut state, options.recount)?;
        let superblock = store.superblock();
        for chunk in superblock.system_chunks() {
            let (key, chunk) = chunk.map_err(|defect| {
                TreeError::item(
                    RootId::CHUNK_TREE,
                    Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, 0),
                    defect,
                )
            })?;
            let item = [chunk.header.as_bytes(), chunk.stripes.as_bytes()].concat();
            state.system_chunks.insert(key.offset(), item);
        }
        let root = store.tree(RootId::CHUNK_TREE)?.root();
        state.chunk_tree_uuid = store.read_node(&root.expectation())?.header().chunk_tree_uuid;
        Ok(state)
    }

    /// Sizes of the trees that a commit changes by itself.
    pub(super) fn tree_sizes(&self, store: &Store) -> Result<TreeSizes, TreeError> {
        let blocks = |id| {
            let item = store.root_item(id)?;
            Ok::<u64, TreeError>(
                item.map_or(0, |(_, item)| item.bytes_used.get() / u64::from(store.nodesize())),
            )
        };
        Ok(TreeSizes {
            extents: blocks(RootId::EXTENT_TREE)?,
            free_space: if self.has_free_space_tree { blocks(RootId::FREE_SPACE_TREE)? } else { 0 },
            block_groups: blocks(self.block_group_tree)?,
            checksums: blocks(RootId::CSUM_TREE)?,
        })
    }

    fn load_group(&self, store: &Store, chunk: &ChunkStatus, recount: Recount) -> Result<Group, TreeError> {
        let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.length);
        let tree = store.tree(self.block_group_tree)?;
        let found = store.with_item(&tree, &key, |data| match Item::parse(&key, data) {
            Ok(Item::BlockGroup(item)) => Ok(*item),
            Ok(_) => Err(Defect::new("not a block group item", 0)),
            Err(defect) => Err(defect),
        })?;
        let item =
            found.unwrap_or_else(|| Err(Defect::new("chunk without block group item, length", chunk.length)));
        let refuse = |defect| TreeError::item(self.block_group_tree, key, defect);
        let item: BlockGroupItem = item.map_err(refuse)?;
        if item.block_group_type() != chunk.kind {
            let (expected, found) = (chunk.kind.bits(), item.flags.get());
            return Err(refuse(Defect::expected("flags of block group", expected, found)));
        }
        if item.used.get() > chunk.length && !recount.space {
            return Err(refuse(Defect::new("more is used than the block group has", item.used.get())));
        }
        let mut group = new_group(chunk);
        group.used = item.used.get();
        group.written_used = Some(group.used);
        Ok(group)
    }

    /// Looks up the free ranges of a group, unless that is done already.
    pub(super) fn look_up(&self, store: &Store, start: u64) -> Result<(), TreeError> {
        let _loading = self.loading.lock();
        let bounds = match self.lock().group(start) {
            Some(group) if group.free.is_none() => group.bounds(self.sectorsize),
            _ => return Ok(()),
        };
        let found = if self.has_free_space_tree {
            FreeSpace::parse(bounds, &read_items(store, bounds)?)?.ranges
        } else {
            self.unused_ranges(store, bounds)?
        };
        let mut state = self.lock();
        let pinned = state.pinned_within(Interval::new(bounds.start, bounds.length));
        let filled = state.change(start, |group| {
            let mut free: FreeRanges = found.iter().collect();
            for span in pinned.into_iter().chain(group.excluded.iter()) {
                free.remove(span);
            }
            let (expected, found) = (group.unused(), free.bytes());
            group.free = Some(free);
            (expected, found)
        });
        if let Some((expected, found)) = filled.filter(|(expected, found)| expected != found) {
            // Taking less for free than there is loses some room; taking more is noticed when an extent is recorded.
            tracing::warn!(
                "block group at logical {start}: {found} bytes are free, and {expected} should be"
            );
        }
        Ok(())
    }

    /// Ranges that no extent of the extent tree holds.
    fn unused_ranges(&self, store: &Store, bounds: Bounds) -> Result<IntervalSet<u64>, TreeError> {
        let mut free = IntervalSet::of(Interval::new(bounds.start, bounds.length));
        let tree = store.tree(RootId::EXTENT_TREE)?;
        let mut cursor = store.cursor(&tree, Readahead::Forward);
        cursor.seek(&bounds.first_key())?;
        while let Some(key) = cursor.key().filter(|key| *key <= bounds.last_key()) {
            let length = match key.item_type {
                KeyType::EXTENT_ITEM => key.offset(),
                KeyType::METADATA_ITEM => store.nodesize().into(),
                _ => 0,
            };
            let start = key.objectid.get();
            free.remove(start..start.saturating_add(length));
            cursor.next()?;
        }
        Ok(free)
    }
}

/// The items of the free space tree about one block group.
pub(crate) fn read_items(store: &Store, bounds: Bounds) -> Result<Vec<FreeSpaceItem>, TreeError> {
    let tree = store.tree(RootId::FREE_SPACE_TREE)?;
    let mut cursor = store.cursor(&tree, Readahead::Forward);
    cursor.seek(&bounds.first_key())?;
    let mut items = Vec::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| *key <= bounds.last_key()) {
        items.push((key, data.to_vec()));
        cursor.next()?;
    }
    Ok(items)
}

/// Block group of a chunk, as if it were empty and its free ranges not looked up.
pub(super) fn new_group(chunk: &ChunkStatus) -> Group {
    let span = Interval::new(chunk.start.get(), chunk.length);
    let places: Vec<u64> = chunk.stripes.iter().map(|stripe| stripe.physical.get()).collect();
    let stripe_bytes = chunk.stripes.first().map_or(0, |stripe| stripe.length);
    Group {
        start: span.start,
        length: chunk.length,
        kind: chunk.kind,
        writable: chunk.writable,
        role: Role::Open,
        stripes: chunk.stripes.iter().map(|stripe| (stripe.devid, stripe.physical.get())).collect(),
        stripe_bytes,
        used: 0,
        reserved: 0,
        pinned: 0,
        excluded: excluded(span, chunk.kind, &places, stripe_bytes).into_iter().collect(),
        free: None,
        log_reserve: None,
        next: span.start,
        delta: Delta::default(),
        recounted: None,
        written_used: None,
        is_fresh: false,
        is_fast: false,
        rank: 0,
        is_write_back: false,
    }
}

/// The devices that may be written, and what of them belongs to no chunk.
/// `chosen`: the class that the user wants a device to have, by its name.
pub(super) fn load_devices(
    store: &Store,
    chosen: &BTreeMap<String, PlacementClass>,
) -> Result<Vec<Device>, TreeError> {
    let extent = |start: u64, length| {
        let end = Physical::new(start.saturating_add(length));
        Interval { start: Physical::new(start), end }
    };
    let mut extents: BTreeMap<u64, Vec<Interval<Physical>>> = BTreeMap::new();
    for chunk in store.volume().chunks() {
        for stripe in &chunk.stripes {
            extents.entry(stripe.devid.get()).or_default().push(extent(stripe.physical.get(), stripe.length));
        }
    }
    let tree = store.tree(RootId::DEV_TREE)?;
    let mut cursor = store.cursor(&tree, Readahead::Forward);
    cursor.seek(&Key::MIN)?;
    while let Some((key, data)) = cursor.item() {
        if key.item_type == KeyType::DEV_EXTENT {
            let item =
                Item::parse(&key, data).map_err(|defect| TreeError::item(RootId::DEV_TREE, key, defect))?;
            if let Item::DevExtent(item) = item {
                extents.entry(key.objectid.get()).or_default().push(extent(key.offset(), item.length.get()));
            }
        }
        cursor.next()?;
    }
    let device = |status: WritableDeviceStatus| {
        let extents = extents.get(&status.item.devid.get()).map(Vec::as_slice).unwrap_or_default();
        let chosen = chosen.get(&status.name).copied();
        device_of(&status, extents, chosen)
    };
    Ok(store.volume().chunk_devices().into_iter().map(device).collect())
}

/// Returns true if the free space tree is there and can be trusted; if not, it is left alone, and made anew by the
/// kernel.
pub(super) fn has_free_space_tree(store: &Store) -> bool {
    store.superblock().compat_ro().contains(CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID)
}
