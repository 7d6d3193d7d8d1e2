//! WriteBackTier: what waits in the write-back tier moves to bulk devices. How it is moved is told in [`brindle_tree`]'s
//! module of that name, when by [`brindle_policy::writeback`]; here is what both need of files; a thread of [`Upkeep`](crate::Upkeep) does it.

pub(crate) mod merge;

use crate::attributes::InodeId;
use crate::core::Core;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::Extents;
use crate::hold::Holds;
use brindle_policy::writeback::{DestageReason, DestageSettings, WaitingData, WriteBackMode, destage_reason};
use brindle_tree::{Moved, Relocation, TreeError, WriteBackSettings, WriteBackStatus};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Name of the operation, for those that are refused meanwhile.
const NAME: &str = "destage";

/// Amounts that were destaged since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestageStatistics {
    /// Bytes.
    pub bytes: u64,
    /// Time that this took.
    pub time: Duration,
}

/// Counters of them.
#[derive(Debug, Default)]
pub(crate) struct DestageCounters {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Outcome of destaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destaged {
    /// All that waited has moved.
    All(Moved),
    /// Part of it has moved: destaging was stopped, or made way for another operation.
    Stopped(Moved),
    /// Another operation that moves block groups is running.
    Busy,
}

/// Moves data from the write-back tier to bulk devices.
#[derive(Debug)]
pub(crate) struct WriteBackTier {
    core: Arc<Core>,
    extents: Arc<Extents>,
    data: Arc<FileData>,
    holds: Arc<Holds>,
    /// Amounts so far.
    destaged: DestageCounters,
}

impl WriteBackTier {
    pub(crate) fn new(
        core: Arc<Core>,
        extents: Arc<Extents>,
        data: Arc<FileData>,
        holds: Arc<Holds>,
    ) -> Self {
        Self { core, extents, data, holds, destaged: DestageCounters::default() }
    }

    pub(crate) fn write_back_status(&self) -> Result<WriteBackStatus, FsError> {
        Ok(self.core.pool().write_back_status()?)
    }

    pub(crate) fn set_write_back(&self, settings: WriteBackSettings) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        Ok(self.core.pool().set_write_back(settings)?)
    }

    pub(crate) fn destage_statistics(&self) -> DestageStatistics {
        let counters = &self.destaged;
        DestageStatistics {
            bytes: counters.bytes.load(Ordering::Relaxed),
            time: Duration::from_nanos(counters.nanoseconds.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn destage(&self, keep_going: &dyn Fn() -> bool) -> Result<Destaged, FsError> {
        let _writing = self.core.writing()?;
        let mut begun = Instant::now();
        let operation = match self.core.pool().begin_yielding(NAME) {
            Err(TreeError::Busy { .. }) => return Ok(Destaged::Busy),
            operation => operation?,
        };
        let mut moved = Moved::default();
        let may_go_on = || keep_going() && !operation.is_awaited();
        let waiting = self.core.pool().block_groups()?.into_iter().filter(|group| group.is_write_back);
        for group in waiting.filter(|group| group.used_bytes + group.reserved_bytes > 0) {
            if !may_go_on() {
                return Ok(Destaged::Stopped(moved));
            }
            let Some(destaging) = self.core.pool().begin_destaging(&operation, group.start)? else {
                continue;
            };
            let mut before = moved;
            let mut observe = |now: &Moved| {
                self.destaged.count(before.plus(now).bytes - moved.bytes, &mut begun);
                moved = before.plus(now);
                if may_go_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            if self.merge_waiting(&destaging, &mut observe)?.is_break() {
                return Ok(Destaged::Stopped(moved));
            }
            before = moved;
            let mut observe = |now: &Moved| {
                self.destaged.count(before.plus(now).bytes - moved.bytes, &mut begun);
                moved = before.plus(now);
                if may_go_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let place_of = |tree, number| self.data.last_place(InodeId { tree, number });
            if let Relocation::Stopped(_) = destaging.relocate(&place_of, &mut observe)? {
                return Ok(Destaged::Stopped(moved));
            }
        }
        // Chunks that are empty now, and too many, go.
        self.core.pool().commit()?;
        Ok(Destaged::All(moved))
    }

    pub(crate) fn reason_to_destage(
        &self,
        settings: &DestageSettings,
        since_last: Duration,
    ) -> Result<Option<DestageReason>, FsError> {
        Ok(destage_reason(&self.waiting_data(since_last)?, settings))
    }

    /// Facts for the time to destage.
    fn waiting_data(&self, since_last: Duration) -> Result<WaitingData, FsError> {
        let status = self.write_back_status()?;
        let now = u64::try_from(self.data.context.now().seconds).unwrap_or(0);
        Ok(WaitingData {
            is_off: status.mode == WriteBackMode::Off || status.obstacle.is_some(),
            is_degraded: self.core.pool().volume().devices().iter().any(|device| device.missing),
            bytes: status.waiting_bytes,
            capacity_bytes: status.capacity_bytes,
            oldest: status.since.map_or(Duration::ZERO, |since| age(now, since)),
            quiet: self.data.context.quiet_time(),
            since_last,
        })
    }
}

impl DestageCounters {
    /// Counts bytes, and the time since `begun`, which begins anew.
    fn count(&self, bytes: u64, begun: &mut Instant) {
        let time = std::mem::replace(begun, Instant::now()).elapsed();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// Age of data that has waited since a time, both in seconds since 1970. A time that is still to come is of a clock that was
/// wrong: that data may be of any age.
fn age(now: u64, since: u64) -> Duration {
    now.checked_sub(since).map_or(Duration::MAX, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_clock_that_was_ahead_is_old() {
        assert_eq!(age(100, 40), Duration::from_secs(60));
        assert_eq!(age(100, 101), Duration::MAX);
    }
}
