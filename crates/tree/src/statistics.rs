//! Device error statistics, as the pool keeps them (`DEV_STATS` items of the device tree): the counts found when the
//! pool was opened, and the counts of the volume since. Commits write them; errors of writing alone are no reason for
//! one, for a device that takes nothing would bring about one after the other.

use crate::error::TreeError;
use crate::store::Store;
use brindle_ondisk::item::DevStats;
use brindle_ondisk::{DevId, Item, Key, KeyType, ObjectId, RootId};
use brindle_sync::{Mutex, MutexGuard, Rank};
use brindle_volume::DeviceStatus;
use std::collections::BTreeMap;

/// The statistics of all devices.
#[derive(Debug)]
pub(crate) struct Statistics {
    records: Mutex<BTreeMap<DevId, Record>>,
}

/// Statistics of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Counts when the volume had counted `since`.
    base: DevStats,
    since: DevStats,
    /// Counts in the item, or those that it would have if there were one.
    written: DevStats,
}

impl Default for Statistics {
    fn default() -> Self {
        Self { records: Mutex::new(Rank::DeviceStatistics, BTreeMap::new()) }
    }
}

impl Record {
    fn now(&self, counted: &DevStats) -> DevStats {
        self.base.plus(&counted.minus(&self.since))
    }
}

impl Statistics {
    /// Counts of a device since its statistics were reset.
    pub(crate) fn now(&self, device: &DeviceStatus) -> DevStats {
        self.record(device.devid).now(&counted(device))
    }

    /// The same of a device of a pool that is only read.
    pub(crate) fn of_reader(store: &Store, device: &DeviceStatus) -> Result<DevStats, TreeError> {
        Ok(stored(store, device.devid)?.plus(&counted(device)))
    }

    /// Sets the statistics of a device to zero, from the next commit on also on disk; what they were.
    pub(crate) fn reset(&self, device: &DeviceStatus) -> DevStats {
        let counted = counted(device);
        let mut records = self.lock();
        let record = records.entry(device.devid).or_default();
        let before = record.now(&counted);
        (record.base, record.since) = (DevStats::default(), counted);
        before
    }

    /// Counts stored in the pool for all devices.
    pub(crate) fn load(store: &Store) -> Result<Self, TreeError> {
        let statistics = Self::default();
        for device in store.volume().devices() {
            let base = stored(store, device.devid)?;
            let record = Record { base, since: DevStats::default(), written: base };
            statistics.lock().insert(device.devid, record);
        }
        Ok(statistics)
    }

    /// Returns true if there are counts worth a commit.
    pub(crate) fn has_new(&self, store: &Store) -> bool {
        store.volume().devices().iter().any(|device| {
            let record = self.record(device.devid);
            let (now, written) = (record.now(&counted(device)), record.written);
            let of_reading =
                |stats: &DevStats| (stats.read_errs, stats.corruption_errs, stats.generation_errs);
            of_reading(&now) != of_reading(&written) || (now.is_zero() && !written.is_zero())
        })
    }

    /// Forgets a device that leaves the pool: another one may have its id later.
    pub(crate) fn forget(&self, devid: DevId) {
        self.lock().remove(&devid);
    }

    /// Counts of a device, if its item does not have them.
    pub(crate) fn unwritten(&self, device: &DeviceStatus) -> Option<DevStats> {
        let record = self.record(device.devid);
        Some(record.now(&counted(device))).filter(|now| *now != record.written)
    }

    /// The item of a device has these counts.
    pub(crate) fn note_written(&self, devid: DevId, counts: DevStats) {
        self.lock().entry(devid).or_default().written = counts;
    }

    /// A device has another id.
    pub(crate) fn renumber(&self, devid: DevId, new: DevId) {
        let mut records = self.lock();
        if let Some(record) = records.remove(&devid) {
            records.insert(new, record);
        }
    }

    fn record(&self, devid: DevId) -> Record {
        self.lock().get(&devid).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DevId, Record>> {
        self.records.lock()
    }
}

/// Counts stored in the pool.
fn stored(store: &Store, devid: DevId) -> Result<DevStats, TreeError> {
    let (key, tree) = (key_of(devid), store.tree(RootId::DEV_TREE)?);
    let stored = store.with_item(&tree, &key, |data| match Item::parse(&key, data) {
        Ok(Item::DevStats(stored)) => Some(stored),
        _ => None,
    })?;
    Ok(stored.flatten().unwrap_or_default())
}

/// Key of a device's item.
pub(crate) fn key_of(devid: DevId) -> Key {
    // `BTRFS_DEV_STATS_OBJECTID`
    Key::new(ObjectId::new(0), KeyType::PERSISTENT_ITEM, devid.get())
}

/// Counts of the volume since it was opened, in the format's words.
fn counted(device: &DeviceStatus) -> DevStats {
    DevStats {
        write_errs: device.counters.write_errors,
        read_errs: device.counters.read_errors,
        flush_errs: device.counters.flush_errors,
        corruption_errs: device.counters.checksum_errors,
        generation_errs: device.counters.generation_errors,
    }
}
