//! Space of a pool: as a mount of brindle reports it, as the kernel tells it in `/sys`, or of a pool that is not mounted.

use super::{DeviceHealth, GroupHealth, RoomHealth, SpaceHealth};
use crate::sysfs;
use brindle_ondisk::{BlockGroupType, Profile, Uuid};
use brindle_policy::placement::{
    AllocationHint, ChunkRequest, DeviceSummary, PlacementClass, PlacementMode, Ranks, room_for,
};
use brindle_tree::{SpaceSummary, Spread};
use brindle_uapi::message::SpaceReport;

/// Shortest stripe of a new chunk that counts as room.
const MIN_STRIPE_BYTES: u64 = 1 << 20;
/// Stripes of a chunk, at most; the kernel's limit depends on the size of a node.
const MAX_STRIPES: u16 = 64;

impl SpaceHealth {
    /// Space that a mount of brindle reports.
    pub(super) fn of_report(report: &SpaceReport) -> Self {
        let class = |spread| match spread {
            1 => Some(PlacementClass::Fast),
            2 => Some(PlacementClass::Bulk),
            _ => None,
        };
        let groups = report.groups.iter().map(|group| GroupHealth {
            kind: BlockGroupType::from_bits_retain(group.kind),
            class: class(group.spread).filter(|_| report.has_tiers),
            total_bytes: group.total_bytes,
            used_bytes: group.used_bytes,
        });
        let rooms = [report.data_room, report.metadata_room];
        Self::new(groups.collect(), rooms, report.has_tiers, report.fast_data_room)
    }

    /// Space of a pool that is not mounted.
    pub(super) fn of_summary(summary: &SpaceSummary) -> Self {
        let class = |spread| match spread {
            Spread::Fast => Some(PlacementClass::Fast),
            Spread::Bulk => Some(PlacementClass::Bulk),
            Spread::Both => None,
        };
        let groups = summary.groups.iter().map(|group| GroupHealth {
            kind: group.kind,
            class: class(group.spread).filter(|_| summary.has_tiers),
            total_bytes: group.total_bytes,
            used_bytes: group.used_bytes + group.reserved_bytes,
        });
        let rooms = [summary.data_room, summary.metadata_room].map(|room| [room.preferred_bytes, room.bytes]);
        Self::new(groups.collect(), rooms, summary.has_tiers, summary.fast_data_room.bytes)
    }

    fn new(groups: Vec<GroupHealth>, rooms: [[u64; 2]; 2], has_tiers: bool, fast_data_bytes: u64) -> Self {
        let room = |content: BlockGroupType, [preferred, all]: [u64; 2]| RoomHealth {
            used_bytes: used_of(&groups, content),
            room_bytes: all,
            preferred_bytes: Some(preferred),
        };
        let data = room(BlockGroupType::DATA, rooms[0]);
        let metadata = room(BlockGroupType::METADATA, rooms[1]);
        Self { data, metadata, has_tiers, fast_data_bytes: Some(fast_data_bytes), groups }
    }

    /// Space of a pool that the kernel has mounted, on these devices.
    pub(super) fn of_kernel(fsid: &Uuid, devices: &[DeviceHealth]) -> Self {
        let groups: Vec<GroupHealth> = sysfs::block_groups(fsid)
            .into_iter()
            .map(|(kind, total_bytes, used_bytes)| GroupHealth { kind, class: None, total_bytes, used_bytes })
            .collect();
        let room = |content: BlockGroupType| {
            let of_content = || groups.iter().filter(|group| group.kind.intersects(content));
            let free: u64 =
                of_content().map(|group| group.total_bytes.saturating_sub(group.used_bytes)).sum();
            // A conversion leaves block groups of two profiles; most of the space is a fair guess at the one to come.
            let present = of_content().max_by_key(|group| group.total_bytes);
            let new = present.map_or(0, |group| room_in_new_chunks(group.kind, devices));
            RoomHealth {
                used_bytes: used_of(&groups, content),
                room_bytes: free.saturating_add(new),
                preferred_bytes: None,
            }
        };
        let (data, metadata) = (room(BlockGroupType::DATA), room(BlockGroupType::METADATA));
        Self { data, metadata, has_tiers: false, fast_data_bytes: None, groups }
    }
}

fn used_of(groups: &[GroupHealth], content: BlockGroupType) -> u64 {
    groups.iter().filter(|group| group.kind.intersects(content)).map(|group| group.used_bytes).sum()
}

/// Room in new chunks of this kind, by the kernel's allocator: devices with most free space first.
fn room_in_new_chunks(kind: BlockGroupType, devices: &[DeviceHealth]) -> u64 {
    let there = devices.iter().filter(|device| !device.is_missing);
    let summary = |device: &DeviceHealth| {
        let free = device.total_bytes.saturating_sub(device.allocated_bytes);
        DeviceSummary {
            devid: device.devid,
            class: PlacementClass::Bulk,
            hint: AllocationHint::default(),
            rank: 0,
            max_available_bytes: free,
            total_available_bytes: free,
        }
    };
    let request = ChunkRequest {
        content: kind & BlockGroupType::CONTENT,
        profile: kind.profile().unwrap_or(Profile::Single),
        mode: PlacementMode::Classic,
        tier: PlacementClass::Bulk,
        copies_on_fast: None,
        ranks: Ranks::ALL,
        max_stripe_bytes: u64::MAX / 2,
        max_chunk_bytes: u64::MAX / 2,
        min_stripe_bytes: MIN_STRIPE_BYTES,
        max_stripes: MAX_STRIPES,
    };
    room_for(&there.map(summary).collect::<Vec<_>>(), &request)
}
