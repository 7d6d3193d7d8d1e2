//! Space statistics of the pool, by the kernel's reckoning.

use crate::core::Core;
use crate::error::FsError;
use brindle_ondisk::{
    BlockGroupType, CompatRo, DevId, Incompat, Item, Key, KeyType, ObjectId, Profile, RootId, to_u64,
};
use brindle_policy::placement::{AllocationHint, PlacementClass, PlacementMode};
use brindle_tree::{Readahead, TreeError};
use brindle_volume::{DeviceStatus, StripeStatus};
use std::sync::Arc;

/// Space statistics for `statfs`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStatistics {
    /// The size of a block, in bytes.
    pub block_size: u32,
    /// Bytes of the pool, as far as data of the present profile could use them.
    pub total_bytes: u64,
    /// Bytes not in use.
    pub free_bytes: u64,
    /// Data that could still be written.
    pub available_bytes: u64,
}

/// Allocation keeps off the first MiB of each device.
const DEVICE_RESERVED_BYTES: u64 = 1 << 20;
/// The least that a device can give to a chunk.
const STRIPE_LEN: u64 = 64 << 10;
/// The greatest reserve that the kernel keeps for its own trees.
const RESERVE_MAX_BYTES: u64 = 512 << 20;

/// The nodes that one change of a tree may copy and split: two for each of eight levels.
const NODES_PER_CHANGE: u64 = 16;

/// One block group.
#[derive(Clone, Copy, Debug)]
struct BlockGroup {
    kind: BlockGroupType,
    profile: Profile,
    length: u64,
    used: u64,
    /// True if it is of the write-back tier: what lies in it is still to have its place elsewhere.
    is_write_back: bool,
    /// True if a stripe lies on a seed device, which is never written.
    is_on_seed: bool,
    /// Number of its stripes on devices that data may lie on, and number of all.
    counted: (u64, u64),
}

impl BlockGroup {
    fn copies(&self) -> u64 {
        self.profile.attributes().ncopies.max(1).into()
    }

    /// Free bytes on disk, every copy counted.
    fn free(&self) -> u64 {
        self.length.saturating_sub(self.used).saturating_mul(self.copies())
    }

    /// Bytes in use on disk of devices that count, every copy counted.
    fn used(&self) -> u64 {
        let (counted, all) = self.counted;
        let used = u128::from(self.used.saturating_mul(self.copies())) * u128::from(counted);
        u64::try_from(used / u128::from(all.max(1))).unwrap_or(u64::MAX)
    }

    fn holds(&self, content: BlockGroupType) -> bool {
        self.kind.contains(content)
    }
}

/// Profiles from the least to the most redundant, the order in which the kernel prefers them for new chunks.
const ALLOCATION_ORDER: [Profile; 9] = [
    Profile::Single,
    Profile::Raid0,
    Profile::Dup,
    Profile::Raid1,
    Profile::Raid10,
    Profile::Raid5,
    Profile::Raid1c3,
    Profile::Raid6,
    Profile::Raid1c4,
];

/// The order of the kernel's own table of profiles: the last one that data has sets how many copies a byte
/// is reckoned to take.
const RECKONING_ORDER: [Profile; 9] = [
    Profile::Raid10,
    Profile::Raid1,
    Profile::Dup,
    Profile::Raid0,
    Profile::Single,
    Profile::Raid5,
    Profile::Raid6,
    Profile::Raid1c3,
    Profile::Raid1c4,
];

/// Adds up the space of the pool.
#[derive(Debug)]
pub(crate) struct Space {
    core: Arc<Core>,
}

impl Space {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn space(&self) -> Result<SpaceStatistics, FsError> {
        let groups = self.block_groups()?;
        let data = || groups.iter().filter(|group| group.holds(BlockGroupType::DATA));
        let last = |order: [Profile; 9]| {
            let has =
                |profile: &Profile| data().any(|group| group.profile == *profile && !group.is_write_back);
            order.into_iter().rev().find(has).unwrap_or(Profile::Single)
        };
        let next_profile = last(ALLOCATION_ORDER);
        let copies = u64::from(last(RECKONING_ORDER).attributes().ncopies.max(1));
        let block_size = self.core.pool().superblock().sectorsize.get();
        let whole = |bytes: u64| bytes / u64::from(block_size) * u64::from(block_size);

        let waiting = self.waiting_bytes(data().map(|group| group.used).sum())?;
        let used =
            groups.iter().map(BlockGroup::used).sum::<u64>().saturating_add(waiting.saturating_mul(copies));
        let total = self.core.pool().superblock().total_bytes.get().saturating_sub(self.bytes_without_data());
        let total_bytes = whole(total / copies);
        let reserve = whole(self.reserve_bytes()?);
        let free_bytes = total_bytes.saturating_sub(whole(used / copies)).saturating_sub(reserve);

        // Where new data has redundancy, nothing more is written to block groups that have none.
        let is_avoided = |profile| is_redundant(next_profile) && !is_redundant(profile);
        let is_open =
            |group: &&BlockGroup| !group.is_on_seed && !group.is_write_back && !is_avoided(group.profile);
        let writable = data().filter(is_open);
        let free_data: u64 = writable.map(BlockGroup::free).sum();
        let unallocated = self.unallocated_for(next_profile);
        let in_transit: u64 = data().filter(|group| group.is_write_back).map(|group| group.used).sum();
        let available = (free_data / copies + unallocated / copies).saturating_sub(waiting + in_transit);
        let is_metadata = |group: &&BlockGroup| group.holds(BlockGroupType::METADATA);
        let free_metadata: u64 = groups.iter().filter(is_metadata).map(BlockGroup::free).sum();
        let is_mixed = data().any(|group| group.holds(BlockGroupType::METADATA));
        let is_full = !is_mixed && unallocated == 0 && free_metadata.saturating_sub(4 << 20) < reserve;
        let available_bytes = if is_full { 0 } else { whole(available) };
        Ok(SpaceStatistics { block_size, total_bytes, free_bytes, available_bytes })
    }

    /// Data space that is taken and not among the `counted` bytes of block groups' items yet: promised for contents in
    /// memory, or used by the running transaction.
    fn waiting_bytes(&self, counted: u64) -> Result<u64, FsError> {
        if !self.core.is_writable() {
            return Ok(0);
        }
        let summary = self.core.pool().space_summary()?;
        let data = summary.groups.iter().filter(|group| group.kind.contains(BlockGroupType::DATA));
        let taken: u64 = data.map(|group| group.used_bytes + group.reserved_bytes + group.pinned_bytes).sum();
        Ok(summary.promised_data_bytes + taken.saturating_sub(counted))
    }

    fn block_groups(&self) -> Result<Vec<BlockGroup>, FsError> {
        let has_tree = self.core.pool().superblock().compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
        let tree = if has_tree { RootId::BLOCK_GROUP_TREE } else { RootId::EXTENT_TREE };
        let mut cursor = self.core.pool().cursor(&self.core.pool().tree(tree)?, Readahead::None);
        let volume = self.core.pool().volume();
        let seeds: Vec<_> =
            volume.devices().into_iter().filter(|device| device.is_seed).map(|device| device.devid).collect();
        let without_data = self.devices_without_data();
        let write_back = self.core.pool().write_back_chunks()?;
        let mut groups = Vec::new();
        for chunk in volume.chunks() {
            // Among extents, a block group's item stands behind the extent that begins at the same address.
            let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.length);
            cursor.seek(&key)?;
            let item = match cursor.item().filter(|(found, _)| *found == key) {
                Some((_, data)) => {
                    let item =
                        Item::parse(&key, data).map_err(|defect| TreeError::item(tree, key, defect))?;
                    if let Item::BlockGroup(item) = item { Some(item) } else { None }
                }
                None => None,
            };
            let (kind, used) = match item {
                Some(item) => (item.block_group_type(), item.used.get()),
                // The running transaction has made it; it has no item before the commit.
                None if self.core.is_writable() => (chunk.kind, 0),
                None => continue,
            };
            let with_data = |stripe: &&StripeStatus| !without_data.contains(&stripe.devid);
            let counted = chunk.stripes.iter().filter(with_data).count();
            groups.push(BlockGroup {
                kind,
                profile: kind.profile().unwrap_or(Profile::Single),
                length: chunk.length,
                used,
                is_write_back: write_back.contains(&chunk.start),
                is_on_seed: chunk.stripes.iter().any(|stripe| seeds.contains(&stripe.devid)),
                counted: (to_u64(counted), to_u64(chunk.stripes.len())),
            });
        }
        Ok(groups)
    }

    /// The reserve that the kernel keeps for its own trees: what the trees that every write changes use now,
    /// but no less than a few paths through each. A mount that leaves a log alone keeps none.
    fn reserve_bytes(&self) -> Result<u64, FsError> {
        if self.core.is_only_read() && self.core.pool().has_log() {
            return Ok(0);
        }
        let mut used = 0u64;
        let mut trees = 0u64;
        for tree in [
            RootId::EXTENT_TREE,
            RootId::CSUM_TREE,
            RootId::FREE_SPACE_TREE,
            RootId::BLOCK_GROUP_TREE,
            RootId::RAID_STRIPE_TREE,
        ] {
            if let Some((_, item)) = self.core.pool().root_item(tree)? {
                used = used.saturating_add(item.bytes_used.get());
                trees += 1;
            }
        }
        let features = self.core.pool().superblock().compat_ro();
        let delayed = if features.contains(CompatRo::FREE_SPACE_TREE) { 12 } else { 6 };
        let nodesize = u64::from(self.core.pool().superblock().nodesize.get());
        let least = (7 + trees + delayed) * NODES_PER_CHANGE * nodesize;
        Ok(used.max(least).min(RESERVE_MAX_BYTES))
    }

    /// The devices that data never lies on, by what the pool stores of them. Where data and metadata share block groups,
    /// there are none.
    fn devices_without_data(&self) -> Vec<DevId> {
        self.devices_with(|hint| hint == AllocationHint::MetadataOnly)
    }

    fn bytes_without_data(&self) -> u64 {
        let without = self.devices_without_data();
        let devices = self.core.pool().volume().devices();
        devices.iter().filter(|device| without.contains(&device.devid)).map(|device| device.total_bytes).sum()
    }

    /// The devices that new data chunks don't lie on.
    fn devices_without_new_data(&self) -> Vec<DevId> {
        let mut without = self
            .devices_with(|hint| matches!(hint, AllocationHint::MetadataOnly | AllocationHint::NoNewChunks));
        let is_strict = self.core.pool().placement().is_ok_and(|mode| mode == PlacementMode::Strict);
        if is_strict {
            if let Ok(space) = self.core.pool().space_summary() {
                if space.has_tiers {
                    let fast = space.devices.iter().filter(|device| device.class == PlacementClass::Fast);
                    without.extend(fast.map(|device| device.devid));
                }
            }
        }
        without
    }

    fn devices_with(&self, is_meant: impl Fn(AllocationHint) -> bool) -> Vec<DevId> {
        if self.core.pool().superblock().incompat().contains(Incompat::MIXED_GROUPS) {
            return Vec::new();
        }
        let devices = self.core.pool().volume().devices();
        devices.iter().filter(|device| is_meant(device.hint)).map(|device| device.devid).collect()
    }

    /// Bytes of the devices that new data chunks of a profile could take, every copy counted.
    fn unallocated_for(&self, profile: Profile) -> u64 {
        let devices = self.core.pool().volume().devices();
        let excluded = self.devices_without_new_data();
        let is_usable = |device: &&DeviceStatus| !device.missing && !device.is_seed;
        let writable = devices.iter().filter(is_usable).filter(|device| !excluded.contains(&device.devid));
        let free = writable.map(|device| device.total_bytes.saturating_sub(device.bytes_used));
        let usable = free.map(|free| (free / STRIPE_LEN * STRIPE_LEN).saturating_sub(DEVICE_RESERVED_BYTES));
        allocatable(usable.filter(|free| *free >= STRIPE_LEN).collect(), profile)
    }
}

fn is_redundant(profile: Profile) -> bool {
    !matches!(profile, Profile::Single | Profile::Raid0)
}

/// Bytes of devices with this free space that chunks of a profile could take, by the kernel's estimate: the fullest
/// device sets the length of a chunk over as many devices as the profile must have; then again without that device.
/// Of a profile with parity each round counts the fullest device alone, which leaves as many uncounted as hold
/// parity.
fn allocatable(mut free: Vec<u64>, profile: Profile) -> u64 {
    let attributes = profile.attributes();
    let stripes_max = match profile {
        Profile::Raid0 => free.len(),
        Profile::Raid10 => 4,
        Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => usize::from(attributes.ncopies),
        Profile::Single | Profile::Dup | Profile::Raid5 | Profile::Raid6 => 1,
    };
    let least = usize::from(attributes.devs_min.max(1));
    let mut total = 0u64;
    free.sort_unstable_by(|a, b| b.cmp(a));
    while free.len() >= least {
        let stripes = stripes_max.min(free.len());
        let Some(length) = free.pop() else {
            break;
        };
        if length < STRIPE_LEN {
            continue;
        }
        total = total.saturating_add(length.saturating_mul(to_u64(stripes)));
        let others = free.len().saturating_sub(stripes - 1);
        free[others..].iter_mut().for_each(|space| *space = space.saturating_sub(length));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn single_takes_everything() {
        assert_eq!(allocatable(vec![3 * GIB, GIB], Profile::Single), 4 * GIB);
    }

    #[test]
    fn raid1_leaves_what_has_no_partner() {
        assert_eq!(allocatable(vec![3 * GIB, GIB], Profile::Raid1), 2 * GIB);
        assert_eq!(allocatable(vec![GIB], Profile::Raid1), 0);
    }

    #[test]
    fn raid0_uses_all_that_have_space() {
        assert_eq!(allocatable(vec![2 * GIB, GIB, GIB], Profile::Raid0), 4 * GIB);
    }

    #[test]
    fn parity_is_not_counted() {
        assert_eq!(allocatable(vec![GIB; 5], Profile::Raid5), 4 * GIB);
        assert_eq!(allocatable(vec![GIB; 5], Profile::Raid6), 3 * GIB);
    }
}
