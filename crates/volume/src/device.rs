//! A device of the pool, there or not, and what it has got wrong so far.

use crate::DeviceCounters;
use brindle_device::{Device, DeviceClass};
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Generation, Uuid};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device of the pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolDevice {
    pub(crate) devid: DevId,
    pub(crate) uuid: Uuid,
    /// `None` if it is missing.
    pub(crate) device: Option<Arc<dyn Device>>,
    pub(crate) total_bytes: u64,
    pub(crate) bytes_used: u64,
    /// Of its superblock.
    pub(crate) generation: Option<Generation>,
    /// It has missed transactions.
    pub(crate) is_stale: bool,
    /// It belongs to the seed that the pool grew from.
    pub(crate) is_seed: bool,
    /// The chunk tree has an item for it.
    pub(crate) is_confirmed: bool,
    /// It claims to belong to the pool, and does not.
    pub(crate) is_intruder: bool,
    pub(crate) counters: Arc<Counters>,
}

/// What happened on a device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read_errors: AtomicU64,
    pub(crate) checksum_errors: AtomicU64,
    pub(crate) generation_errors: AtomicU64,
    pub(crate) recovered: AtomicU64,
}

impl PoolDevice {
    /// A device that was not given.
    pub(crate) fn missing(devid: DevId, uuid: Uuid) -> Self {
        Self {
            devid,
            uuid,
            device: None,
            total_bytes: 0,
            bytes_used: 0,
            generation: None,
            is_stale: false,
            is_seed: false,
            is_confirmed: false,
            is_intruder: false,
            counters: Arc::default(),
        }
    }

    /// Takes over what the chunk tree or the superblock says of the device.
    pub(crate) fn describe(&mut self, item: &DevItem) {
        self.total_bytes = item.total_bytes.get();
        self.bytes_used = item.bytes_used.get();
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> String {
        match &self.device {
            Some(device) => device.name().to_owned(),
            None => format!("devid {} (missing)", self.devid),
        }
    }

    pub(crate) fn is_rotating(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.class() == DeviceClass::Rotating)
    }
}

impl Counters {
    /// Everything that speaks against the device.
    pub(crate) fn errors(&self) -> u64 {
        let [reads, checksums, generations] =
            [&self.read_errors, &self.checksum_errors, &self.generation_errors]
                .map(|count| count.load(Relaxed));
        reads.saturating_add(checksums).saturating_add(generations)
    }

    pub(crate) fn snapshot(&self) -> DeviceCounters {
        DeviceCounters {
            read_errors: self.read_errors.load(Relaxed),
            checksum_errors: self.checksum_errors.load(Relaxed),
            generation_errors: self.generation_errors.load(Relaxed),
            recovered: self.recovered.load(Relaxed),
        }
    }
}

/// One more of something.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
