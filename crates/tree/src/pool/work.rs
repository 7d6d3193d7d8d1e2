//! Face of a pool for its log, and for work on all of it: relocation, defragmentation, scrub, settings, statistics.

use super::{Pool, settings};
use crate::changes::Changes;
use crate::committed::Committed;
use crate::defragment::{Defragmented, Defragmenter, survey};
use crate::devices::replace::cancel;
use crate::dropping::relocations::RelocationTree;
use crate::error::TreeError;
use crate::histogram::{HistogramCounts, Timing};
use crate::log::{LogTicket, SyncMeasure, Unlogged};
use crate::log_writer::LogWriter;
use crate::log_writer::enter::Logging;
use crate::refs::DataRange;
use crate::relocate::destage::Destaging;
use crate::relocate::{Observer, Relocation, Relocator};
use crate::settings::{PoolSettings, stored, stored_classes, stored_log_profile};
use crate::statistics::Statistics;
use crate::store::logs::LogTree;
use crate::transaction::exclusive::ExclusiveOperation;
use crate::tree::Tree;
use brindle_ondisk::item::DevStats;
use brindle_ondisk::{DevId, Key, Logical};
use brindle_policy::class::{ClassesProblem, DeviceClasses};
use brindle_policy::defragment::Scatter;
use brindle_policy::log::LogProfile;
use brindle_policy::placement::{DataTier, PlacementClass};
use brindle_volume::{DeviceStatus, SuperblockScrub};
use std::sync::Arc;

impl Pool {
    /// Takes part in the running transaction, to log: once the one before it is durable.
    pub fn begin_logging(&self) -> Result<Logging<'_>, TreeError> {
        LogWriter::of(self.transactions()?).begin()
    }

    /// Takes part in the running transaction as the only one, to log changes that several items tell together: nothing
    /// else changes as long as the answer lives.
    pub fn begin_logging_alone(&self) -> Result<Logging<'_>, TreeError> {
        LogWriter::of(self.transactions()?).begin_alone()
    }

    /// Makes an entry durable, unless it is already.
    pub fn sync_log(&self, ticket: LogTicket) -> Result<Result<(), Unlogged>, TreeError> {
        LogWriter::of(self.transactions()?).sync(ticket)
    }

    /// Histograms of syncs since the pool was opened, by [`SyncMeasure`]: empty if it is only read.
    pub fn sync_histograms(&self) -> [HistogramCounts; SyncMeasure::ALL.len()] {
        self.changes().map(|changes: &Changes| changes.log.histograms()).unwrap_or_default()
    }

    /// Counts the time of a sync, which ends when the answer is dropped; `None` if the pool is only read.
    pub fn time_sync(&self) -> Option<Timing<'_>> {
        self.changes().ok().map(|changes| changes.log.time_sync())
    }

    /// An fsync was a commit.
    pub fn count_unlogged(&self, why: Unlogged) {
        if let Ok(changes) = self.changes() {
            changes.log.count_unlogged(why);
        }
    }

    /// The logs of all subvolumes, if there are any.
    pub fn log_trees(&self) -> Result<Vec<LogTree>, TreeError> {
        LogTree::all(self)
    }

    /// Declares that the running transaction holds everything in the log: it may be committed.
    pub fn log_is_replayed(&self) -> Result<(), TreeError> {
        self.transactions()?.has_log_now();
        Ok(())
    }

    /// Ends a replacement that the kernel was interrupted in, with the next commit, which is to be the first: the target of one that
    /// goes on would lack all that is written here.
    pub fn cancel_replacement(&self) -> Result<(), TreeError> {
        cancel(self.transactions()?)
    }

    /// The first relocation tree that an interrupted relocation of the kernel's has left.
    pub fn next_relocation_tree(&self) -> Result<Option<RelocationTree>, TreeError> {
        RelocationTree::next(self)
    }

    /// Empties a block group, and removes its chunk. Commits; not to be called within a transaction.
    /// [`TreeError::NoSpace`] if what lies in it has no room elsewhere: what was moved so far stays moved.
    pub fn relocate(
        &self,
        alone: &ExclusiveOperation<'_>,
        start: Logical,
        observer: Observer<'_>,
    ) -> Result<Relocation, TreeError> {
        Relocator::of(self.transactions_of(alone)?).relocate(start, observer)
    }

    /// Moves extents of data, given by their addresses in ascending order, out of a block group to a tier, and
    /// nowhere else. Extents that are not there (any more) are passed over. Commits; not to be called within a
    /// transaction. [`TreeError::NoSpace`] if not all of them have room there: those moved stay moved.
    pub fn move_data(
        &self,
        alone: &ExclusiveOperation<'_>,
        start: Logical,
        extents: &[DataRange],
        to: DataTier,
        observer: Observer<'_>,
    ) -> Result<Relocation, TreeError> {
        Relocator::of(self.transactions_of(alone)?).move_data(start, extents, to, observer)
    }

    /// Closes a chunk of the write-back tier, for its data to be moved to bulk devices. Commits; not to be called within a
    /// transaction. `None` if it is no such chunk.
    ///
    /// # Errors
    /// Devices that fail.
    pub fn begin_destaging<'p>(
        &'p self,
        alone: &'p ExclusiveOperation<'_>,
        start: Logical,
    ) -> Result<Option<Destaging<'p>>, TreeError> {
        Relocator::of(self.transactions_of(alone)?).begin_destaging(start)
    }

    /// Defragments the leaves of a tree from a key on, one piece of it: `leaves` of them, and the others that share a
    /// parent with them. Commits if it has changed anything; not to be called within a transaction, nor for a tree
    /// that is being dropped.
    pub fn defragment(&self, tree: &Arc<Tree>, from: &Key, leaves: usize) -> Result<Defragmented, TreeError> {
        Defragmenter::of(self.transactions()?).defragment(tree, from, leaves)
    }

    /// Scatter of the leaves of a tree. Changed blocks that have no place yet count as scattered.
    pub fn scatter(&self, tree: &Arc<Tree>) -> Result<Scatter, TreeError> {
        survey::scatter(self, tree)
    }

    /// The last commit, from now on as long as the view lives.
    pub fn committed(&self) -> Result<Committed<'_>, TreeError> {
        Committed::of(self)
    }

    /// Looks at the copies of the superblock of a device, and writes those that are wrong anew if `repairs`. Returns what was
    /// found, and true if nothing is wrong any more. Commits, and syncs of the log, wait for the second look alone, at copies
    /// that were wrong, or being written, at the first one: that may have had to wake the disk.
    pub fn scrub_superblocks(
        &self,
        devid: DevId,
        repairs: bool,
    ) -> Result<(SuperblockScrub, bool), TreeError> {
        let found = self.volume().scrub_superblocks(devid);
        match self.transactions() {
            Ok(transactions) if !found.wrong.is_empty() => transactions.scrub_superblocks(devid, repairs),
            _ => {
                let is_right = found.wrong.is_empty();
                Ok((found, is_right))
            }
        }
    }

    /// Settings stored in the pool; the defaults if there are none.
    pub fn settings(&self) -> Result<PoolSettings, TreeError> {
        stored(self)
    }

    /// Stores other settings; durable with the next commit.
    pub fn set_settings(&self, settings: &PoolSettings) -> Result<(), TreeError> {
        settings::store(self.transactions()?, settings)
    }

    /// Profile of the log that is stored in the pool.
    ///
    /// # Errors
    /// A device tree that can't be read.
    pub fn stored_log_profile(&self) -> Result<LogProfile, TreeError> {
        stored_log_profile(self)
    }

    /// Stores another profile of the log, and goes by it from now on; durable with the next commit.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn set_log_profile(&self, profile: LogProfile) -> Result<(), TreeError> {
        settings::store_log_profile(self.transactions()?, profile)
    }

    /// Classes of devices that are stored in the pool, or the reason for which they can't be understood.
    ///
    /// # Errors
    /// A device tree that can't be read.
    pub fn stored_classes(&self) -> Result<Result<DeviceClasses, ClassesProblem>, TreeError> {
        stored_classes(self)
    }

    /// Stores other classes of devices, and hints that agree with those of devices that are of another class now; counts from the next
    /// chunk on. Durable with the next commit.
    ///
    /// # Errors
    /// A pool that is not written.
    pub fn set_classes(&self, classes: &DeviceClasses) -> Result<(), TreeError> {
        let transactions = self.transactions()?;
        let devices = self.volume().devices();
        let before = self.stored_classes()?.unwrap_or_default();
        let mut classes = classes.clone();
        classes.retain(|uuid| devices.iter().any(|device| device.uuid == *uuid));
        let moves = |device: &&DeviceStatus| before.side(&device.uuid) != classes.side(&device.uuid);
        let side = |device: &DeviceStatus| Some((device.devid, classes.side(&device.uuid)?));
        let sides: Vec<(DevId, PlacementClass)> = devices.iter().filter(moves).filter_map(side).collect();
        settings::store_classes(transactions, &classes)?;
        self.changes()?.space.set_sides(self, &sides)
    }

    /// The devices, and what each has got wrong since its statistics were reset.
    pub fn device_statistics(&self) -> Result<Vec<(DeviceStatus, DevStats)>, TreeError> {
        let of_one = |device: DeviceStatus| {
            let now = match self.changes() {
                Ok(changes) => changes.statistics.now(&device),
                Err(_) => Statistics::of_reader(self, &device)?,
            };
            Ok((device, now))
        };
        self.volume().devices().into_iter().map(of_one).collect()
    }

    /// Sets the statistics of a device to zero, from the next commit on also on disk; what they were.
    pub fn reset_device_statistics(&self, devid: DevId) -> Result<Option<DevStats>, TreeError> {
        let changes = self.changes()?;
        let device = self.volume().devices().into_iter().find(|device| device.devid == devid);
        Ok(device.map(|device| changes.statistics.reset(&device)))
    }
}
