//! Tiers of data: in a pool of fast and bulk devices, data chunks on fast devices alone are a space of their own, the
//! *fast tier*, which small files and what is marked are allocated from. Nothing on disk says so: where the stripes lie
//! does, and what the devices count as.
//!
//! The fast tier is *split* where a mirrored profile has more copies than there are fast devices: its chunks have a copy on each fast
//! device, and the others on bulk devices. Data that has spilled to fast devices lies in such chunks as well, as it does where
//! the fast devices are enough: it belongs elsewhere by the wishes of its files, and moves when there is room.
//!
//! Either tier helps out when the other is full: so a promise of data space is given against both, and kept by either.
//! In strict mode bulk data keeps off fast devices, and a promise is given against the bulk tier alone; what is for the
//! fast tier may lie there as well. Where the pool has devices of one class only, there is one space, as elsewhere.

use super::Space;
use super::device::Device;
use super::group::{Content, Group, Totals};
use super::state::{FastTier, State, content};
use crate::error::TreeError;
use crate::store::Store;
use brindle_ondisk::item::SuperblockAgesHeader;
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use brindle_policy::log::{LogDevice, LogEverywhere, LogPlacement, LogProfile, log_placement};
use brindle_policy::placement::{
    AllocationHint, DeviceSummary, PlacementClass, PlacementMode, classes, copies_on_fast, fast_data_devices,
    is_in_fast_tier, room_for_fast_data,
};
use brindle_policy::sleep::sleepers;
use brindle_policy::writeback::{DataPlace, WriteBackMode};
use std::collections::{BTreeMap, BTreeSet};

impl Space {
    /// Stores another hint for a device: new chunks go by it from now on. Durable with the next commit. It lies in the
    /// chunk tree: a device that is missing has one as well, and goes by it when it is back.
    pub(crate) fn set_allocation_hint(
        &self,
        store: &Store,
        devid: DevId,
        hint: AllocationHint,
    ) -> Result<(), TreeError> {
        let mut state = self.lock();
        let Some(device) = state.devices.iter_mut().find(|device| device.devid == devid) else {
            let devices = store.volume().devices();
            let is_absent = devices.iter().any(|device| device.devid == devid && device.missing);
            return match is_absent {
                true => {
                    state.absent.entry(devid).or_default().hint = Some(hint.number().into());
                    Ok(())
                }
                false => Err(TreeError::NoDevice(devid)),
            };
        };
        device.hint = hint;
        device.stored_type = hint.number().into();
        device.is_changed = true;
        self.update_tiers(&mut state);
        Ok(())
    }

    /// Weight of a device's class.
    pub(crate) fn placement(&self) -> PlacementMode {
        self.lock().placement
    }

    /// Lets the class of a device weigh more or less from the next chunk on. Strict is refused while what is promised
    /// to data would not fit on bulk devices alone: it could not be written then.
    pub(crate) fn set_placement(&self, store: &Store, mode: PlacementMode) -> Result<(), TreeError> {
        let mode = placement_of(store, mode);
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.placement, mode);
        self.update_tiers(&mut state);
        let available = self.data_totals(&state).available.saturating_sub(state.kept_for_destaging());
        if mode == PlacementMode::Strict && state.promised_data > available {
            state.placement = before;
            self.update_tiers(&mut state);
            return Err(TreeError::NoSpace(
                "data that waits to be written fits on no bulk device".to_owned(),
            ));
        }
        self.announce(&state);
        Ok(())
    }

    /// Profile of the log that this mount goes by.
    ///
    /// # Errors
    /// A pool that is not written.
    pub(crate) fn log_profile(&self) -> LogProfile {
        self.lock().log_profile
    }

    /// Fast tier of data, for the profile that new chunks have.
    pub(crate) fn fast_tier(&self) -> FastTier {
        let mut state = self.lock();
        if let Some(known) = state.fast_tier {
            return known;
        }
        let profile = state.profile(Content::FastData);
        let is_enough = fast_data_devices(&state.summaries()) >= usize::from(profile.attributes().devs_min);
        let is_there = || state.groups().any(|group| group.content() == Content::FastData);
        let found = match state.copies_on_fast(profile) {
            Some(_) => FastTier::Split,
            None if state.fast.is_some() && (is_enough || is_there()) => FastTier::Alone,
            None => FastTier::Absent,
        };
        *state.fast_tier.insert(found)
    }

    /// Returns true if data placement distinguishes fast and bulk devices.
    pub(crate) fn has_tiers(&self) -> bool {
        self.lock().fast.is_some()
    }
}

/// Weight of the class in this pool. While devices are missing, nothing is refused for the sake of order: there may
/// be too few of a class for the profile.
pub(super) fn placement_of(store: &Store, wanted: PlacementMode) -> PlacementMode {
    let is_degraded = store.volume().devices().iter().any(|device| device.missing);
    if wanted == PlacementMode::Strict && is_degraded {
        tracing::warn!("devices are missing: ssd_metadata is not strict until the pool is whole again");
        return PlacementMode::Preferred;
    }
    wanted
}

impl Space {
    /// Says where new chunks will go.
    pub(super) fn announce(&self, state: &State) {
        let Some(fast) = &state.fast else {
            tracing::info!("placement: new chunks go where the most space is");
            return;
        };
        let ids = |is_fast: bool| {
            let devids = state.devices.iter().map(|device| device.devid);
            let devids: Vec<String> = devids
                .filter(|devid| fast.contains(devid) == is_fast)
                .map(|devid| devid.to_string())
                .collect();
            devids.join(", ")
        };
        let mode =
            if state.placement == PlacementMode::Strict { "ssd_metadata=strict" } else { "ssd_metadata" };
        tracing::info!("{mode}: metadata goes to devid {}, data to devid {}", ids(true), ids(false));
        let obstacle = self.find_write_back_obstacle(state);
        if let Some(obstacle) = obstacle.filter(|_| state.write_back.mode != WriteBackMode::Off) {
            match state.write_back.is_chosen {
                true => tracing::warn!("no data goes to the write-back tier: {obstacle}"),
                false => tracing::info!("no data goes to the write-back tier: {obstacle}"),
            }
        }
    }

    /// Fast devices that hold the log alone, or the reason for which there are none.
    pub(crate) fn log_placement(&self) -> Result<LogPlacement, LogEverywhere> {
        let mut state = self.lock();
        if let Some(known) = &state.log_placement {
            return known.clone();
        }
        let fast = state.fast.clone().unwrap_or_default();
        let found =
            log_placement(&state.log_candidates(&fast), state.tolerated_failures(), state.log_profile);
        state.log_placement.insert(found).clone()
    }

    /// Goes by another profile of the log from now on.
    pub(crate) fn use_log_profile(&self, profile: LogProfile) {
        let mut state = self.lock();
        state.log_profile = profile;
        state.log_placement = None;
    }

    /// Bulk devices that commits may leave alone while nothing is written to them; `None` in a pool that does not
    /// distinguish classes.
    pub(crate) fn sleepers(&self) -> Option<Vec<DevId>> {
        let state = self.lock();
        let fast = state.fast.as_ref()?;
        let devices = state.log_candidates(fast);
        let sleepers = sleepers(&devices, state.tolerated_failures()).into_iter().map(DevId::new);
        Some(sleepers.take(SuperblockAgesHeader::DEVICES_MAX).collect())
    }

    /// Finds out which devices are fast, and sorts the groups accordingly.
    pub(super) fn update_tiers(&self, state: &mut State) {
        let classes = classes(&state.summaries());
        state.update_ranks(&classes);
        let has = |class| classes.contains(&class);
        let makes_difference = state.placement != PlacementMode::Classic && !self.is_mixed;
        let has_tiers = makes_difference && has(PlacementClass::Fast) && has(PlacementClass::Bulk);
        let devices = state.devices.iter().zip(&classes);
        let fast = devices.filter(|(_, class)| **class == PlacementClass::Fast);
        state.fast = has_tiers.then(|| fast.map(|(device, _)| device.devid).collect());
        let fast = classes.iter().filter(|class| **class == PlacementClass::Fast).count();
        // A fast device that takes no data would have to have a copy.
        let is_splittable = has_tiers && fast_data_devices(&state.summaries()) == fast;
        state.sides = is_splittable.then(|| (fast, classes.len() - fast));
        state.forget_conclusions();
        let starts: Vec<u64> = state.groups().map(|group| group.start).collect();
        for start in starts {
            let group = state.take_away(start).expect("it was there just now");
            state.add(group);
        }
    }

    /// Weight of the class. A pool of one class alone (others may be missing) has no other place for anything.
    pub(super) fn mode(&self, state: &State) -> PlacementMode {
        match state.placement {
            PlacementMode::Strict if state.fast.is_none() => PlacementMode::Preferred,
            mode => mode,
        }
    }

    /// Contents from which data of a place may be taken, in order.
    pub(super) fn data_contents(&self, place: DataPlace) -> &'static [Content] {
        let state = self.lock();
        match (content(self.is_mixed, BlockGroupType::DATA), place) {
            (Content::Mixed, _) => &[Content::Mixed],
            _ if state.fast.is_none() => &[Content::Data],
            (_, DataPlace::Fast | DataPlace::Class(PlacementClass::Fast, _)) => {
                &[Content::FastData, Content::Data]
            }
            _ if state.placement == PlacementMode::Strict => &[Content::Data],
            (_, DataPlace::Bulk | DataPlace::Class(PlacementClass::Bulk, _)) => {
                &[Content::Data, Content::FastData]
            }
            (_, DataPlace::WriteBack) => &[Content::WriteBack, Content::Data, Content::FastData],
        }
    }

    /// The sums over everything that promises of data space are kept with: not the write-back tier, where nothing stays.
    pub(super) fn data_totals(&self, state: &State) -> Totals {
        let content = content(self.is_mixed, BlockGroupType::DATA);
        let mut totals = state.totals(content);
        if content == Content::Data && state.placement != PlacementMode::Strict {
            totals.add(state.totals(Content::FastData));
        }
        totals
    }
}

impl State {
    /// The devices, as far as superblocks go.
    fn log_candidates(&self, fast: &BTreeSet<DevId>) -> Vec<LogDevice> {
        let candidate =
            |device: &Device| LogDevice { devid: device.devid.get(), is_fast: fast.contains(&device.devid) };
        self.devices.iter().map(candidate).collect()
    }

    /// Number of devices that metadata can lose.
    fn tolerated_failures(&self) -> u16 {
        let metadata = self.groups().filter(|group| !group.kind.contains(BlockGroupType::DATA));
        let tolerated = metadata.filter_map(|group| group.kind.profile()).map(Profile::attributes);
        tolerated.map(|attributes| attributes.tolerated_failures).max().unwrap_or(0)
    }

    /// Facts about the devices for placement.
    pub(super) fn summaries(&self) -> Vec<DeviceSummary> {
        let mut summaries = self.summaries_of_sides();
        for (summary, device) in summaries.iter_mut().zip(&self.devices) {
            summary.rank = self.ranks.get(&device.devid).copied().unwrap_or(0);
        }
        summaries
    }

    /// The same, as far as the sides go. The user's class counts more than the stored one.
    fn summaries_of_sides(&self) -> Vec<DeviceSummary> {
        let mut summaries: Vec<DeviceSummary> = self.devices.iter().map(Device::summary).collect();
        if self.devices.iter().all(|device| device.chosen.is_none()) {
            return summaries;
        }
        // What the others are must not hang on a hint that is overridden.
        let classes = classes(&summaries);
        for ((summary, device), class) in summaries.iter_mut().zip(&self.devices).zip(classes) {
            summary.class = device.chosen.unwrap_or(class);
            let says_more = device.chosen.is_none() && summary.hint != AllocationHint::DataPreferred;
            if !says_more && summary.hint != AllocationHint::NoNewChunks {
                summary.hint = match summary.class {
                    PlacementClass::Fast => AllocationHint::MetadataPreferred,
                    PlacementClass::Bulk => AllocationHint::DataPreferred,
                };
            }
        }
        summaries
    }

    /// The same for a chunk of a content: of fast devices, a part is kept for metadata.
    pub(super) fn summaries_for(&self, content: Content) -> Vec<DeviceSummary> {
        let mut summaries = self.summaries();
        if !matches!(content, Content::FastData | Content::WriteBack) {
            return summaries;
        }
        let mut metadata: BTreeMap<DevId, u64> = BTreeMap::new();
        for group in self.groups().filter(|group| !group.kind.contains(BlockGroupType::DATA)) {
            for (devid, _) in &group.stripes {
                *metadata.entry(*devid).or_default() += group.stripe_bytes;
            }
        }
        let is_fast = |device: &Device| self.fast.as_ref().is_none_or(|fast| fast.contains(&device.devid));
        for (summary, device) in summaries.iter_mut().zip(&self.devices).filter(|(_, device)| is_fast(device))
        {
            let held = metadata.get(&device.devid).copied().unwrap_or(0);
            let room = room_for_fast_data(device.total_bytes, held, device.free.bytes());
            summary.max_available_bytes = summary.max_available_bytes.min(room);
            summary.total_available_bytes = summary.total_available_bytes.min(room);
        }
        summaries
    }

    /// Returns true if a group lies on fast devices alone, where that makes a difference.
    pub(super) fn lies_on_fast_devices(&self, group: &Group) -> bool {
        let is_fast = |fast: &BTreeSet<DevId>| group.stripes.iter().all(|(devid, _)| fast.contains(devid));
        self.fast.as_ref().is_some_and(is_fast)
    }

    /// Number of copies on fast devices of chunks of the fast tier that have others on bulk devices.
    pub(super) fn copies_on_fast(&self, profile: Profile) -> Option<usize> {
        let (fast, bulk) = self.sides?;
        copies_on_fast(profile, fast, bulk)
    }

    /// Returns true if a group of data is of the fast tier. Of another content: if it lies on fast devices alone.
    pub(super) fn lies_in_fast_tier(&self, group: &Group) -> bool {
        let devices: BTreeSet<DevId> = group.stripes.iter().map(|(devid, _)| *devid).collect();
        match group.kind.profile().filter(|_| Content::of(group.kind) == Content::Data) {
            Some(profile) => self.is_of_fast_tier(&devices, profile),
            None => self.lies_on_fast_devices(group),
        }
    }

    /// Returns true if a chunk of data on these devices is of the fast tier.
    pub(super) fn is_of_fast_tier(&self, devices: &BTreeSet<DevId>, profile: Profile) -> bool {
        let Some(fast) = &self.fast else { return false };
        is_in_fast_tier(devices.intersection(fast).count(), devices.len(), self.copies_on_fast(profile))
    }
}
