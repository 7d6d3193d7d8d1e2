//! Everything that is known of the pool's space, behind one lock, under which nothing is read or written.

use super::device::Device;
use super::estimate::TreeSizes;
use super::group::{Content, Group, PerContent, Totals};
use super::reserve::LogReserveState;
use super::writeback_tier::WriteBackTier;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::{BlockGroupType, DevId, Physical, Profile, Uuid};
use brindle_policy::class::DeviceClasses;
use brindle_policy::log::{LogEverywhere, LogPlacement, LogProfile};
use brindle_policy::placement::PlacementMode;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Changes of the devices since the last superblock.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    pub(super) added_bytes: u64,
    pub(super) cut_bytes: u64,
    pub(super) added_devices: u64,
    pub(super) removed_devices: u64,
}

impl Membership {
    /// The size of all devices, which was this before.
    pub(crate) fn total_bytes(&self, before: u64) -> u64 {
        before.saturating_add(self.added_bytes).saturating_sub(self.cut_bytes)
    }

    /// Number of devices, which was `before` at the last superblock.
    pub(crate) fn count(&self, before: u64) -> u64 {
        before.saturating_add(self.added_devices).saturating_sub(self.removed_devices)
    }
}

/// Problem of an extent.
pub(super) type Problem = &'static str;

/// Change of the item of a missing device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AbsentChange {
    /// Hint to be stored (`type`).
    pub(crate) hint: Option<u64>,
    /// Bytes of chunks that were removed.
    pub(crate) given_up: u64,
}

/// Fast tier of data of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastTier {
    /// No data is for fast devices.
    Absent,
    /// Its chunks lie on fast devices alone, which are enough for the profile of data; or there is such data.
    Alone,
    /// Its chunks have a copy on each fast device, and the others on bulk devices.
    Split,
}

/// Known state of the pool's space.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Block groups by address. Changed through [`State::change`] only, which keeps the sums.
    groups: BTreeMap<u64, Group>,
    totals: PerContent<Totals>,
    pub(super) devices: Vec<Device>,
    /// Changes of the items of missing devices that are not written yet.
    pub(super) absent: BTreeMap<DevId, AbsentChange>,
    /// Weight of a device's class.
    pub(super) placement: PlacementMode,
    /// The fast devices, of a pool that has both classes and makes a difference; see [`super::tiers`].
    pub(super) fast: Option<BTreeSet<DevId>>,
    /// Numbers of fast and bulk devices, of such a pool whose fast devices all take data.
    pub(super) sides: Option<(usize, usize)>,
    /// Classes of devices within fast and bulk ones; see [`super::classes`].
    pub(super) classes: DeviceClasses,
    /// Rank of each device's class.
    pub(super) ranks: BTreeMap<DevId, u8>,
    /// Ranges that the running transaction has freed.
    pub(super) pinned: IntervalSet<u64>,
    /// Ranges freed by the transaction that is being made durable.
    pub(super) frozen: Option<Arc<IntervalSet<u64>>>,
    /// Ranges freed by durable transactions that readers without a lock may still read, the oldest first.
    pub(super) held_back: VecDeque<Arc<IntervalSet<u64>>>,
    /// Chunks without items: address and chunk item.
    pub(super) unwritten_chunks: BTreeMap<u64, Vec<u8>>,
    /// Block groups that were taken away, and still have items.
    pub(super) to_remove: Vec<Group>,
    /// Block groups that were taken away in the running transaction, without items any more.
    pub(super) removed: Vec<Group>,
    /// A block group may be empty that was not so before.
    pub(super) may_remove: bool,
    /// System chunks, as the superblock has them, by address.
    pub(super) system_chunks: BTreeMap<u64, Vec<u8>>,
    pub(super) system_chunks_changed: bool,
    /// Behind every chunk that there is or was since the pool was opened.
    pub(super) next_chunk: u64,
    pub(super) chunk_tree_uuid: Uuid,
    /// Data space that was promised and not taken yet.
    pub(super) promised_data: u64,
    /// Metadata space that running operations were promised.
    pub(super) promised_metadata: u64,
    /// Number of operations that wait for one of these reservations to be returned.
    pub(super) waiting_for_promises: usize,
    /// End of the last data extent, by content.
    pub(super) next_data: PerContent<Option<u64>>,
    /// End of the last tree blocks, by content.
    pub(super) next_blocks: PerContent<Option<u64>>,
    pub(super) sizes: TreeSizes,
    /// Ranges to be discarded, if they still are free then.
    pub(super) to_discard: IntervalSet<u64>,
    /// Unallocated ranges of devices that are to be discarded.
    pub(super) to_discard_on_devices: Vec<(DevId, Interval<Physical>)>,
    /// Number of free ranges that stay in memory.
    pub(super) ranges_max: usize,
    /// First problem found; nothing is written any more.
    pub(super) damage: Option<(Interval, Problem)>,
    /// Changes of the devices since the last superblock.
    pub(super) membership: Membership,
    /// The profile that new chunks are to have, where block groups are being converted.
    pub(super) targets: PerContent<Option<Profile>>,
    /// Profile of the log.
    pub(super) log_profile: LogProfile,
    /// Devices that hold the log, once they are known: forgotten when metadata chunks or devices change.
    pub(super) log_placement: Option<Result<LogPlacement, LogEverywhere>>,
    /// Fast tier of data; forgotten in the same way.
    pub(super) fast_tier: Option<FastTier>,
    /// The write-back tier.
    pub(super) write_back: WriteBackTier,
    /// The reserve of the log.
    pub(super) log_reserve: LogReserveState,
    /// A chunk could not be made as its profile demands, and that was said.
    pub(super) has_warned: bool,
}

impl State {
    /// The groups in order.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// Number of groups.
    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The sums over groups of a content.
    pub(super) fn totals(&self, content: Content) -> Totals {
        self.totals[content]
    }

    /// The group that begins there.
    pub(super) fn group(&self, start: u64) -> Option<&Group> {
        self.groups.get(&start)
    }

    /// The group that holds an address.
    pub(super) fn group_of(&self, address: u64) -> Option<&Group> {
        let (_, group) = self.groups.range(..=address).next_back()?;
        (address < group.end()).then_some(group)
    }

    /// Changes the group that begins there, and the sums with it.
    pub(super) fn change<T>(&mut self, start: u64, change: impl FnOnce(&mut Group) -> T) -> Option<T> {
        let group = self.groups.get_mut(&start)?;
        let totals = &mut self.totals[group.content()];
        totals.subtract(group.totals());
        let done = change(group);
        totals.add(group.totals());
        Some(done)
    }

    /// Changes the group that holds an extent. If there is none, the trees are wrong, and the next commit says so.
    pub(super) fn change_at(
        &mut self,
        extent: Interval,
        change: impl FnOnce(&mut Group) -> Result<(), Problem>,
    ) {
        let group = self.group_of(extent.start).filter(|group| extent.end <= group.end());
        let changed = match group.map(|group| group.start) {
            Some(start) => self.change(start, change).unwrap_or(Ok(())),
            None => Err("lies in no block group"),
        };
        if let Err(problem) = changed {
            self.damage.get_or_insert((extent, problem));
        }
    }

    /// Adds a group.
    pub(super) fn add(&mut self, mut group: Group) {
        group.is_write_back = self.write_back.chunks.contains_key(&group.start);
        // What waits has all its copies on fast devices.
        group.is_fast = match group.is_write_back {
            true => self.lies_on_fast_devices(&group),
            false => self.lies_in_fast_tier(&group),
        };
        group.rank = self.rank_of(&group);
        self.forget_conclusions();
        self.next_chunk = self.next_chunk.max(group.end());
        self.totals[group.content()].add(group.totals());
        self.groups.insert(group.start, group);
    }

    /// Takes a group away.
    pub(super) fn take_away(&mut self, start: u64) -> Option<Group> {
        let group = self.groups.remove(&start)?;
        self.forget_conclusions();
        self.totals[group.content()].subtract(group.totals());
        Some(group)
    }

    /// Groups or devices change: what follows from them is found anew.
    pub(super) fn forget_conclusions(&mut self) {
        self.log_placement = None;
        self.fast_tier = None;
        self.write_back.obstacle = None;
    }

    /// Pinned parts of a range: by the running transaction, by the one before, or for readers.
    pub(super) fn pinned_within(&self, span: Interval) -> Vec<Interval> {
        let mut pinned = self.pinned.within(span);
        for ranges in self.frozen.iter().chain(&self.held_back) {
            pinned.extend(ranges.within(span));
        }
        pinned
    }

    /// The part of a span in the group where it begins, and the rest; pinned ranges of neighbouring groups may have
    /// grown together.
    pub(super) fn split(&self, span: Interval) -> Option<(u64, Interval, Option<Interval>)> {
        let group = self.group_of(span.start)?;
        let end = span.end.min(group.end());
        let rest = (end < span.end).then_some(Interval { start: end, ..span });
        Some((group.start, Interval { end, ..span }, rest))
    }

    /// Devices' bytes that chunks of a content may be made of. The tiers on fast devices are a small pool of their own.
    pub(super) fn bytes_for(&self, content: Content) -> u64 {
        let fast = self.fast.as_ref().filter(|_| matches!(content, Content::FastData | Content::WriteBack));
        let is_meant = |device: &&Device| fast.is_none_or(|fast| fast.contains(&device.devid));
        self.devices.iter().filter(is_meant).map(|device| device.total_bytes).sum()
    }
}

/// Content of data or metadata, in a pool of mixed block groups or of others.
pub(super) fn content(is_mixed: bool, content: BlockGroupType) -> Content {
    match Content::of(content) {
        Content::System => Content::System,
        _ if is_mixed => Content::Mixed,
        content => content,
    }
}
