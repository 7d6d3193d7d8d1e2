//! Changes of space whose items are not written yet: chunks, devices, block groups, free space.

use super::Space;
use super::chunks::describe;
use super::delta::Delta;
use super::free_space::Bounds;
use super::group::Group;
use super::metadata::Load;
use super::state::{AbsentChange, State};
use crate::error::TreeError;
use brindle_interval::IntervalSet;
use brindle_ondisk::{BlockGroupType, DevId, Key, Logical, Uuid};
use std::collections::BTreeMap;

/// Changes since the last call.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    pub(crate) chunks: Vec<(u64, Vec<u8>)>,
    pub(crate) removed: Vec<Group>,
    pub(crate) devices: Vec<DeviceChange>,
    pub(crate) absent: BTreeMap<DevId, AbsentChange>,
    pub(crate) groups: Vec<GroupChange>,
    /// The item of the write-back tier, if it has changed; `None` inside if it goes.
    pub(crate) write_back: Option<Option<Vec<u8>>>,
    pub(crate) chunk_tree_uuid: Uuid,
}

#[derive(Debug)]
pub(crate) struct DeviceChange {
    pub(crate) devid: DevId,
    pub(crate) stored_type: u64,
    pub(crate) total_bytes: u64,
    pub(crate) used_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct GroupChange {
    pub(crate) bounds: Bounds,
    pub(crate) key: Key,
    pub(crate) kind: BlockGroupType,
    pub(crate) used: u64,
    pub(crate) is_new: bool,
    pub(crate) is_used_changed: bool,
    pub(crate) delta: Delta,
    /// Free ranges to begin with, in place of those of the free space tree.
    pub(crate) recounted: Option<IntervalSet<u64>>,
    /// For a new one: where its chunk lies.
    pub(crate) stripes: Vec<(DevId, u64)>,
    pub(crate) stripe_bytes: u64,
}

impl Unwritten {
    pub(crate) fn is_empty(&self) -> bool {
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
    /// next transaction that has one. A spare of the write-back tier is, once it is wanted no more: it may have fewer copies than
    /// other data, and would then keep a pool that has lost its device from being written.
    pub(crate) fn has_unwritten(&self) -> bool {
        let state = self.lock();
        !state.unwritten_chunks.is_empty()
            || !state.to_remove.is_empty()
            || state.devices.iter().any(|device| device.is_changed)
            || !state.absent.is_empty()
            || state.groups().any(is_changed)
            || state.write_back.is_changed
            || state.has_drained()
            || state.has_unwanted_spare()
    }

    /// Takes what has changed since the last call, to be written.
    pub(crate) fn take_unwritten(&self, load: Load) -> Result<Unwritten, TreeError> {
        let mut state = self.lock();
        if let Some((extent, problem)) = state.damage {
            let start = Logical::new(extent.start);
            return Err(TreeError::Space { start, length: extent.length(), problem });
        }
        if std::mem::take(&mut state.may_remove) || state.has_drained() {
            let kept = self.kept_back(&state, load.trees);
            let needed = self.needed(&state, load, 0) + kept.freeing + kept.rescue;
            self.remove_empty(&mut state, needed);
            // What is new stays until it is known.
            state.may_remove |= state.has_unsettled_spare();
        }
        state.forget_waiting_times();
        Ok(take(&mut state, self.sectorsize))
    }

    /// The items of these block groups are gone.
    pub(crate) fn note_removed(&self, groups: Vec<Group>) {
        self.lock().removed.extend(groups);
    }
}

/// Takes what has changed; it counts as written from then on, for if it can't be, nothing is any more.
fn take(state: &mut State, sectorsize: u64) -> Unwritten {
    let mut work = Unwritten {
        chunks: std::mem::take(&mut state.unwritten_chunks).into_iter().collect(),
        removed: std::mem::take(&mut state.to_remove),
        absent: std::mem::take(&mut state.absent),
        chunk_tree_uuid: state.chunk_tree_uuid,
        ..Unwritten::default()
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
    let changed: Vec<u64> =
        state.groups().filter(|group| is_changed(group)).map(|group| group.start).collect();
    for start in changed {
        let change = state.change(start, |group| take_group(group, sectorsize));
        work.groups.extend(change);
    }
    work
}

/// Returns true if the trees do not have the present state of a group.
fn is_changed(group: &Group) -> bool {
    group.written_used != Some(group.used) || !group.delta.is_empty() || group.recounted.is_some()
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
        recounted: group.recounted.take(),
        stripes: if is_new { group.stripes.clone() } else { Vec::new() },
        stripe_bytes: group.stripe_bytes,
    }
}
