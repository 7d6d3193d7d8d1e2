//! The cache as a device.

use crate::commits::Commits;
use crate::device_errors::DeviceErrors;
use crate::flash::Flash;
use crate::format::{Geometry, Role, Superblock};
use crate::latency::{Histogram, Latencies};
use crate::requests::Requests;
use crate::settings::{Mode, Settings};
use crate::slots::SlotTable;
use crate::superblock::text;
use crate::{CacheClock, CacheCounters, CacheError};
use brindle_device::{Device, DeviceClass, DeviceError, ReconnectGuard, WritableDevice};
use brindle_policy::cache::sequential::StreamDetector;
use brindle_policy::cache::wear::WearBudget;
use brindle_sync::{Condvar, Mutex, MutexGuard};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A disk with a flash device in front of it.
pub struct Cache {
    pub(crate) name: String,
    pub(crate) flash: Flash,
    pub(crate) disk: Arc<dyn WritableDevice>,
    pub(crate) disk_errors: DeviceErrors,
    pub(crate) geometry: Geometry,
    pub(crate) mode: Mode,
    /// Bytes of the disk that are in use; it only grows.
    pub(crate) size_bytes: AtomicU64,
    pub(crate) clock: Arc<dyn CacheClock>,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
}

/// State of a cache. No device is waited for while it is locked.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) slots: SlotTable,
    pub(crate) requests: Requests,
    pub(crate) commits: Commits,
    /// Threads that wait for a change of the state.
    pub(crate) waiters: usize,
    pub(crate) settings: Settings,
    pub(crate) counters: CacheCounters,
    pub(crate) latencies: Latencies,
    pub(crate) read_streams: StreamDetector,
    pub(crate) write_streams: StreamDetector,
    pub(crate) wear: WearBudget,
    /// Bytes that were written to the flash since the cache was made.
    pub(crate) written_bytes: u64,
    /// Number of times that a round of cleaning was asked to stop.
    pub(crate) sync_stops: u64,
    /// Time before which no further fallow blocks are cleaned.
    pub(crate) fallow_rests_until: Duration,
    pub(crate) superblock: Superblock,
    /// True if the disk has writes that wait for a flush.
    pub(crate) disk_unflushed: bool,
    /// True while a round of cleaning is under way.
    pub(crate) is_cleaning: bool,
    /// True while the disk is flushed.
    pub(crate) is_flushing_disk: bool,
    /// True while the superblock is changed.
    pub(crate) is_telling: bool,
    /// The slot where the search for fallow blocks goes on, and the time at which the round began.
    pub(crate) fallow_hand: (u32, Duration),
    /// Failures of the flash without a success in between.
    pub(crate) flash_failures: u32,
    /// Time since which these were too many, in seconds since 1970.
    pub(crate) flash_off_since: Option<u64>,
    /// The last failure of the disk, unless it has worked since.
    pub(crate) disk_failure: Option<String>,
    /// Reason for which nothing is written any more.
    pub(crate) stopped: Option<String>,
    /// Guard that the user of the cache has given it, for its disk.
    pub(crate) guard: Option<Arc<dyn ReconnectGuard>>,
}

/// Failures in a row after which a cache without dirty blocks does without its flash.
const FLASH_FAILURES_MAX: u32 = 8;

/// Facts about a cache in use.
#[derive(Clone, Debug)]
pub struct CacheStatus {
    /// Its name.
    pub name: String,
    /// The flash device; two with a `+` between them if they mirror each other.
    pub flash: String,
    /// State of the mirror, for a cache on two SSDs.
    pub mirror: Option<MirrorState>,
    /// The disk.
    pub disk: String,
    /// Size of the disk in bytes.
    pub disk_bytes: u64,
    /// Its mode.
    pub mode: Mode,
    /// Length of a block in bytes.
    pub block_bytes: u64,
    /// Slots of a set.
    pub associativity: u32,
    /// Number of slots.
    pub slots: u64,
    /// Blocks that are cached.
    pub cached_blocks: u64,
    /// Blocks that the disk lacks.
    pub dirty_blocks: u64,
    /// True if the disk bears the mark of the cache, and can't be taken for a complete one.
    pub is_veiled: bool,
    /// True if the flash failed too often, and everything goes to the disk.
    pub is_flash_off: bool,
    /// The SSD that is not used any more since it failed.
    pub given_up: Option<GivenUpSsd>,
    /// The last failure of the disk, unless it has worked since.
    pub disk_failure: Option<String>,
    /// Reason for which writes are refused.
    pub stopped: Option<String>,
    /// Bytes that may be written to the flash by choice now; less than 0 after writes that could not be refused. `None` without a limit.
    pub wear_left_bytes: Option<i64>,
    /// Bytes that were written to the flash since the cache was made, but for those before a crash.
    pub written_bytes: u64,
    /// Settings.
    pub settings: Settings,
    /// Counters.
    pub counters: CacheCounters,
    /// Times that requests took.
    pub latencies: Latencies,
}

/// An SSD that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUpSsd {
    /// Its name.
    pub ssd: String,
    /// Time of that, in seconds since 1970.
    pub since: u64,
}

/// State of the mirror of a cache on two SSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// Both have all dirty blocks.
    InSync,
    /// One has them alone.
    Degraded {
        /// The SSD that failed while the cache was in use; none if it was not there when the cache was loaded.
        failed: Option<String>,
    },
}

/// A request under way; gone, others may touch its blocks.
pub(crate) struct Entered<'c> {
    cache: &'c Cache,
    ticket: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.leave(|_| ());
    }
}

impl Entered<'_> {
    /// Ends the request, after a note of it.
    pub(crate) fn end(self, note: impl FnOnce(&mut State)) {
        self.leave(note);
        std::mem::forget(self);
    }

    fn leave(&self, note: impl FnOnce(&mut State)) {
        let has_waiters = {
            let mut state = self.cache.state.lock_after_panic();
            note(&mut state);
            state.requests.leave(self.ticket);
            state.waiters > 0
        };
        if has_waiters {
            self.cache.changed.notify_all();
        }
    }
}

impl State {
    /// Counts the time of a request.
    pub(crate) fn note_time(
        &mut self,
        begun: Duration,
        now: Duration,
        kind: impl Fn(&mut Latencies) -> &mut Histogram,
    ) {
        if self.settings.io_latency_hist {
            kind(&mut self.latencies).add(now.saturating_sub(begun));
        }
    }

    /// Counts bytes that were written to the flash.
    pub(crate) fn count_written(&mut self, bytes: u64) {
        self.counters.ssd_write_bytes += bytes;
        self.written_bytes = self.written_bytes.saturating_add(bytes);
    }

    /// Takes note that the disk works, or does not.
    pub(crate) fn note_disk<T>(&mut self, answer: &Result<T, DeviceError>) {
        self.disk_failure = answer.as_ref().err().map(ToString::to_string);
    }

    /// Returns true if the flash failed too often to be used for more.
    pub(crate) fn is_flash_off(&self) -> bool {
        self.flash_off_since.is_some()
    }
}

impl Cache {
    /// Facts and counters.
    #[must_use]
    pub fn status(&self) -> CacheStatus {
        let mut state = self.lock();
        let wear_left_bytes = state.wear.left(self.clock.now());
        let mut counters = state.counters;
        counters.take_errors(&self.disk_errors, self.flash.errors());
        CacheStatus {
            name: text(&state.superblock.name),
            flash: self.flash.name().to_owned(),
            mirror: self.mirror_state(&state.superblock),
            disk: self.disk.name().to_owned(),
            disk_bytes: self.size_bytes(),
            mode: self.mode,
            block_bytes: self.geometry.block_bytes,
            associativity: self.geometry.associativity,
            slots: state.slots.slots().into(),
            cached_blocks: state.slots.valid(),
            dirty_blocks: state.slots.dirty(),
            is_veiled: state.superblock.is_veiled != 0,
            is_flash_off: state.is_flash_off(),
            given_up: self.given_up(&state),
            disk_failure: state.disk_failure.clone(),
            stopped: state.stopped.clone(),
            wear_left_bytes,
            written_bytes: state.written_bytes,
            settings: state.settings.clone(),
            counters,
            latencies: state.latencies,
        }
    }

    fn mirror_state(&self, superblock: &Superblock) -> Option<MirrorState> {
        let failed = self.flash.given_up().map(|(member, _)| member.device.name().to_owned());
        let is_whole = failed.is_none() && superblock.role() != Some(Role::Alone);
        let state = if is_whole { MirrorState::InSync } else { MirrorState::Degraded { failed } };
        superblock.is_mirrored().then_some(state)
    }

    fn given_up(&self, state: &State) -> Option<GivenUpSsd> {
        let of = |ssd: &str, since| GivenUpSsd { ssd: ssd.to_owned(), since };
        let lost = self.flash.given_up().map(|(member, since)| of(member.device.name(), since));
        lost.or_else(|| Some(of(self.flash.survivor().device.name(), state.flash_off_since?)))
    }

    /// The answer of the disk to a request; counted if it failed.
    pub(crate) fn on_disk<T>(&self, answer: Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.note_disk_error(&answer);
        self.lock().note_disk(&answer);
        answer
    }

    /// Counts a request that the disk failed.
    pub(crate) fn note_disk_error<T>(&self, answer: &Result<T, DeviceError>) {
        if let Err(error) = answer {
            self.disk_errors.note(error);
        }
    }

    /// Takes note of requests to the flash that failed, on all SSDs, or did not.
    pub(crate) fn note_flash(&self, state: &mut State, is_fine: bool) {
        if is_fine {
            (state.flash_failures, state.flash_off_since) = (0, None);
            return;
        }
        state.flash_failures = state.flash_failures.saturating_add(1);
        if state.flash_failures == FLASH_FAILURES_MAX {
            state.flash_off_since = Some(self.clock.calendar_seconds());
            tracing::warn!(
                "{}: the SSD failed {FLASH_FAILURES_MAX} times in a row; the cache takes in no further blocks",
                self.name
            );
        }
    }

    /// Changes a setting by its name, at once. The limit of wear is stored on the flash, and holds for later loads.
    ///
    /// # Errors
    /// [`CacheError::Setting`], those of the flash for a limit of wear.
    pub fn set(&self, name: &str, value: &str) -> Result<(), CacheError> {
        let limit = {
            let mut state = self.lock();
            state.settings.set(name, value)?;
            let limit = state.settings.wear_bytes_per_day;
            if state.wear.bytes_per_day() == limit {
                return Ok(());
            }
            state.wear = WearBudget::new(limit, self.clock.now());
            self.check_running(&state)?;
            limit
        };
        let store = |superblock: &mut Superblock| {
            let differs = superblock.wear_bytes_per_day.get() != limit;
            superblock.wear_bytes_per_day = limit.into();
            differs
        };
        Ok(self.change_superblock(store, |_| Ok(()))?)
    }

    /// Sets all counters to 0.
    pub fn zero_counters(&self) {
        let mut state = self.lock();
        (state.counters, state.latencies) = (CacheCounters::default(), Latencies::default());
        self.disk_errors.zero();
        self.flash.errors().into_iter().for_each(DeviceErrors::zero);
    }

    /// Checks that sums and flags in memory agree. For tests; costly.
    ///
    /// # Errors
    /// The first complaint.
    pub fn verify(&self) -> Result<(), String> {
        self.lock().slots.verify()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until another thread has changed something.
    pub(crate) fn wait<'c>(&'c self, mut state: MutexGuard<'c, State>) -> MutexGuard<'c, State> {
        if !self.clock.is_modelled() {
            state.waiters += 1;
            state = self.changed.wait(state);
            state.waiters -= 1;
            return state;
        }
        drop(state);
        self.clock.pause();
        self.lock()
    }

    /// Begins a request for a range of bytes, when no earlier one is in its way.
    pub(crate) fn enter(&self, offset: u64, length: usize, writes: bool) -> Entered<'_> {
        self.enter_locked(offset, length, writes).0
    }

    /// Begins a request for a range of bytes, and keeps the state locked.
    pub(crate) fn enter_locked(
        &self,
        offset: u64,
        length: usize,
        writes: bool,
    ) -> (Entered<'_>, MutexGuard<'_, State>) {
        let block_bytes = self.geometry.block_bytes;
        let last = (offset + length as u64 - 1) / block_bytes;
        self.enter_blocks(offset / block_bytes, last, writes)
    }

    /// Begins a request for blocks, and keeps the state locked.
    pub(crate) fn enter_blocks(
        &self,
        first: u64,
        last: u64,
        writes: bool,
    ) -> (Entered<'_>, MutexGuard<'_, State>) {
        let mut state = self.lock();
        let ticket = state.requests.enter(first, last, writes);
        state.counters.pending_enqueues += u64::from(!state.requests.may_go(ticket));
        while !state.requests.may_go(ticket) {
            state = self.wait(state);
        }
        (Entered { cache: self, ticket }, state)
    }

    /// An error, if nothing is written any more.
    pub(crate) fn check_running(&self, state: &State) -> Result<(), DeviceError> {
        match &state.stopped {
            None => Ok(()),
            Some(why) => {
                Err(DeviceError::Flush { device: self.name.clone(), source: io::Error::other(why.clone()) })
            }
        }
    }

    /// An error, unless a range lies within the cache.
    pub(crate) fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        if offset.checked_add(length as u64).is_some_and(|end| end <= size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes })
    }

    /// Number of blocks that can be cached: a rest at the disk's end that is shorter than a block is not.
    pub(crate) fn whole_blocks(&self) -> u64 {
        self.size_bytes() / self.geometry.block_bytes
    }

    /// Length of a block.
    pub(crate) fn block_length(&self) -> usize {
        usize::try_from(self.geometry.block_bytes).expect("1 MiB at most")
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.name).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Device for Cache {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(offset, buffer.len())?;
        if buffer.is_empty() { Ok(()) } else { self.read_range(offset, buffer) }
    }

    fn class(&self) -> DeviceClass {
        self.disk.class()
    }

    fn queue_depth(&self) -> u32 {
        self.disk.queue_depth()
    }
}

impl WritableDevice for Cache {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let begun = self.clock.now();
        self.write_range(offset, bytes)?;
        self.lock().note_time(begun, self.clock.now(), |latencies| &mut latencies.writes);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let begun = self.clock.now();
        self.commit()?;
        self.lock().note_time(begun, self.clock.now(), |latencies| &mut latencies.flushes);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        if offset >= end { Ok(true) } else { self.discard_range(offset, end) }
    }

    /// Takes what the disk has become larger by.
    fn refresh_size(&self) -> Result<u64, DeviceError> {
        let found = self.disk.refresh_size()?;
        let known = self.size_bytes();
        if found < known {
            let source = io::Error::other(format!("the disk has {found} bytes now, and had {known}"));
            return Err(DeviceError::Open { device: self.name.clone(), source });
        }
        self.check_running(&self.lock())?;
        let grow = |superblock: &mut Superblock| {
            let is_larger = found > superblock.disk_bytes.get();
            superblock.disk_bytes = found.into();
            is_larger
        };
        self.change_superblock(grow, |_| Ok(()))?;
        self.size_bytes.fetch_max(found, Ordering::AcqRel);
        Ok(self.size_bytes())
    }

    fn set_size(&self, _size_bytes: u64) -> Result<(), DeviceError> {
        Err(DeviceError::FixedSize { device: self.name.clone() })
    }
}
