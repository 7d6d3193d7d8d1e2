//! The superblocks of a commit: which devices get one, and which sleep.
//!
//! A commit makes durable what was written, on the devices that were written; then it writes its superblock to these and
//! to the fast ones. Bulk devices that were not written since their last superblock are *asleep*: they get no flush and no
//! superblock, so theirs is behind, and they lack nothing. The first commit of a mount goes to all devices, and so does a
//! commit that changes what a superblock says of the pool. Unmounting wakes all.
//!
//! **A device that slept and one that was away** have older superblocks both. All superblocks between two losses are of one
//! [`Series`]: an older one of the same series is that of a device that slept. A mount begins a series with its first
//! commit, for devices may have been away before it, and so does each commit while a device lacks anything, whatever that is:
//! one that falls out keeps the series of before. The kernel and btrfs-progs write none, so whatever they did without a
//! device shows as well.
//!
//! **A device that slept and an old copy of it**, made during the mount (a snapshot of a virtual disk), have older superblocks
//! of the same series both. The copy lacks what was written since.
//! - A device that has taken a write since its last superblock takes part in the next commit, also if an fsync has made the
//!   write durable. So a copy with the superblock that the device has lacks nothing that a commit has.
//! - Each commit records which superblocks bulk devices hold durably when it is settled ([`ages`](super::ages)). A copy with
//!   an older one is found out. The record demands nothing that a crash can take back: all copies of such a superblock are
//!   durable before the first is written over by the commit that has the record.
//! - The record is of before the commit. So superblocks of bulk devices that take part are durable before those of the others
//!   are written, which name them as [`Holders`](brindle_ondisk::Holders). A mount demands of holders the same superblock. A
//!   crash before that finds superblocks without holders, and the record counts. A device that fails to take its superblock
//!   is not named.
//! - Unmounting names all devices.
//! - An fsync that makes data of bulk devices durable, by a log, wakes those that slept until then: they get the superblock
//!   of the last commit before, all copies of it, and the superblocks with the log name them.
//!
//! Without a record no device sleeps. Old copies that can't be told: those made since the last commit; after a crash that of a
//! fast device which is one commit behind, as a crash between superblocks leaves it; and those of all devices with the newest
//! superblocks at once, which make the pool what it was.
//!
//! **A crash at each point.**
//! - Before a series begins all devices hold the superblock of the last commit: those that are not known to are woken. So
//!   between the first superblocks of the new series the others are one behind, as after any commit.
//! - A first superblock that differs is written over while the other copies are whole and durable, and of the same series
//!   or one behind. So all copies of a device are durable before another commit is: a device that goes to sleep with some
//!   that are not is flushed once more by the next commit.
//! - Of a device that was torn when the mount began, the first copy is made whole before the others are written. Of one that
//!   was asleep then by a first copy that is whole, the others may be torn: they are made whole before the first is written.
//! - To name holders changes one sector of a superblock of the same generation, which can't be torn.
//! - A device that lacks the new root is stale once others have the new superblock and it has not. So if the pool can't do without
//!   such a device, its superblock comes first: if that fails, no device has one, and the pool is as of the last commit.
//! - The root of the new transaction is on devices that were written. So of a pool that can lose some devices, what is
//!   left has the new superblock; a superblock that a device fails to take goes to the sleepers too.

use super::Transactions;
use super::commit::Frozen;
use crate::error::TreeError;
use crate::stop::StopOnPanic;
use brindle_ondisk::{Series, Superblock};
use brindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use brindle_volume::{DeviceSet, SuperblockCopies};

/// Series of a mount.
#[derive(Debug, Default)]
pub(super) struct SeriesState {
    /// True once a commit of this mount is published.
    has_begun: AtomicBool,
    /// Number of series begun.
    count: AtomicU64,
}

impl SeriesState {
    /// Returns true once a commit of this mount is published.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

/// Devices that take part in a commit.
struct Part {
    devices: DeviceSet,
    begins_series: bool,
}

impl Transactions {
    /// Makes a transaction durable whose blocks were written. Returns false if it must not count by itself, because a
    /// device lacks something and is not marked yet: no superblock was written then.
    pub(super) fn publish(&self, frozen: &Frozen) -> Result<bool, TreeError> {
        let volume = self.store.volume();
        let mut part = self.part_in(frozen);
        if part.begins_series {
            volume.check_superblocks(&part.devices)?;
            self.wake_for_series()?;
        }
        if !self.copies_are_current.swap(true, Ordering::Relaxed) {
            let others = SuperblockCopies::Others;
            volume.write_superblocks(&self.store.superblock(), &[], others, &part.devices)?;
        }
        volume.make_whole(&part.devices.union(&volume.unflushed_copies()))?;
        if !part.begins_series && self.lacks_something() {
            part = Part { devices: DeviceSet::ALL, begins_series: true };
            self.wake_for_series()?;
            volume.make_whole(&DeviceSet::ALL)?;
        }
        // Without a new series nothing was missing just now; what is lost from here on is of the next transaction.
        if part.begins_series && !volume.devices_to_mark().is_empty() {
            return Ok(false);
        }
        self.write_superblocks_of(frozen, &part)?;
        Ok(true)
    }

    /// Devices that a commit flushes and gives superblocks. Its blocks were written, so that a device that was not asked
    /// for any is not unflushed.
    fn part_in(&self, frozen: &Frozen) -> Part {
        let volume = self.store.volume();
        let before = self.store.superblock();
        let sleepers = self.changes.space.sleepers();
        let is_first = !self.series.has_begun();
        let has_none = sleepers.is_some() && before.series().is_none();
        if is_first || has_none || self.lacks_something() {
            return Part { devices: DeviceSet::ALL, begins_series: true };
        }
        let written = volume.unflushed_devices().union(&volume.unsealed_devices());
        let is_asleep = |devid: &_| !written.contains(*devid);
        let asleep = sleepers.unwrap_or_default().into_iter().filter(is_asleep);
        let is_for_all = is_told_of_pool(&before, &frozen.superblock) || volume.has_renumbered();
        let devices = if is_for_all { DeviceSet::ALL } else { DeviceSet::all_but(asleep) };
        Part { devices, begins_series: false }
    }

    /// Devices of a set that may sleep, and the other ones.
    fn apart(&self, devices: &DeviceSet) -> [DeviceSet; 2] {
        let sleepers = self.changes.space.sleepers().unwrap_or_default();
        let others = devices.intersection(&DeviceSet::all_but(sleepers.iter().copied()));
        [devices.intersection(&sleepers.into_iter().collect()), others]
    }

    /// Returns true if a device may lack something that its superblock does not tell.
    fn lacks_something(&self) -> bool {
        !self.store.volume().is_whole() || !self.store.volume().devices_to_mark().is_empty()
    }

    /// Superblocks of devices that have just joined or replaced others, durable before the others are written; first superblocks of
    /// devices that failed to take tree blocks and can't be done without, flush; those of bulk devices, flush; those of the other devices, flush; those that were lost, again; the other superblocks: these are durable with the next flush, which comes
    /// before the first ones are written again.
    fn write_superblocks_of(&self, frozen: &Frozen, part: &Part) -> Result<(), TreeError> {
        let (volume, devices) = (self.store.volume(), &part.devices);
        let mut superblock = frozen.superblock.clone();
        superblock.set_series(match part.begins_series {
            true => self.next_series(),
            false => self.store.superblock().series(),
        });
        volume.check_superblocks(devices)?;
        volume.introduce_devices(&superblock, &frozen.devices);
        volume.announce_renumbered(&superblock, &frozen.devices)?;
        volume.retire_replaced(superblock.generation)?;
        let first = volume.indispensable_devices().intersection(devices);
        let rest = self.apart(&devices.without(&first));
        for set in std::iter::once(&first).chain(&rest).filter(|set| !set.is_empty()) {
            volume.write_superblocks(&superblock, &frozen.devices, SuperblockCopies::First, set)?;
            volume.flush(set)?;
            superblock.add_holders(volume.holders(superblock.generation));
        }
        let lacking = || volume.devices_without_superblock(superblock.generation).intersection(devices);
        let mut failed = lacking();
        if !failed.is_empty() {
            // One whose flush has failed tells that once, and takes the superblock when it is written again.
            volume.write_superblocks(&superblock, &frozen.devices, SuperblockCopies::First, &failed)?;
            volume.flush(&failed)?;
            failed = lacking();
        }
        volume.check_bears_loss_of(&failed)?;
        volume.write_superblocks(&superblock, &frozen.devices, SuperblockCopies::Others, devices)?;
        volume.settle_superblocks();
        self.series.has_begun.store(true, Ordering::Relaxed);
        // In place of one that failed, the sleepers keep it.
        if *devices == DeviceSet::ALL || failed.is_empty() { Ok(()) } else { self.wake() }
    }

    /// Number of the next series; none where no device may sleep.
    fn next_series(&self) -> Option<Series> {
        self.changes.space.sleepers()?;
        let count = self.series.count.fetch_add(1, Ordering::Relaxed);
        Some(Series::new(self.changes.options.series.wrapping_add(count)))
    }

    /// Before a series begins: all devices get the superblock of the last commit.
    fn wake_for_series(&self) -> Result<(), TreeError> {
        let is_first = !self.series.has_begun();
        // A transaction that does not count by itself has left its superblock there, and woken all before that.
        let is_published = self.store.superblock().generation == self.durable_generation();
        let may_sleep = is_first || self.store.superblock().series().is_some();
        if is_published && may_sleep { self.wake() } else { Ok(()) }
    }

    /// Writes the pool's superblock to the devices that are not known to hold it.
    fn wake(&self) -> Result<(), TreeError> {
        let (volume, superblock) = (self.store.volume(), self.store.superblock());
        let asleep = volume.devices_without_superblock(superblock.generation);
        if asleep.is_empty() {
            return Ok(());
        }
        volume.settle_copies(&superblock, &asleep)?;
        volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &asleep)?;
        volume.flush(&asleep)?;
        volume.write_superblocks(&superblock, &[], SuperblockCopies::Others, &asleep)?;
        Ok(())
    }

    /// Before what was written to devices is made durable for a log: those that slept until then get the superblock of the last
    /// commit. Their [other copies](Self::write_copies) are to follow once it is durable.
    pub(crate) fn wake_written(&self, needed: &DeviceSet) -> Result<DeviceSet, TreeError> {
        let (volume, superblock) = (self.store.volume(), self.store.superblock());
        let sleepers: DeviceSet = self.changes.space.sleepers().unwrap_or_default().into_iter().collect();
        let older = volume.devices_without_superblock(superblock.generation);
        let woken =
            volume.unsealed_devices().intersection(&sleepers).intersection(&older).intersection(needed);
        if woken.is_empty() || superblock.series().is_none() {
            return Ok(DeviceSet::default());
        }
        volume.flush(&volume.unflushed_copies().intersection(&woken))?;
        volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &woken)?;
        Ok(woken)
    }

    /// Writes the other copies of the superblock of devices that hold the first one durably: the record of the next commit
    /// demands no less of them, and a crash in that commit may tear the first one.
    pub(crate) fn write_copies(&self, devices: &DeviceSet) -> Result<(), TreeError> {
        if devices.is_empty() {
            return Ok(());
        }
        Ok(self.store.volume().write_superblocks(
            &self.store.superblock(),
            &[],
            SuperblockCopies::Others,
            devices,
        )?)
    }

    /// Writes the superblock of the last commit to devices that sleep, and then to the others that all hold it: the pool is about
    /// to be closed.
    pub(crate) fn wake_devices(&self) -> Result<(), TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        let _durable = self.lock_commit()?;
        self.check_sound()?;
        let has_begun = self.series.has_begun();
        let found_asleep = || self.store.volume().devices().iter().any(|device| device.is_asleep);
        let may_sleep = self.store.superblock().series().is_some() && (has_begun || found_asleep());
        if !may_sleep {
            return Ok(());
        }
        let checked = self.store.volume().check_superblocks(&DeviceSet::ALL);
        checked.inspect_err(|error| self.store.stop().abort(error))?;
        self.wake()?;
        self.name_holders()
    }

    /// Has the superblocks of devices that never sleep name all devices as their holders.
    fn name_holders(&self) -> Result<(), TreeError> {
        if self.lacks_something() {
            return Ok(());
        }
        let (volume, mut superblock) = (self.store.volume(), Superblock::clone(&self.store.superblock()));
        superblock.add_holders(volume.holders(superblock.generation));
        let [_, others] = self.apart(&DeviceSet::ALL);
        volume.flush(&volume.unflushed_copies().intersection(&others))?;
        volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &others)?;
        Ok(volume.flush(&others)?)
    }
}

/// Returns true if a superblock says something else of the pool itself, which each of its devices is asked for.
fn is_told_of_pool(before: &Superblock, next: &Superblock) -> bool {
    before.num_devices != next.num_devices
        || before.total_bytes != next.total_bytes
        || before.incompat_flags != next.incompat_flags
        || before.compat_ro_flags != next.compat_ro_flags
        || before.flags != next.flags
        || before.label != next.label
}
