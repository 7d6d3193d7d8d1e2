//! Contents of files laid together again after small writes at random places, by the mount itself (`autodefrag`).
//!
//! **Walk.** A writeback that makes a new extent for a short range in a file notes the file and the place, in memory
//! ([`data::torn`](crate::data::torn)), with the last commit before it. Upkeep calls [`Autodefrag::step`] from time to time. A file whose small
//! writes are part of a commit, and that has not been written for a while, is opened, and a part of it (a noted place of at most
//! a MiB, and a quarter of a MiB at either side) is looked at as a defragmentation that was asked for does
//! ([`data::defragment`](crate::data::defragment)): the extents that are in use, in the file's turn to write back; those that `policy` finds
//! worth it, and that have one among them that was made since that commit, are read, verified, and written anew side by side,
//! compressed if they were. The transactions are those of a writeback, and become durable with the next commit: none is
//! made for this, unless a quota is nearly used up and a commit may make room. Each step is one part, so that a sync of the file waits for no more than that.
//!
//! **Left alone.** Extents that a snapshot or another file has too, which stay shared; data that waits in the write-back tier,
//! which destaging lays together; files that are overwritten in place, and writes into preallocated space; subvolumes that are read-only;
//! and all files where a quota or the room is nearly used up, a device is missing, or an operation runs that moves block groups. No
//! device that sleeps is read or written for this: such a file waits until a commit has something for the device.
//!
//! **Crash.** Notes are in memory alone, so that a file whose turn had not come stays torn until its next small write.
//! Before the commit the items of the last one are there, and their extents, whose places nothing else gets until then.

use crate::attributes::InodeId;
use crate::core::Core;
use crate::data::FileData;
use crate::data::torn::TornPart;
use crate::error::FsError;
use crate::hold::Holds;
use brindle_ondisk::{BlockGroupType, to_u64};
use brindle_policy::defragment::torn::{PoolState, TornFile, is_due, may_lay};
use brindle_tree::TreeError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Name of the operation, for those that are refused meanwhile.
const NAME: &str = "autodefrag";
/// Number of files that are tried in a step as long as each would wake a device.
const TRIES: usize = 16;

/// Work of `autodefrag` since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutodefragStatistics {
    /// Files that wait for their turn.
    pub waiting_files: u64,
    /// Parts of files that were looked at.
    pub parts: u64,
    /// Extents that were written anew.
    pub moved_extents: u64,
    /// Bytes of files that they had.
    pub moved_bytes: u64,
    /// Extents that would have been worth it, and stay because something else shares them.
    pub shared_extents: u64,
    /// Small writes that were not noted, for want of room in memory.
    pub unnoted_writes: u64,
}

impl AutodefragStatistics {
    /// All numbers, by name; the first tells a state, the others are counters.
    pub fn list(&self) -> [(&'static str, u64); 6] {
        [
            ("waiting_files", self.waiting_files),
            ("parts", self.parts),
            ("moved_extents", self.moved_extents),
            ("moved_bytes", self.moved_bytes),
            ("shared_extents", self.shared_extents),
            ("unnoted_writes", self.unnoted_writes),
        ]
    }
}

/// Counters of that work.
#[derive(Debug, Default)]
struct Counters {
    parts: AtomicU64,
    moved_extents: AtomicU64,
    moved_bytes: AtomicU64,
    shared_extents: AtomicU64,
}

/// Lays files together that small writes have torn.
#[derive(Debug)]
pub(crate) struct Autodefrag {
    core: Arc<Core>,
    data: Arc<FileData>,
    holds: Arc<Holds>,
    counters: Counters,
}

impl Autodefrag {
    pub(crate) fn new(core: Arc<Core>, data: Arc<FileData>, holds: Arc<Holds>) -> Self {
        Self { core, data, holds, counters: Counters::default() }
    }

    pub(crate) fn statistics(&self) -> AutodefragStatistics {
        let (waiting, unnoted_writes) = self.data.context.torn.counts();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AutodefragStatistics {
            waiting_files: to_u64(waiting),
            parts: read(&self.counters.parts),
            moved_extents: read(&self.counters.moved_extents),
            moved_bytes: read(&self.counters.moved_bytes),
            shared_extents: read(&self.counters.shared_extents),
            unnoted_writes,
        }
    }

    /// Lays the next part together that is due; true if there was one.
    pub(crate) fn step(&self, now: Instant, may_go_on: &dyn Fn() -> bool) -> Result<bool, FsError> {
        let torn = &self.data.context.torn;
        if !torn.is_on() {
            return Ok(false);
        }
        let _writing = self.core.writing()?;
        let committed = self.core.pool().superblock().generation;
        let waiting = torn.waiting(committed, now);
        let is_any_due = torn.is_under_way() || waiting.iter().any(|(_, facts)| is_due(facts));
        if !is_any_due || !self.may_lay()? {
            return Ok(false);
        }
        let _alone = match self.core.pool().begin_yielding(NAME) {
            Err(TreeError::Busy { .. }) => return Ok(false),
            operation => operation?,
        };
        // A remount waits for this operation, and sees that the mount rests before a next one begins.
        if !may_go_on() {
            return Ok(false);
        }
        let is_dirty =
            |file: InodeId| self.core.inodes.find(file).is_some_and(|inode| !inode.data.is_clean());
        // What is dirty would be written to such a device before.
        let has_sleeping = self.core.pool().volume().traffic().iter().any(|device| device.is_asleep);
        let is_due = |(file, facts): &(InodeId, TornFile)| {
            let is_dirty = is_dirty(*file);
            is_due(&TornFile { is_dirty, ..*facts }) && !(is_dirty && has_sleeping)
        };
        let mut due = waiting.into_iter().filter(is_due);
        for _ in 0..TRIES {
            if !torn.is_under_way() {
                let Some((file, _)) = due.next() else { return Ok(false) };
                torn.begin(file);
            }
            let Some(part) = torn.take_part() else { return Ok(false) };
            if self.lay(&part)? {
                return Ok(true);
            }
            torn.postpone(&part, now);
        }
        Ok(false)
    }

    fn may_lay(&self) -> Result<bool, FsError> {
        let pool = self.core.pool();
        let summary = pool.space_summary()?;
        let data = summary.groups.iter().filter(|group| group.kind.contains(BlockGroupType::DATA));
        Ok(may_lay(&PoolState {
            room_bytes: summary.data_room.bytes,
            data_bytes: data.map(|group| group.used_bytes + group.reserved_bytes).sum(),
            is_degraded: pool.volume().devices().iter().any(|device| device.missing),
        }))
    }

    /// Lays a part together; false if that would wake a device. A file that this fails for is forgotten, unless nothing can be
    /// written any more.
    fn lay(&self, part: &TornPart) -> Result<bool, FsError> {
        let done = self.holds.open_file(part.file).and_then(|file| {
            let done = self.data.lay_together(&file, &part.range, part.since);
            self.holds.end_use(file)?;
            done
        });
        let (done, is_complete) = match done {
            Ok(done) => done,
            Err(error) if self.core.is_writable() => {
                // A file or subvolume that is gone or read-only, a quota, room, or a device: its next small write notes it again.
                tracing::debug!("autodefrag: {error}");
                self.data.context.torn.forget(part.file);
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        self.counters.parts.fetch_add(is_complete.into(), Ordering::Relaxed);
        self.counters.moved_extents.fetch_add(done.moved, Ordering::Relaxed);
        self.counters.moved_bytes.fetch_add(done.moved_bytes, Ordering::Relaxed);
        self.counters.shared_extents.fetch_add(done.shared, Ordering::Relaxed);
        Ok(is_complete)
    }
}
