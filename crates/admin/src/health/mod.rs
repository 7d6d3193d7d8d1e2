//! Health of pools: the facts that `status`, `metrics` and `map` show, and the judgement on them.
//!
//! # The walk
//!
//! 1. [`find`] lists pools: those of the table of mounts, those that devices belong to, and all on block devices.
//! 2. [`PoolHealth::of_mount`] asks a mount, of the kernel or of brindle, by ioctls that are answered from memory, and reads
//!    files of `/sys`: no disk is woken. [`PoolHealth::of_devices`] looks into a pool that the caller has opened.
//! 3. [`findings`] judges the facts: a pure function of them and the time. Each [`Finding`] has a [`Severity`], and all together
//!    make the [`State`] of the pool.

mod find;
mod gather;
mod members;
mod named;
mod redundancy;
mod returns;
mod rules;
mod space;
mod ssds;
mod target;
#[cfg(test)]
mod tests;

pub use find::{FoundPool, btrfs_devices, find_tagged, on_block_devices, on_mounts, pool_at};
pub use members::{Members, Search, find_device, images_beside, members, seeds_of};
pub use named::on_devices;
pub use redundancy::{LessRedundant, less_redundant};
pub use rules::{Finding, Severity, State, findings, severity_of, state_of};
pub use ssds::find_ssds;
pub use target::{retire_target, targets_of, without_targets};

use crate::activity::Activity;
use crate::pool::InterruptedReplacement;
use crate::tier::{FencedDevice, StateDirectory};
use crate::{CacheLines, WriteBack};
use brindle_care::scrub::ScrubRecord;
use brindle_ondisk::{BlockGroupType, DevId, RootId, Uuid};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::Content;
use brindle_uapi::message::CommitsReport;
use std::path::PathBuf;

/// Facts about a pool.
#[derive(Clone, Debug)]
pub struct PoolHealth {
    /// UUID of the pool.
    pub fsid: Uuid,
    /// Its label; empty if it has none.
    pub label: String,
    /// Its server.
    pub server: PoolServer,
    /// Its mount points, as far as the caller sees them.
    pub mountpoints: Vec<PathBuf>,
    /// Permission to write.
    pub writing: Writing,
    /// Its devices, by their ids.
    pub devices: Vec<DeviceHealth>,
    /// Its space.
    pub space: SpaceHealth,
    /// Trees that can't be read, and why; of a pool that is not mounted.
    pub damaged_trees: Vec<(RootId, String)>,
    /// Copies of superblocks that are bad; of a pool that is not mounted.
    pub bad_superblocks: Vec<BadSuperblock>,
    /// Devices that were away, and whose return to the pool was begun and not ended: ids and paths
    /// ([`look_for_begun_returns`](Self::look_for_begun_returns)).
    pub begun_returns: Vec<(DevId, PathBuf)>,
    /// Devices that `tier apply` or `tier watch` has made smaller, and was interrupted ([`look_for_fences`](Self::look_for_fences)).
    pub fenced: Vec<DevId>,
    /// True if the numbers of quota groups are known to be wrong, and no rescan runs.
    pub has_wrong_quotas: bool,
    /// Replacement that the kernel was interrupted in; of a pool that is not mounted, or only read by brindle.
    pub replacement: Option<InterruptedReplacement>,
    /// Jobs that run, or are paused.
    pub jobs: Vec<Job>,
    /// The last scrub, and true while it runs.
    pub scrub: Option<(ScrubRecord, bool)>,
    /// State of the write-back tier, in a pool that brindle writes.
    pub write_back: Option<WriteBack>,
    /// Commits and fsyncs of a mount of brindle since it was made.
    pub commits: Option<CommitsReport>,
    /// Devices that are flash caches, by their ids, and what these report; of a mount of brindle.
    pub caches: Vec<(u64, CacheLines)>,
    /// Numbers of the work of `autodefrag` of a mount of brindle, by name.
    pub autodefrag: Vec<(String, u64)>,
    /// Requests of the devices of a mounted pool, and its cache of metadata.
    pub activity: Option<Activity>,
}

/// A copy of a superblock that is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSuperblock {
    /// Path of the device.
    pub path: String,
    /// Its offset there, in bytes.
    pub offset: u64,
    /// The reason.
    pub problem: String,
}

impl PoolHealth {
    /// Looks whether devices are fenced, and nothing is at work there, by the journals of a directory.
    pub fn look_for_fences(&mut self, directory: &StateDirectory) {
        let Ok(Some(journal)) = directory.read(&self.fsid) else { return };
        if directory.is_locked(&self.fsid) {
            return;
        }
        let size =
            |devid: u64| self.devices.iter().find(|it| it.devid.get() == devid).map(|it| it.total_bytes);
        let is_fenced = |device: &&FencedDevice| {
            let is_fence = |bytes| bytes != device.total_bytes && device.fences.contains(&bytes);
            size(device.devid).is_some_and(is_fence)
        };
        self.fenced =
            journal.devices.iter().filter(is_fenced).map(|device| DevId::new(device.devid)).collect();
    }
}

/// Server of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolServer {
    /// The kernel.
    Kernel,
    /// A mount of brindle.
    Brindle,
    /// None: the pool is not mounted.
    None,
}

/// Permission to write a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Written pool.
    Allowed,
    /// Pool that was mounted read-only by its user's wish.
    Declined,
    /// Pool that is read-only, or has become so, for a reason.
    Refused(String),
}

/// A device of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// Its id.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its path; empty if it is missing.
    pub path: String,
    /// Its size as the pool has it, in bytes.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub allocated_bytes: u64,
    /// Its class, as far as it is known.
    pub class: Option<PlacementClass>,
    /// True if it is not there.
    pub is_missing: bool,
    /// True if it has missed transactions, and is not written.
    pub is_stale: bool,
    /// True if it lacks writes that it failed to take.
    pub is_behind: bool,
    /// Failed writes, reads and flushes, wrong contents, and wrong generations, since they were reset; `None` if they can't be had.
    pub errors: Option<[u64; 5]>,
}

/// Names of the error counters, in their order.
pub const ERROR_KINDS: [&str; 5] = ["write", "read", "flush", "corruption", "generation"];

/// Space of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceHealth {
    /// Block groups by content, profile and class.
    pub groups: Vec<GroupHealth>,
    /// Room for data.
    pub data: RoomHealth,
    /// Room for metadata.
    pub metadata: RoomHealth,
    /// True if there are devices of both classes, and data lies by class.
    pub has_tiers: bool,
    /// Room on fast devices for data that belongs there, in bytes; of a pool that brindle writes.
    pub fast_data_bytes: Option<u64>,
}

/// Block groups of one content, profile and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHealth {
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Class of all devices that they lie on; `None` for both, or if classes make no difference.
    pub class: Option<PlacementClass>,
    /// Their logical length, in bytes.
    pub total_bytes: u64,
    /// Used bytes of it.
    pub used_bytes: u64,
}

impl GroupHealth {
    /// Name of the content: `data`, `metadata`, `system` or `mixed`.
    pub fn content_name(&self) -> String {
        Content::of(self.kind).to_string()
    }

    /// Name of the profile.
    pub fn profile_name(&self) -> String {
        self.kind.profile().map_or_else(|| "unknown".to_owned(), |profile| profile.to_string())
    }
}

/// Room for a content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomHealth {
    /// Used by it, in bytes.
    pub used_bytes: u64,
    /// Room for more, in bytes, as if nothing else were written.
    pub room_bytes: u64,
    /// Room for more where it belongs, in bytes; of a pool that brindle writes.
    pub preferred_bytes: Option<u64>,
}

impl RoomHealth {
    /// Share that is used, in percent, rounded up: 100 if there is no room at all.
    pub fn percent(&self) -> u64 {
        let all = u128::from(self.used_bytes) + u128::from(self.room_bytes);
        let percent = (u128::from(self.used_bytes) * 100).div_ceil(all.max(1));
        if all == 0 { 0 } else { u64::try_from(percent).unwrap_or(100) }
    }
}

/// A job of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name: `balance`, `device add`, `device remove`, `filesystem resize`, or the kernel's word.
    pub name: String,
    /// True while it runs, false if it is paused.
    pub is_running: bool,
    /// Amount that is done, and amount in all; in bytes, or in chunks on a mount of the kernel.
    pub progress: Option<(u64, u64)>,
}

impl Job {
    /// Share that is done, in percent.
    pub fn percent(&self) -> Option<u64> {
        let (done, all) = self.progress?;
        (all > 0).then(|| done.min(all).saturating_mul(100) / all)
    }
}
