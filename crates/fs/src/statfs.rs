//! How full the pool is, by the kernel's reckoning.

use crate::{Filesystem, FsError};
use brindle_ondisk::{BlockGroupType, CompatRo, Item, Key, KeyType, Profile, RootId, to_u64};
use brindle_tree::{Readahead, TreeError};

/// What `statfs` tells, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStatistics {
    /// The size of a block, in bytes.
    pub block_size: u32,
    /// All of the pool, as far as data of the present profile could use it.
    pub total_bytes: u64,
    /// Not in use.
    pub free_bytes: u64,
    /// What data could still be written.
    pub available_bytes: u64,
}

/// Allocation keeps off the first MiB of each device.
const DEVICE_RESERVED_BYTES: u64 = 1 << 20;
/// The least that a device can give to a chunk.
const STRIPE_LEN: u64 = 64 << 10;
/// The greatest reserve that the kernel keeps for its own trees.
const RESERVE_MAX_BYTES: u64 = 512 << 20;

/// What the block groups add up to, in bytes on disk.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    used: u64,
    free_data: u64,
    free_metadata: u64,
    data_profile: Option<Profile>,
    is_mixed: bool,
}

impl Filesystem {
    /// How full the pool is. The blocks in use include the reserve that the kernel keeps for its own trees.
    pub fn space(&self) -> Result<SpaceStatistics, FsError> {
        let usage = self.usage()?;
        let profile = usage.data_profile.unwrap_or(Profile::Single);
        let copies = u64::from(profile.attributes().ncopies.max(1));
        let block = u64::from(self.pool().superblock().sectorsize.get());
        let total_bytes = self.pool().superblock().total_bytes.get() / copies / block * block;
        let reserve = self.reserve_bytes()? / block * block;
        let free_bytes = total_bytes.saturating_sub(usage.used / copies / block * block).saturating_sub(reserve);
        let unallocated = self.unallocated_for(profile);
        let available = (usage.free_data / copies).saturating_add(unallocated / copies);
        let metadata_is_full = !usage.is_mixed
            && unallocated == 0
            && usage.free_metadata.saturating_sub(4 << 20) < reserve;
        Ok(SpaceStatistics {
            block_size: self.pool().superblock().sectorsize.get(),
            total_bytes,
            free_bytes,
            available_bytes: if metadata_is_full { 0 } else { available / block * block },
        })
    }

    fn usage(&self) -> Result<Usage, FsError> {
        let mut usage = Usage::default();
        self.for_each_block_group(|kind, length, used| {
            let profile = kind.profile().unwrap_or(Profile::Single);
            let copies = u64::from(profile.attributes().ncopies.max(1));
            usage.used = usage.used.saturating_add(used.saturating_mul(copies));
            let free = length.saturating_sub(used).saturating_mul(copies);
            if kind.contains(BlockGroupType::DATA) {
                usage.free_data = usage.free_data.saturating_add(free);
                usage.data_profile = usage.data_profile.max(Some(profile));
                usage.is_mixed |= kind.contains(BlockGroupType::METADATA);
            } else if kind.contains(BlockGroupType::METADATA) {
                usage.free_metadata = usage.free_metadata.saturating_add(free);
            }
        })?;
        Ok(usage)
    }

    /// Type, length and used bytes of each block group.
    fn for_each_block_group(
        &self,
        mut act: impl FnMut(BlockGroupType, u64, u64),
    ) -> Result<(), FsError> {
        let has_tree = self.pool().superblock().compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
        let tree = if has_tree { RootId::BLOCK_GROUP_TREE } else { RootId::EXTENT_TREE };
        let root = self.pool().tree_root(tree)?;
        let mut cursor = self.pool().cursor(root, Readahead::None);
        // Among the extents, a block group's item stands right behind the extent of the same address.
        for chunk in self.pool().volume().chunks() {
            cursor.seek(&Key::first_of(brindle_ondisk::ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM))?;
            let Some((key, data)) = cursor.item() else {
                continue;
            };
            if (key.objectid.get(), key.item_type) != (chunk.start.get(), KeyType::BLOCK_GROUP_ITEM) {
                continue;
            }
            match Item::parse(&key, data) {
                Ok(Item::BlockGroup(item)) => act(item.block_group_type(), key.offset(), item.used.get()),
                Ok(_) => {}
                Err(defect) => return Err(TreeError::item(tree, key, defect).into()),
            }
        }
        Ok(())
    }

    /// The reserve that the kernel keeps for its own trees: what the trees that every write changes use now,
    /// within bounds.
    fn reserve_bytes(&self) -> Result<u64, FsError> {
        let mut bytes = 0u64;
        for tree in [
            RootId::EXTENT_TREE,
            RootId::CSUM_TREE,
            RootId::FREE_SPACE_TREE,
            RootId::BLOCK_GROUP_TREE,
            RootId::RAID_STRIPE_TREE,
        ] {
            if let Some((_, item)) = self.pool().root_item(tree)? {
                bytes = bytes.saturating_add(item.bytes_used.get());
            }
        }
        Ok(bytes.min(RESERVE_MAX_BYTES))
    }

    /// How many bytes of the devices new data chunks of a profile could take, every copy counted.
    fn unallocated_for(&self, profile: Profile) -> u64 {
        let devices = self.pool().volume().devices();
        let present = devices.iter().filter(|device| !device.missing);
        let free = present.map(|device| device.total_bytes.saturating_sub(device.bytes_used));
        let usable = free.map(|free| free / STRIPE_LEN * STRIPE_LEN);
        let usable = usable.map(|free| free.saturating_sub(DEVICE_RESERVED_BYTES));
        allocatable(usable.filter(|free| *free >= STRIPE_LEN).collect(), profile)
    }
}

/// How many bytes chunks of a profile could take of devices with so much free space: the fullest device sets
/// the length of the first chunk, which spans as many devices as the profile uses; then again with the rest.
fn allocatable(mut free: Vec<u64>, profile: Profile) -> u64 {
    let attributes = profile.attributes();
    let most = match profile {
        Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => free.len(),
        Profile::Raid10 => 4,
        _ => usize::from(attributes.ncopies.max(1)),
    };
    let least = usize::from(attributes.devs_min);
    let mut total = 0u64;
    free.sort_unstable_by(|a, b| b.cmp(a));
    while free.len() >= least.max(1) {
        let stripes = most.min(free.len()).max(1);
        let Some(length) = free.pop() else {
            break;
        };
        total = total.saturating_add(length.saturating_mul(to_u64(stripes)));
        let others = free.len().saturating_sub(stripes - 1);
        free[others..].iter_mut().for_each(|space| *space = space.saturating_sub(length));
        free.retain(|space| *space >= STRIPE_LEN);
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
}
