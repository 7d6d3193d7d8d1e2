//! Face of a pool for its space and its devices: each method is one of a part.

use super::Pool;
use crate::devices::replace::Replacing;
use crate::devices::{Devices, JoiningDevice, Parted};
use crate::error::TreeError;
use crate::options::{WriteBackWish, WriterOptions};
use crate::space::Space;
use crate::space::close::GroupStatus;
use crate::space::data::{RangeLengths, ReservedExtent, TierChoice};
use crate::space::membership::Withheld;
use crate::space::state::FastTier;
use crate::space::summary::SpaceSummary;
use crate::space::writeback_space::{InTransit, WriteBackStatus};
use crate::space::writeback_tier::{WriteBackSettings, WriteBackTier};
use crate::transaction::Need;
use brindle_device::WritableDevice;
use brindle_ondisk::{BlockGroupType, DevId, Logical, Profile};
use brindle_policy::log::{LogEverywhere, LogPlacement, LogProfile};
use brindle_policy::placement::{AllocationHint, DataTier, PlacementMode};
use brindle_policy::writeback::{DataPlace, WriteBackMode};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

impl Pool {
    /// The block groups that there are, by their addresses.
    pub fn block_groups(&self) -> Result<Vec<GroupStatus>, TreeError> {
        Ok(self.changes()?.space.block_groups())
    }

    /// The block group that begins at an address, if there is one (any more).
    pub fn block_group(&self, start: Logical) -> Result<Option<GroupStatus>, TreeError> {
        Ok(self.changes()?.space.block_group(start))
    }

    /// From these block groups space is taken only where no chunk can be made instead; no others are avoided then.
    pub fn avoid_groups(&self, groups: &[Logical]) -> Result<(), TreeError> {
        self.changes()?.space.avoid_groups(groups);
        Ok(())
    }

    /// The profile that new chunks of a content (its bit, or those of mixed groups) are to have instead of the one
    /// that the pool has; it is forgotten when the pool is closed.
    pub fn set_target_profile(
        &self,
        content: BlockGroupType,
        profile: Option<Profile>,
    ) -> Result<(), TreeError> {
        self.changes()?.space.set_target_profile(content, profile);
        Ok(())
    }

    /// Reserves `bytes` bytes of data space; [`TreeError::NoSpace`] if there are not enough. May commit if that
    /// helps: not to be called within a transaction, nor with a tree locked.
    pub fn reserve_data(&self, bytes: u64) -> Result<(), TreeError> {
        self.transactions()?.reserve_data(bytes)
    }

    /// Takes back what was promised and is not needed (any more).
    pub fn release_data(&self, bytes: u64) {
        if let Ok(changes) = self.changes() {
            changes.space.release_data(bytes);
        }
    }

    /// Takes data space that was promised: one extent of `min` to `max` bytes, multiples of the sector size, as
    /// long as there is, near `hint` (the end of what it follows) if possible. The promise shrinks by what is taken.
    pub fn reserve_extent(
        &self,
        min: u64,
        max: u64,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        self.reserve_extent_on(DataPlace::Bulk, min, max, hint)
    }

    /// Reserves an extent like [`reserve_extent`](Self::reserve_extent), in data chunks of a place, as far as there is room, or
    /// in others.
    pub fn reserve_extent_on(
        &self,
        place: DataPlace,
        min: u64,
        max: u64,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        let lengths = RangeLengths::of_extent(min, max);
        self.changes()?.space.reserve_extent(self, TierChoice::Preferred(place), lengths, hint)
    }

    /// Takes one free range for extents that are written together, like [`reserve_extent_on`](Self::reserve_extent_on): a range
    /// as long as they are, or the longest. A new chunk is made only where no range is long enough for the first of them.
    pub fn reserve_range_on(
        &self,
        place: DataPlace,
        lengths: RangeLengths,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        self.changes()?.space.reserve_extent(self, TierChoice::Preferred(place), lengths, None)
    }

    /// Discards space that was freed ([`DiscardMode::Async`](crate::DiscardMode)), at most about `budget_bytes`;
    /// returns the bytes discarded. To be called from time to time, with no tree locked and outside of a transaction.
    pub fn discard_step(&self, budget_bytes: u64) -> Result<u64, TreeError> {
        self.changes()?.space.discard_step(self, budget_bytes)
    }

    /// Discards every free range of at least `min_bytes` within a range of logical addresses (`fstrim`). Space that
    /// belongs to no chunk has no logical address: it is discarded if the range holds every chunk. Returns the number
    /// of device bytes, which are fewer if `goes_on` says no. Not to be called with a tree locked.
    pub fn trim(
        &self,
        range: Range<Logical>,
        min_bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, TreeError> {
        self.changes()?.space.trim(self, range, min_bytes, goes_on)
    }

    /// Makes each device end where its last chunk does; what size each has then, in bytes. Counts from the next commit
    /// on: before it is durable, the devices themselves must stay as large as they are.
    pub fn shrink_devices(&self) -> Result<Vec<(DevId, u64)>, TreeError> {
        Ok(self.changes()?.space.shrink_devices())
    }

    /// Present summary; of a pool that is only read, that of the last commit.
    pub fn space_summary(&self) -> Result<SpaceSummary, TreeError> {
        match self.changes() {
            Ok(changes) => Ok(changes.space.summary(self)),
            Err(_) => Ok(Space::load(self, &WriterOptions::default())?.summary(self)),
        }
    }

    /// Stores another hint for a device: new chunks go by it from now on. Durable with the next commit. It lies in the
    /// chunk tree: a device that is missing has one as well, and goes by it when it is back.
    pub fn set_allocation_hint(&self, devid: DevId, hint: AllocationHint) -> Result<(), TreeError> {
        self.changes()?.space.set_allocation_hint(self, devid, hint)
    }

    /// Weight of a device's class.
    pub fn placement(&self) -> Result<PlacementMode, TreeError> {
        Ok(self.changes()?.space.placement())
    }

    /// Lets the class of a device weigh more or less from the next chunk on. Strict is refused while what is promised
    /// to data would not fit on bulk devices alone: it could not be written then.
    pub fn set_placement(&self, mode: PlacementMode) -> Result<(), TreeError> {
        self.changes()?.space.set_placement(self, mode)
    }

    /// Fast devices that hold the log alone, or the reason for which there are none.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn log_placement(&self) -> Result<Result<LogPlacement, LogEverywhere>, TreeError> {
        Ok(self.changes()?.space.log_placement())
    }

    /// Profile of the log that this mount goes by.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn log_profile(&self) -> Result<LogProfile, TreeError> {
        Ok(self.changes()?.space.log_profile())
    }

    /// Fast tier of data, for the profile that new chunks have.
    pub fn fast_tier(&self) -> FastTier {
        self.changes().map_or(FastTier::Absent, |changes| changes.space.fast_tier())
    }

    /// The devices that a mark names, `fast`, `bulk` or a class that the pool has.
    pub fn tier_named(&self, name: &[u8]) -> Option<DataTier> {
        self.changes().ok().and_then(|changes| changes.space.tier_named(name))
    }

    /// Tier of an extent that files with these wishes share.
    pub fn tier_of_owners(&self, owners: &[DataTier]) -> DataTier {
        self.changes().map_or_else(|_| DataTier::default(), |changes| changes.space.tier_of_owners(owners))
    }

    /// Returns true if data placement distinguishes fast and bulk devices.
    pub fn has_tiers(&self) -> bool {
        self.changes().is_ok_and(|changes| changes.space.has_tiers())
    }

    /// Chunks of the write-back tier, as the pool has them.
    ///
    /// # Errors
    /// A device tree that can't be read.
    pub fn write_back_chunks(&self) -> Result<BTreeSet<Logical>, TreeError> {
        WriteBackTier::chunks(self)
    }

    /// State of the write-back tier; of a pool that is only read, that of the last commit, and the mode that a mount would
    /// go by.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn write_back_status(&self) -> Result<WriteBackStatus, TreeError> {
        match self.changes() {
            Ok(changes) => Ok(changes.space.write_back_status(self)),
            Err(_) => {
                let write_back = WriteBackWish::Stored(WriteBackMode::OF_MOUNTS);
                let options = WriterOptions { write_back, ..WriterOptions::default() };
                Ok(Space::load(self, &options)?.write_back_status(self))
            }
        }
    }

    /// Stores other settings of the write-back tier, and goes by them from now on; durable with the next commit.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn set_write_back(&self, settings: WriteBackSettings) -> Result<(), TreeError> {
        let _transaction = self.join(Need::items(1))?;
        self.changes()?.space.set_write_back(self, settings);
        Ok(())
    }

    /// A device has refused data of the write-back tier: for some time no more goes there, and what waits is to be moved.
    pub fn rest_write_back(&self) {
        if let Ok(changes) = self.changes() {
            changes.space.rest_write_back();
        }
    }

    /// Returns true if new data goes to the write-back tier. `is_synced`: a sync waits for it.
    pub fn takes_write_back(&self, is_synced: bool) -> bool {
        self.changes().is_ok_and(|changes| changes.space.takes_write_back(is_synced))
    }

    /// Returns true if the write-back tier has room for some bytes, in its chunks or in one that could be made.
    pub fn has_write_back_room(&self, bytes: u64) -> bool {
        self.changes().is_ok_and(|changes| changes.space.has_write_back_room(self, bytes))
    }

    /// Returns true if an extent of data lies on bulk devices, with one copy at least, in a pool that distinguishes them.
    pub fn lies_on_bulk_devices(&self, at: Logical) -> bool {
        self.changes().is_ok_and(|changes| changes.space.lies_on_bulk_devices(at))
    }

    /// Returns true if an extent of data waits in the write-back tier, to be destaged.
    pub fn lies_in_write_back_tier(&self, at: Logical) -> bool {
        self.changes().is_ok_and(|changes| changes.space.lies_in_write_back_tier(at))
    }

    /// Makes a chunk of the write-back tier if it is in use, and the chunks that there are may soon be full: to be called now
    /// and then, so that no sync has to wait for one. Whether one was made; it serves a log from the next commit on.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn make_write_back_room(&self) -> Result<bool, TreeError> {
        Ok(self.changes()?.space.make_write_back_room(self))
    }

    /// Promises room on bulk devices for data that moves there from the write-back tier: it was kept for it. Both places count as
    /// one as long as the answer lives.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn reserve_kept_data(&self, bytes: u64) -> Result<InTransit<'_>, TreeError> {
        Ok(self.changes()?.space.reserve_kept_data(bytes))
    }

    /// Nothing is taken from an offset of a device on (0: from nowhere), until what is answered is dropped.
    pub fn withhold(&self, devid: DevId, end: u64) -> Result<Withheld<'_>, TreeError> {
        Ok(self.changes()?.space.withhold(devid, end))
    }

    /// A device joins the pool; which id it has. Chunks may lie on it at once; durable with the next commit.
    pub fn join_device(&self, new: &JoiningDevice) -> Result<DevId, TreeError> {
        Devices::of(self.transactions()?).join(new)
    }

    /// A device has another size as far as the pool is concerned; durable with the next commit. `false`, and nothing has
    /// changed, while a chunk lies behind its new end. A smaller one needs [`withhold`](Self::withhold) before.
    pub fn set_device_size(&self, devid: DevId, total_bytes: u64) -> Result<bool, TreeError> {
        Devices::of(self.transactions()?).resize(devid, total_bytes)
    }

    /// A device leaves the pool, durably with the next commit; `None`, and nothing has changed, while a chunk lies on it.
    /// It needs [`withhold`](Self::withhold) before, unless it is missing. What it was written with, if it was there: it is to
    /// be left alone before the commit is durable.
    pub fn part_with_device(&self, devid: DevId) -> Result<Option<Parted>, TreeError> {
        Devices::of(self.transactions()?).part_with(devid)
    }

    /// Gives a device another id, which no device has, durably. Nothing else uses the pool meanwhile, and no device is
    /// missing.
    ///
    /// # Errors
    /// Devices that fail: then nothing more is written.
    pub fn renumber_device(&self, devid: DevId, new: DevId) -> Result<(), TreeError> {
        Devices::of(self.transactions()?).renumber(devid, new)
    }

    /// Begins to replace a device, missing or not, by one without superblocks.
    pub fn begin_replacement(
        &self,
        devid: DevId,
        target: &Arc<dyn WritableDevice>,
    ) -> Result<Replacing<'_>, TreeError> {
        Devices::of(self.transactions()?).begin_replacement(devid, target)
    }
}
