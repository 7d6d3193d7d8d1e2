//! Classes of devices within the fast and the bulk side: the order in which data is looked for in them.
//!
//! A data chunk is of the class of its slowest device, one of the fast tier of that of its slowest fast device. Sums of space are kept by side alone: a class that is full sends data to
//! the next one, and a promise is kept by any of them.

use super::Space;
use super::device::Device;
use super::group::{Content, Group};
use super::state::State;
use crate::error::TreeError;
use crate::store::Store;
use brindle_ondisk::DevId;
use brindle_policy::class::DeviceClasses;
use brindle_policy::placement::{
    AllocationHint, DataTier, DeviceSummary, PlacementClass, Ranks, classes, tier_of_owners,
};
use brindle_policy::writeback::DataPlace;

impl Space {
    /// Goes by other classes from the next chunk on.
    pub(crate) fn use_classes(&self, wanted: DeviceClasses) {
        let mut state = self.lock();
        state.classes = wanted;
        self.update_tiers(&mut state);
    }

    /// Stores hints by which devices are on these sides, and each other one on the side that it is on: as soon as one device has a
    /// hint, hints alone count.
    pub(crate) fn set_sides(&self, store: &Store, told: &[(DevId, PlacementClass)]) -> Result<(), TreeError> {
        if told.is_empty() {
            return Ok(());
        }
        let mut wanted = told.to_vec();
        {
            let state = self.lock();
            // Not by the classes that were told for this mount alone.
            let summaries: Vec<DeviceSummary> = state.devices.iter().map(Device::summary).collect();
            let others = summaries.iter().zip(classes(&summaries)).map(|(device, side)| (device.devid, side));
            wanted.extend(others.filter(|(devid, _)| told.iter().all(|(other, _)| other != devid)));
            let has_it = |(devid, side): &(DevId, PlacementClass)| {
                let device = summaries.iter().find(|device| device.devid == *devid);
                device.is_some_and(|device| device.hint.class().is_none_or(|of_hint| of_hint == *side))
            };
            wanted.retain(|device| !has_it(device));
        }
        for (devid, side) in wanted {
            let hint = match side {
                PlacementClass::Fast => AllocationHint::MetadataPreferred,
                PlacementClass::Bulk => AllocationHint::DataPreferred,
            };
            self.set_allocation_hint(store, devid, hint)?;
        }
        Ok(())
    }

    /// The devices that a mark names, in this pool.
    pub(crate) fn tier_named(&self, name: &[u8]) -> Option<DataTier> {
        self.lock().classes.named(name)
    }

    /// Tier of an extent that several files share.
    pub(crate) fn tier_of_owners(&self, owners: &[DataTier]) -> DataTier {
        tier_of_owners(owners.iter().copied(), self.lock().border())
    }
}

impl State {
    /// The lowest rank of the bulk side.
    fn border(&self) -> u8 {
        self.classes.first_bulk_rank()
    }

    /// Finds out the ranks of the devices, which are on these sides.
    pub(super) fn update_ranks(&mut self, sides: &[PlacementClass]) {
        let rank = |(device, side): (&Device, &PlacementClass)| {
            (device.devid, self.classes.rank(&device.uuid, *side))
        };
        self.ranks = self.devices.iter().zip(sides).map(rank).collect();
    }

    /// Rank of a group's slowest device; of one of the fast tier, of its slowest fast device.
    pub(super) fn rank_of(&self, group: &Group) -> u8 {
        let is_fast = |devid: &DevId| self.fast.as_ref().is_some_and(|fast| fast.contains(devid));
        let devices = group.stripes.iter().map(|(devid, _)| devid);
        let devices = devices.filter(|devid| !group.is_fast || is_fast(devid));
        devices.filter_map(|devid| self.ranks.get(devid).copied()).max().unwrap_or(0)
    }

    /// Returns true if the owner has listed classes, and they make a difference.
    pub(super) fn has_classes(&self) -> bool {
        self.fast.is_some() && !self.classes.is_empty()
    }

    /// Ranges of ranks in which space for data of a place is looked for, one after the other.
    pub(super) fn steps(&self, content: Content, place: DataPlace) -> Vec<Ranks> {
        let (border, count) = (self.border(), u8::try_from(self.classes.all().len()).unwrap_or(u8::MAX));
        let (first, end) = match content {
            Content::Data => (border, count),
            Content::FastData | Content::WriteBack => (0, border),
            Content::Metadata | Content::System | Content::Mixed => (0, 0),
        };
        if !self.has_classes() || first == end {
            return vec![Ranks::ALL];
        }
        let is_for_bulk = matches!(place, DataPlace::Bulk | DataPlace::Class(PlacementClass::Bulk, _));
        let mut steps = Vec::with_capacity(usize::from(end - first) + 2);
        if let DataPlace::Class(_, rank) = place {
            if (first..end).contains(&rank) {
                steps.push(Ranks { first: rank, last: rank });
            }
        }
        match content == Content::FastData && is_for_bulk {
            // Bulk data keeps off the fastest for as long as it can.
            true => steps.extend((first..end).rev().map(|rank| Ranks { first: rank, last: end - 1 })),
            false => steps.extend((first..end).map(|rank| Ranks { first, last: rank })),
        }
        steps.push(Ranks::ALL);
        steps
    }
}
