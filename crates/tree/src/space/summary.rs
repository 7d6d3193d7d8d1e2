//! How much space there is, for people.

use super::group::Group;
use crate::{Pool, TreeError};
use brindle_ondisk::{BlockGroupType, DevId};

/// How much space there is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceSummary {
    /// By content and profile.
    pub groups: Vec<GroupSummary>,
    /// By devid; those that may be written.
    pub devices: Vec<DeviceSpace>,
    /// Data space that was promised and not taken yet, in bytes.
    pub promised_data_bytes: u64,
    /// Metadata space that running operations were promised, in bytes.
    pub promised_metadata_bytes: u64,
    /// Metadata space that is kept back so that files can be deleted on a full pool, in bytes.
    pub kept_back_bytes: u64,
}

/// All block groups of one content and profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Their logical length, in bytes.
    pub total_bytes: u64,
    /// What has an item in the extent tree, in bytes.
    pub used_bytes: u64,
    /// What is taken and has no item yet, in bytes.
    pub reserved_bytes: u64,
    /// What was freed, and can be used again when that is durable, in bytes.
    pub pinned_bytes: u64,
    /// What is free and can't be used, because its devices can't be written or superblocks lie there, in bytes.
    pub read_only_bytes: u64,
}

/// A device's unallocated space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpace {
    /// Its id in the pool.
    pub devid: DevId,
    /// What of it the pool uses, in bytes.
    pub total_bytes: u64,
    /// What belongs to no chunk, in bytes.
    pub unallocated_bytes: u64,
}

impl Pool {
    /// How much space there is as of now.
    pub fn space_summary(&self) -> Result<SpaceSummary, TreeError> {
        let space = &self.writer()?.space;
        let state = space.lock();
        let mut groups: Vec<GroupSummary> = Vec::new();
        for group in state.groups() {
            match groups.iter_mut().find(|sum| sum.kind == group.kind) {
                Some(sum) => sum.add(group),
                None => {
                    let mut sum = GroupSummary::new(group.kind);
                    sum.add(group);
                    groups.push(sum);
                }
            }
        }
        groups.sort_by_key(|sum| sum.kind.bits());
        let device = |device: &super::device::Device| DeviceSpace {
            devid: device.devid,
            total_bytes: device.total_bytes,
            unallocated_bytes: device.free.bytes(),
        };
        let kept = space.kept_back(&state);
        Ok(SpaceSummary {
            groups,
            devices: state.devices.iter().map(device).collect(),
            promised_data_bytes: state.promised_data,
            promised_metadata_bytes: state.promised_metadata,
            kept_back_bytes: kept.freeing + kept.commit,
        })
    }
}

impl GroupSummary {
    const fn new(kind: BlockGroupType) -> Self {
        Self { kind, total_bytes: 0, used_bytes: 0, reserved_bytes: 0, pinned_bytes: 0, read_only_bytes: 0 }
    }

    fn add(&mut self, group: &Group) {
        self.total_bytes += group.length;
        self.used_bytes += group.used;
        self.reserved_bytes += group.reserved;
        self.pinned_bytes += group.pinned;
        self.read_only_bytes += group.read_only();
    }
}
