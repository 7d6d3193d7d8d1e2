//! Summary of space, for people.

use super::Space;
use super::group::{Content, Group};
use super::state::{State, content};
use crate::store::Store;
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use brindle_policy::class::DeviceClasses;
use brindle_policy::placement::{
    AllocationHint, Fit, PlacementClass, PlacementMode, classes, room_at_best, room_for,
};
use std::collections::BTreeSet;

/// Summary of space, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceSummary {
    /// Block groups by content and profile.
    pub groups: Vec<GroupSummary>,
    /// Writable devices by devid.
    pub devices: Vec<DeviceSpace>,
    /// Data space that was promised and not taken yet, in bytes.
    pub promised_data_bytes: u64,
    /// Metadata space that running operations were promised, in bytes.
    pub promised_metadata_bytes: u64,
    /// Metadata space that is kept back so that files and snapshots can be deleted on a full pool, in bytes.
    pub kept_back_bytes: u64,
    /// Weight of a device's class.
    pub placement: PlacementMode,
    /// True if data placement distinguishes fast and bulk devices.
    pub has_tiers: bool,
    /// Classes of devices that the mount goes by.
    pub classes: DeviceClasses,
    /// Room for data on devices that are for data.
    pub data_room: Room,
    /// Room for small files' and marked data on fast devices.
    pub fast_data_room: Room,
    /// Room for metadata on devices that are for metadata.
    pub metadata_room: Room,
}

/// Room for new data or metadata, after the pending changes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Room in the preferred place, in bytes.
    pub preferred_bytes: u64,
    /// Room in any permitted place, in bytes.
    pub bytes: u64,
}

impl Room {
    /// Room that is left after `bytes` are written.
    const fn less(self, bytes: u64) -> Self {
        Self {
            preferred_bytes: self.preferred_bytes.saturating_sub(bytes),
            bytes: self.bytes.saturating_sub(bytes),
        }
    }
}

/// Over which devices block groups lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Only fast ones.
    Fast,
    /// Only others.
    Bulk,
    /// Both; or the pool makes no difference.
    #[default]
    Both,
}

/// All block groups of one content and profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Over which devices they lie.
    pub spread: Spread,
    /// Their logical length, in bytes.
    pub total_bytes: u64,
    /// Bytes of extents that have an item in the extent tree.
    pub used_bytes: u64,
    /// Bytes that are taken and have no item yet.
    pub reserved_bytes: u64,
    /// Bytes that were freed, and can be used again when that is durable.
    pub pinned_bytes: u64,
    /// Free bytes that can't be used, because the devices can't be written or superblocks lie there.
    pub read_only_bytes: u64,
}

/// A device's unallocated space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpace {
    /// Its id in the store.
    pub devid: DevId,
    /// Bytes of it that the pool uses.
    pub total_bytes: u64,
    /// Bytes that belong to no chunk.
    pub unallocated_bytes: u64,
    /// Class that counts.
    pub class: PlacementClass,
    /// Rank of its class among those that the owner has listed.
    pub rank: u8,
    /// Hint that the pool stores.
    pub hint: AllocationHint,
    /// The same as a number, which may be an unknown one.
    pub stored_type: u64,
}

impl Space {
    /// Present summary.
    pub(crate) fn summary(&self, store: &Store) -> SpaceSummary {
        let state = self.lock();
        let mut groups: Vec<GroupSummary> = Vec::new();
        for group in state.groups() {
            let spread = state.spread(group);
            match groups.iter_mut().find(|sum| sum.kind == group.kind && sum.spread == spread) {
                Some(sum) => sum.add(group),
                None => {
                    let mut sum = GroupSummary { spread, ..GroupSummary::new(group.kind) };
                    sum.add(group);
                    groups.push(sum);
                }
            }
        }
        groups.sort_by_key(|sum| (sum.kind.bits(), sum.spread as u8));
        let classes = classes(&state.summaries());
        let device = |(device, class): (&super::device::Device, PlacementClass)| DeviceSpace {
            devid: device.devid,
            total_bytes: device.total_bytes,
            unallocated_bytes: device.free.bytes(),
            class,
            rank: state.ranks.get(&device.devid).copied().unwrap_or(0),
            hint: device.hint,
            stored_type: device.stored_type,
        };
        SpaceSummary {
            groups,
            devices: state.devices.iter().zip(classes).map(device).collect(),
            promised_data_bytes: state.promised_data,
            promised_metadata_bytes: state.promised_metadata,
            // Without the trees that were asked for since the pool was opened: reports of a pool agree.
            kept_back_bytes: self.kept_back(&state, 0).bytes(),
            placement: state.placement,
            has_tiers: state.fast.is_some(),
            classes: state.classes.clone(),
            data_room: self
                .room(store, &state, content(self.is_mixed, BlockGroupType::DATA))
                .less(state.promised_data + state.kept_for_destaging()),
            fast_data_room: self.room(store, &state, Content::FastData),
            metadata_room: self.room(store, &state, content(self.is_mixed, BlockGroupType::METADATA)),
        }
    }

    /// Room for a content.
    fn room(&self, store: &Store, state: &State, content: Content) -> Room {
        let free = |content| state.totals(content).available;
        let in_chunks = |mode| {
            let request = self.request(store, state, content);
            let request = brindle_policy::placement::ChunkRequest { mode, ..request };
            room_for(&state.summaries_for(content), &request)
        };
        if content == Content::FastData {
            let bytes = if state.fast.is_some() { free(content) + in_chunks(self.mode(state)) } else { 0 };
            return Room { preferred_bytes: bytes, bytes };
        }
        let also = if content == Content::Data { self.data_totals(state).available } else { free(content) };
        let bytes = also + in_chunks(self.mode(state));
        if state.fast.is_none() {
            return Room { preferred_bytes: bytes, bytes };
        }
        let preferred = |group: &&Group| match content {
            Content::Metadata => state.lies_at_best(group),
            _ => state.spread(group) == Spread::Bulk,
        };
        let groups = state.groups().filter(|group| group.content() == content).filter(preferred);
        let free_there: u64 = groups.map(Group::available).sum();
        let in_new_chunks = match content {
            Content::Metadata => {
                room_at_best(&state.summaries_for(content), &self.request(store, state, content))
            }
            _ => in_chunks(PlacementMode::Strict),
        };
        Room { preferred_bytes: free_there + in_new_chunks, bytes }
    }
}

impl State {
    /// Returns true if a group of metadata lies as well as the devices allow.
    pub(super) fn lies_at_best(&self, group: &Group) -> bool {
        let Some(fast) = &self.fast else { return true };
        let on_fast: BTreeSet<DevId> =
            group.stripes.iter().map(|(devid, _)| *devid).filter(|devid| fast.contains(devid)).collect();
        match Fit::of(group.kind.profile().unwrap_or(Profile::Single), fast.len()) {
            Fit::Copies(copies) => on_fast.len() >= copies,
            Fit::Whole | Fit::Nothing => self.spread(group) == Spread::Fast,
        }
    }

    /// Over which devices a group lies.
    fn spread(&self, group: &Group) -> Spread {
        let Some(fast) = &self.fast else { return Spread::Both };
        match group.stripes.iter().filter(|(devid, _)| fast.contains(devid)).count() {
            0 => Spread::Bulk,
            all if all == group.stripes.len() => Spread::Fast,
            _ => Spread::Both,
        }
    }
}

impl GroupSummary {
    const fn new(kind: BlockGroupType) -> Self {
        Self {
            kind,
            spread: Spread::Both,
            total_bytes: 0,
            used_bytes: 0,
            reserved_bytes: 0,
            pinned_bytes: 0,
            read_only_bytes: 0,
        }
    }

    fn add(&mut self, group: &Group) {
        self.total_bytes += group.length;
        self.used_bytes += group.used;
        self.reserved_bytes += group.reserved;
        self.pinned_bytes += group.pinned;
        self.read_only_bytes += group.read_only();
    }
}
