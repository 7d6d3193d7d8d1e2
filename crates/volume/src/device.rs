//! A device of the pool, there or not, and what it has got wrong so far.

use crate::DeviceCounters;
use crate::lost_writes::{LostWrites, Places};
use crate::read::Load;
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Generation, Uuid};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zerocopy::FromZeros;

/// A device of the pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolDevice {
    pub(crate) devid: DevId,
    pub(crate) uuid: Uuid,
    /// `None` if it is missing.
    pub(crate) device: Option<Arc<dyn Device>>,
    /// The same device, if the pool may write it.
    pub(crate) writable: Option<Arc<dyn WritableDevice>>,
    /// Device item of the chunk tree, or of the device's superblock.
    pub(crate) item: DevItem,
    /// Generation of its superblock.
    pub(crate) generation: Option<Generation>,
    /// True if it has missed transactions.
    pub(crate) is_stale: bool,
    /// True if it lacks writes, as far as generations tell; see [`DeviceStatus::is_incomplete`](crate::DeviceStatus).
    pub(crate) is_incomplete: bool,
    /// True if it belongs to the seed that the pool grew from.
    pub(crate) is_seed: bool,
    /// True if the chunk tree has an item for it.
    pub(crate) is_confirmed: bool,
    /// True if it claims to belong to the pool, and does not.
    pub(crate) is_intruder: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) load: Arc<Load>,
    /// Ranges that it failed to take.
    pub(crate) lost_writes: Arc<LostWrites>,
    /// Ranges that it took since it was last flushed.
    pub(crate) unflushed: Arc<LostWrites>,
    pub(crate) durability: Arc<Durability>,
    /// The highest generation of a superblock that it may hold.
    pub(crate) superblock_generation: Arc<AtomicU64>,
}

/// Numbers that tell whether a device holds writes that are not durable.
///
/// Both are counters of writes, not a flag: a write stays unflushed until a flush that began after it has returned, so a
/// second thread that asks during the first one's flush is not told that there is nothing to wait for.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Writes that the device has taken.
    writes: AtomicU64,
    /// Number of these that it had taken before its last successful flush began.
    durable: AtomicU64,
}

impl Default for Durability {
    /// A device that was not flushed yet: a process that ended may have left writes in the host's cache.
    fn default() -> Self {
        Self { writes: AtomicU64::new(1), durable: AtomicU64::new(0) }
    }
}

impl Durability {
    /// A write has succeeded.
    pub(crate) fn has_written(&self) {
        self.writes.fetch_add(1, Release);
    }

    /// The number of writes that a flush covers which begins now.
    fn begin_flush(&self) -> u64 {
        self.writes.load(Acquire)
    }

    /// A flush that covers this number of writes has succeeded.
    fn end_flush(&self, seen: u64) {
        self.durable.fetch_max(seen, Release);
    }

    /// Returns true if a write was not followed by a flush, or if there was no flush yet.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.durable.load(Acquire) < self.writes.load(Acquire)
    }
}

/// A flush, from before the device is asked until it has answered.
pub(crate) struct FlushUnderWay {
    /// Number of writes that it covers.
    seen: u64,
    unflushed: Places,
}

/// A flush that failed.
pub(crate) struct FailedFlush {
    pub(crate) error: DeviceError,
    /// Writes that the device had taken, and may have lost: the host reports that once, and the next flush succeeds.
    pub(crate) doubtful: Places,
}

/// Error counters of a device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read_errors: AtomicU64,
    pub(crate) checksum_errors: AtomicU64,
    pub(crate) generation_errors: AtomicU64,
    pub(crate) recovered: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) flush_errors: AtomicU64,
    pub(crate) repaired: AtomicU64,
}

impl PoolDevice {
    /// A device that was not given.
    pub(crate) fn missing(devid: DevId, uuid: Uuid) -> Self {
        Self {
            devid,
            uuid,
            device: None,
            writable: None,
            item: DevItem { devid, uuid, ..DevItem::new_zeroed() },
            generation: None,
            is_stale: false,
            is_incomplete: false,
            is_seed: false,
            is_confirmed: false,
            is_intruder: false,
            counters: Arc::default(),
            load: Arc::default(),
            lost_writes: Arc::default(),
            unflushed: Arc::default(),
            durability: Arc::default(),
            superblock_generation: Arc::default(),
        }
    }

    /// Takes over what the chunk tree or the superblock says of the device.
    pub(crate) fn describe(&mut self, item: &DevItem) {
        self.item = *item;
    }

    /// Its size in bytes, as the pool has it.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.item.total_bytes.get()
    }

    /// Name in messages.
    pub(crate) fn name(&self) -> String {
        match &self.device {
            Some(device) => device.name().to_owned(),
            None => format!("devid {} (missing)", self.devid),
        }
    }

    /// A write has succeeded.
    pub(crate) fn has_taken(&self, offset: u64, length: u64) {
        self.durability.has_written();
        self.unflushed.remember(offset, length);
        self.lost_writes.forget(offset, length);
    }

    /// Begins a flush. Several threads may flush at once.
    pub(crate) fn begin_flush(&self) -> FlushUnderWay {
        FlushUnderWay { seen: self.durability.begin_flush(), unflushed: self.unflushed.take() }
    }

    /// Ends a flush with the device's answer.
    pub(crate) fn end_flush(
        &self,
        flush: FlushUnderWay,
        answer: Result<(), DeviceError>,
    ) -> Result<(), FailedFlush> {
        match answer {
            Ok(()) => {
                self.durability.end_flush(flush.seen);
                Ok(())
            }
            Err(error) => {
                let mut doubtful = flush.unflushed;
                // The host may have tried to write these too.
                doubtful.absorb(&self.unflushed.take());
                Err(FailedFlush { error, doubtful })
            }
        }
    }

    /// Returns true if it joined the pool and never had a superblock of it.
    pub(crate) fn is_new(&self) -> bool {
        self.superblock_generation.load(Relaxed) == 0
    }

    pub(crate) fn is_rotating(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.class() == DeviceClass::Rotating)
    }
}

impl Counters {
    /// Everything that speaks against the device.
    pub(crate) fn errors(&self) -> u64 {
        let all = [
            &self.read_errors,
            &self.checksum_errors,
            &self.generation_errors,
            &self.write_errors,
            &self.flush_errors,
        ];
        all.iter().map(|count| count.load(Relaxed)).fold(0, u64::saturating_add)
    }

    pub(crate) fn snapshot(&self) -> DeviceCounters {
        DeviceCounters {
            read_errors: self.read_errors.load(Relaxed),
            checksum_errors: self.checksum_errors.load(Relaxed),
            generation_errors: self.generation_errors.load(Relaxed),
            recovered: self.recovered.load(Relaxed),
            write_errors: self.write_errors.load(Relaxed),
            flush_errors: self.flush_errors.load(Relaxed),
            repaired: self.repaired.load(Relaxed),
        }
    }
}

/// One more of something.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_during_a_flush_are_unflushed_after_it_and_those_before_it_until_it_ends() {
        let durability = Durability::default();
        let flush = |meanwhile: &dyn Fn()| {
            let seen = durability.begin_flush();
            assert!(durability.is_unflushed(), "another thread has to wait for it too");
            meanwhile();
            durability.end_flush(seen);
        };
        flush(&|| ());
        assert!(!durability.is_unflushed());
        durability.has_written();
        flush(&|| durability.has_written());
        assert!(durability.is_unflushed());
        // A flush within a flush is the later one.
        flush(&|| flush(&|| ()));
        assert!(!durability.is_unflushed());
    }
}
