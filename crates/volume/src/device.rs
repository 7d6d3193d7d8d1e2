//! A device of the pool, there or not, and what it has got wrong so far.

use crate::DeviceCounters;
use crate::first_superblock::FirstSuperblock;
use crate::lost_writes::{LostWrites, Places};
use crate::read_state::Load;
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Generation, NodeExpectation, Superblock, Uuid};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use brindle_sync::{Mutex, Rank, Ranked};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
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
    /// The best of its superblocks when the pool was opened.
    pub(crate) superblock: Option<Arc<Superblock>>,
    /// True if it has missed transactions.
    pub(crate) is_stale: bool,
    /// True if its superblock is older than the pool's, and of the same series: it was left alone since, or so it seems until
    /// the ages of superblocks that the pool has recorded are known.
    pub(crate) is_asleep: bool,
    /// True if it lacks writes, as far as generations tell; see [`DeviceStatus::is_incomplete`](crate::DeviceStatus).
    pub(crate) is_incomplete: bool,
    /// True if it belongs to the seed that the pool grew from.
    pub(crate) is_seed: bool,
    /// True if the chunk tree has an item for it.
    pub(crate) is_confirmed: bool,
    /// True if it claims to belong to the pool, and does not.
    pub(crate) is_intruder: bool,
    /// The side that it was told, or that its hint says: of a pool of which any device has a hint. Otherwise the host's word counts.
    pub(crate) side: Option<PlacementClass>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) load: Arc<Load>,
    /// Ranges that it failed to take.
    pub(crate) lost_writes: Arc<LostWrites>,
    /// Ranges that it took since it was last flushed.
    pub(crate) unflushed: Arc<LostWrites>,
    pub(crate) durability: Arc<Durability>,
    /// Number of flushes, and of times that it wrote out, that have failed.
    pub(crate) failed_flushes: Arc<AtomicU64>,
    /// Held for reading by flushes, and for writing while it writes out what it took: a failure of that may be the only word on
    /// what a flush at the same time covers.
    pub(crate) flushes: Arc<Mutex<Flushes>>,
    /// Its first superblock, to find another writer.
    pub(crate) first_superblock: Arc<FirstSuperblock>,
    /// The highest generation of a superblock that it may hold.
    pub(crate) superblock_generation: Arc<AtomicU64>,
    /// True if it was found asleep by its first superblock, so that nothing is known of the other copies: they may be torn.
    pub(crate) has_doubtful_copies: Arc<AtomicBool>,
    /// The id in its superblocks, where the next commit gives it another one.
    pub(crate) written_devid: Option<DevId>,
    /// True if the pool has a log, and the superblock of this device does not point to it: blocks of the log may be missing
    /// there.
    pub(crate) lacks_log: Arc<AtomicBool>,
    /// Fingerprint of the log that its superblock names, as it failed to take the one of the commit that ended that log; until
    /// its item has it.
    pub(crate) missed_end_of: Option<NonZeroU64>,
    /// Root of a log that its superblock names, and that of another device does not, which failed to take it. The next commit ends it.
    pub(crate) names_log: Option<NodeExpectation>,
    /// Root of a log of which it failed to take the superblock: its superblock names this one, or not. The next commit ends it.
    pub(crate) may_name_log: Option<NodeExpectation>,
    /// True if it has missed the end of the log that it names, and the fingerprint of that is settled: logs of later commits are none that it names.
    pub(crate) has_missed_end: bool,
    /// Fingerprints of the last logs that only this device may have, by their roots.
    pub(crate) known_logs: Vec<(NodeExpectation, NonZeroU64)>,
    /// While another device is to take its place: where this one was written since, or should have been.
    pub(crate) written_since: Option<Arc<LostWrites>>,
    /// The device whose place it has taken, until that loses its superblocks.
    pub(crate) predecessor: Option<Arc<dyn WritableDevice>>,
}

/// Flushes of a device, one at a time: the host tells a failure to one of two flushes alone.
#[derive(Debug, Default)]
pub(crate) struct Flushes;

impl Ranked for Flushes {
    const RANK: Rank = Rank::DeviceFlush;
}

/// Numbers that tell whether a device holds writes that are not durable.
///
/// They are counters of writes, not flags: a write stays unflushed until a flush that began after it has returned, so a
/// second thread that asks during the first one's flush is not told that there is nothing to wait for.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Writes that the device has taken.
    writes: Progress,
    /// Times that it has taken copies of the superblock behind the first.
    copies: Progress,
    /// The generation of its first superblock, as written here.
    superblock: Progress,
    /// Writes that the device has taken, superblocks aside.
    contents: AtomicU64,
    /// The number of these when the writing of its first superblock began.
    sealed: AtomicU64,
}

/// A number that grows with each write of a kind, and its durable part.
#[derive(Debug, Default)]
struct Progress {
    taken: AtomicU64,
    /// The number at the beginning of the last flush that succeeded.
    durable: AtomicU64,
}

impl Progress {
    fn is_durable(&self) -> bool {
        self.durable.load(Acquire) >= self.taken.load(Acquire)
    }
}

/// Values that a flush covers.
#[derive(Clone, Copy, Debug)]
struct Covered([u64; 3]);

impl Default for Durability {
    /// A device that was not flushed yet: a process that ended may have left writes in the host's cache.
    fn default() -> Self {
        let unknown = || Progress { taken: AtomicU64::new(1), durable: AtomicU64::new(0) };
        Self {
            writes: unknown(),
            copies: unknown(),
            superblock: Progress::default(),
            contents: 1.into(),
            sealed: 0.into(),
        }
    }
}

impl Durability {
    /// A write of anything but a superblock has succeeded.
    pub(crate) fn has_written(&self) {
        self.contents.fetch_add(1, Release);
        self.writes.taken.fetch_add(1, Release);
    }

    /// A number for the writes up to now: to be asked before a superblock is written that comes after these.
    pub(crate) fn contents(&self) -> u64 {
        self.contents.load(Acquire)
    }

    /// Writes of copies of the superblock behind the first have succeeded.
    pub(crate) fn has_written_copies(&self) {
        self.copies.taken.fetch_add(1, Release);
    }

    /// A flush has failed: the first superblock, too, is what was durable before, or lost.
    fn has_lost_superblock(&self) {
        self.superblock.taken.store(self.superblock.durable.load(Acquire), Release);
    }

    /// A write of the first superblock has succeeded, which was begun after these [`contents`](Self::contents).
    pub(crate) fn has_written_superblock(&self, generation: Generation, contents: u64) {
        self.superblock.taken.fetch_max(generation.get(), Release);
        self.sealed.fetch_max(contents, Release);
        self.writes.taken.fetch_add(1, Release);
    }

    fn all(&self) -> [&Progress; 3] {
        [&self.writes, &self.copies, &self.superblock]
    }

    /// Values that a flush covers which begins now.
    fn begin_flush(&self) -> Covered {
        Covered(self.all().map(|progress| progress.taken.load(Acquire)))
    }

    /// A flush that covers these values has succeeded.
    fn end_flush(&self, covered: Covered) {
        for (progress, covered) in self.all().into_iter().zip(covered.0) {
            progress.durable.fetch_max(covered, Release);
        }
    }

    /// Returns true if a write was not followed by a flush, or if there was no flush yet.
    pub(crate) fn is_unflushed(&self) -> bool {
        !self.writes.is_durable()
    }

    /// Returns true if the device has taken a write since its first superblock was written, or may have.
    pub(crate) fn is_unsealed(&self) -> bool {
        self.sealed.load(Acquire) < self.contents()
    }

    /// Returns true if copies of the superblock behind the first were not followed by a flush.
    pub(crate) fn has_unflushed_copies(&self) -> bool {
        !self.copies.is_durable()
    }

    /// The generation of the first superblock that was written here and is durable; 0 if none was.
    pub(crate) fn durable_superblock(&self) -> Generation {
        Generation::new(self.superblock.durable.load(Acquire))
    }
}

/// A write, from before the device is asked until what it has taken is known.
#[derive(Clone, Copy)]
pub(crate) struct WriteUnderWay {
    failed_flushes: u64,
}

/// A flush, from before the device is asked until it has answered.
pub(crate) struct FlushUnderWay {
    covered: Covered,
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
            superblock: None,
            is_stale: false,
            is_asleep: false,
            is_incomplete: false,
            is_seed: false,
            is_confirmed: false,
            is_intruder: false,
            side: None,
            counters: Arc::default(),
            load: Arc::default(),
            lost_writes: Arc::default(),
            unflushed: Arc::default(),
            durability: Arc::default(),
            failed_flushes: Arc::default(),
            flushes: Arc::default(),
            first_superblock: Arc::default(),
            superblock_generation: Arc::default(),
            has_doubtful_copies: Arc::default(),
            written_devid: None,
            lacks_log: Arc::default(),
            missed_end_of: None,
            names_log: None,
            may_name_log: None,
            has_missed_end: false,
            known_logs: Vec::new(),
            written_since: None,
            predecessor: None,
        }
    }

    /// Takes over what the chunk tree or the superblock says of the device.
    pub(crate) fn describe(&mut self, item: &DevItem) {
        self.item = *item;
    }

    /// Returns true if another device has taken its place since.
    pub(crate) fn is_replaced(&self) -> bool {
        self.generation.is_some_and(|generation| generation < self.item.placed_in())
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

    /// To be called before the device is asked for a write that [`has_taken`](Self::has_taken) ends.
    pub(crate) fn begin_write(&self) -> WriteUnderWay {
        WriteUnderWay { failed_flushes: self.failed_flushes.load(SeqCst) }
    }

    /// A write has succeeded. Returns false if a flush has failed since it began: the device may have taken it before, and lost
    /// it with that, though no one knew of it yet. Such a write is remembered as lost.
    #[must_use]
    pub(crate) fn has_taken(&self, write: WriteUnderWay, offset: u64, length: u64) -> bool {
        self.durability.has_written();
        self.unflushed.remember(offset, length);
        // In this order: a flush that fails from here on finds the place above.
        let is_certain = self.failed_flushes.load(SeqCst) == write.failed_flushes;
        if is_certain {
            self.lost_writes.forget(offset, length);
        } else {
            self.lost_writes.remember(offset, length);
        }
        self.has_changed(offset, length);
        is_certain
    }

    /// A write has failed that the pool can do without.
    pub(crate) fn has_lost(&self, offset: u64, length: u64) {
        self.lost_writes.remember(offset, length);
        self.has_changed(offset, length);
    }

    /// Writes that had succeeded are lost, or may be.
    pub(crate) fn has_lost_all(&self, places: &Places) {
        self.lost_writes.absorb(places);
        if let Some(written) = &self.written_since {
            written.absorb(places);
        }
    }

    /// The contents of a range are other ones now, on the device or, if it is missing, by what the others hold.
    pub(crate) fn has_changed(&self, offset: u64, length: u64) {
        if let Some(written) = &self.written_since {
            written.remember(offset, length);
        }
    }

    /// Begins a flush, with the lock of flushes held.
    pub(crate) fn begin_flush(&self) -> FlushUnderWay {
        FlushUnderWay { covered: self.durability.begin_flush(), unflushed: self.unflushed.take() }
    }

    /// Ends a flush with the device's answer.
    pub(crate) fn end_flush(
        &self,
        flush: FlushUnderWay,
        answer: Result<(), DeviceError>,
    ) -> Result<(), FailedFlush> {
        match answer {
            Ok(()) => {
                self.durability.end_flush(flush.covered);
                Ok(())
            }
            Err(error) => Err(self.flush_failed(error, flush.unflushed)),
        }
    }

    /// A flush has failed, or writing out: nothing that was not flushed is certain, nor these places.
    pub(crate) fn flush_failed(&self, error: DeviceError, mut doubtful: Places) -> FailedFlush {
        // Before the places are taken: see `has_taken`.
        self.failed_flushes.fetch_add(1, SeqCst);
        self.first_superblock.is_in_doubt();
        self.durability.has_lost_superblock();
        // The host may have tried to write these too.
        doubtful.absorb(&self.unflushed.take());
        FailedFlush { error, doubtful }
    }

    /// Returns true if it joined the pool and never had a superblock of it.
    pub(crate) fn is_new(&self) -> bool {
        self.superblock_generation.load(Relaxed) == 0
    }

    /// Returns true if it has missed transactions. One that lacked the last superblock alone, as a power cut between those of two
    /// devices leaves it, has missed none once it was given one.
    pub(crate) fn has_missed_transactions(&self) -> bool {
        self.is_stale && (self.is_incomplete || self.durability.durable_superblock().get() == 0)
    }

    /// Returns true if it has missed transactions, or may have: what only seems to sleep is not known to be whole.
    pub(crate) fn is_read_last(&self) -> bool {
        self.has_missed_transactions() || self.is_asleep && self.is_incomplete
    }

    /// Returns true if reads of it are to be taken for those of a disk.
    pub(crate) fn is_rotating(&self) -> bool {
        self.side.map_or_else(|| self.rotates_by_host(), |side| side == PlacementClass::Bulk)
    }

    /// Returns true if the host says so.
    pub(crate) fn rotates_by_host(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.class() == DeviceClass::Rotating)
    }

    /// Hint that the pool stores for it; an unknown one counts as none.
    pub(crate) fn hint(&self) -> AllocationHint {
        AllocationHint::from_disk(self.item.device_type.get()).unwrap_or_default()
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

/// Bit of a mark that stands for a missing device.
pub(crate) const ABSENT: u64 = 1 << 63;

/// The first generation that was written without a device, by its mark; `None` if it was there.
pub(crate) fn absent_since(mark: Generation) -> Option<Generation> {
    (mark.get() & ABSENT != 0).then(|| Generation::new(mark.get() & !ABSENT))
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

    #[test]
    fn superblocks_count_when_they_are_durable() {
        let durability = Durability::default();
        let flush = || durability.end_flush(durability.begin_flush());
        flush();
        assert!(durability.is_unsealed(), "a process before may have written anything");
        let contents = durability.contents();
        durability.has_written();
        durability.has_written_superblock(Generation::new(7), contents);
        assert!(durability.is_unsealed(), "written beside the superblock");
        assert_eq!((durability.durable_superblock().get(), durability.is_unflushed()), (0, true));
        let began_before = durability.begin_flush();
        durability.has_written_superblock(Generation::new(8), durability.contents());
        durability.end_flush(began_before);
        assert_eq!((durability.durable_superblock().get(), durability.is_unflushed()), (7, true));
        assert!(!durability.is_unsealed());
        flush();
        durability.has_written_copies();
        assert_eq!(durability.durable_superblock().get(), 8);
        assert!(durability.has_unflushed_copies() && !durability.is_unflushed());
        flush();
        assert!(!durability.has_unflushed_copies());
    }
}
