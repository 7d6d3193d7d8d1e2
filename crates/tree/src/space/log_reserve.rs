//! Places kept for the blocks of logs, so that those of one sync lie side by side, which makes them one write.
//!
//! The *log reserve* is a range of one metadata block group. What is free in it is kept apart from the group's other free
//! ranges, and that is all: it counts as free in every sum, for promises, in the free space tree and on disk. So it takes
//! no room; it decides where blocks go, never whether.
//!
//! - A sync takes places for all of its blocks at once, in one run: behind the last ones, or where the reserve has room for
//!   all. What is freed of the reserve comes back into it, so logs go round in the same range, and the
//!   blocks of commits keep out of it.
//! - The first sync chooses the reserve: a range that is just long enough, on fast devices as far as metadata may lie there.
//!   A sync that finds no run in it chooses another, twice as long, up to the most that a log may take; where that can't be had, the
//!   reserve stays, and the sync takes a run from elsewhere. So between two commits as many syncs as usual find room.
//!   Only free ranges that are known in memory are chosen from: no sync reads a tree for it. If they were too short, the
//!   end of the next commit looks up more.
//! - Other blocks get places of the reserve when there are no others, before a chunk is made for them: it is given back then, as a whole. Of little
//!   metadata space it takes an eighth at most, and in mixed block groups, which data shares, there is none.
//! - If there is no run for a sync, it takes places one by one, as the blocks of a commit do.
//!
//! **A crash** finds what it found without a reserve: a place in it is one like any other, which the last commit and the
//! running transaction have no use for. Those that a log has taken are reserved until its commit, and pinned until that is durable.

use super::group::{Content, Group, Role};
use super::reserve::LogReserve;
use super::state::State;
use super::{FreeRanges, Space};
use crate::error::TreeError;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::{BlockGroupType, Logical, RootId, to_u64, to_usize};
use std::cmp::Reverse;

/// Length of the first reserve, in bytes.
const RESERVE_BYTES: u64 = 1 << 20;
/// The longest one: what a log may take between two commits.
const RESERVE_BYTES_MAX: u64 = LOG_BYTES_MAX;
/// Places that a log may take before its fsyncs become a commit, in bytes.
pub(crate) const LOG_BYTES_MAX: u64 = 64 << 20;
/// Part of the available metadata space that it may be.
const SHARE: u64 = 8;

impl Space {
    /// Allocates places for the `count` blocks that a sync of a log writes, in one run if there is one. Reads no tree.
    pub(crate) fn allocate_log_blocks(&self, store: &Store, count: usize) -> Result<Vec<Logical>, TreeError> {
        let length = to_u64(count) * self.nodesize;
        if let Some(run) = self.lock().take_log_run(self.is_mixed, length, self.nodesize) {
            let places = (run.start..run.end).step_by(to_usize(self.nodesize));
            return Ok(places.map(Logical::new).collect());
        }
        self.allocate_blocks(store, BlockGroupType::METADATA, count, None)
    }

    /// Gives back the last of the places that were allocated for a sync, which nothing refers to or was written to.
    pub(crate) fn give_back_log_blocks(&self, places: &[Logical]) {
        let mut state = self.lock();
        for at in places.iter().rev() {
            let span = super::interval(*at, self.nodesize);
            state.change_at(span, |group| {
                group.unreserve(span);
                if let Some(reserve) = group.log_reserve.as_mut().filter(|reserve| reserve.next == span.end) {
                    reserve.next = span.start;
                }
                Ok(())
            });
        }
    }

    /// Looks up more free ranges at the end of a commit, if a log found none that was long enough. Reads trees.
    pub(super) fn look_up_for_log(&self, store: &Store) -> Result<(), TreeError> {
        if std::mem::take(&mut self.lock().log_reserve.is_short) {
            self.longest_run(store, RootId::TREE_LOG, RESERVE_BYTES_MAX)?;
        }
        Ok(())
    }
}

impl State {
    /// Takes a run of tree blocks for a sync.
    fn take_log_run(&mut self, is_mixed: bool, length: u64, nodesize: u64) -> Option<Interval> {
        if is_mixed || length == 0 {
            return None;
        }
        let run = self.reserved_run(length).or_else(|| {
            self.renew_log_reserve(length, nodesize);
            self.reserved_run(length)
        });
        let run = run.or_else(|| {
            self.log_reserve.is_short = true;
            self.room_for_log((length, length), nodesize)
        })?;
        self.reserve(run);
        self.change_at(run, |group| {
            let holds_run = |reserve: &&mut LogReserve| reserve.span.contains(run.start);
            if let Some(reserve) = group.log_reserve.as_mut().filter(holds_run) {
                reserve.next = run.end;
            }
            Ok(())
        });
        Some(run)
    }

    /// The next run of the reserve, unless its group is to be emptied.
    fn reserved_run(&self, length: u64) -> Option<Interval> {
        let group = self.group(self.log_reserve.group?)?;
        let may = group.is_open() && group.role == Role::Open;
        group.log_reserve.as_ref().filter(|_| may)?.run(length)
    }

    /// Chooses a reserve if there is none, or one that is twice as long, for a sync that needs a run of a length.
    fn renew_log_reserve(&mut self, length: u64, nodesize: u64) {
        let group = self
            .log_reserve
            .group
            .and_then(|start| self.group(start))
            .filter(|group| group.role == Role::Open);
        let present = group.and_then(|group| group.log_reserve.as_ref()).map(|reserve| reserve.span.length());
        let share = self.totals(Content::Metadata).available / SHARE;
        let wanted = present.map_or(RESERVE_BYTES, |present| 2 * present).max(length).min(RESERVE_BYTES_MAX);
        let most = wanted.min(share) / nodesize * nodesize;
        let least = present.unwrap_or(0).max(length);
        let room = if most < least { None } else { self.room_for_log((least, most), nodesize) };
        self.log_reserve.is_short |= room.is_none_or(|room| room.length() < most);
        if let Some(room) = room {
            self.give_back_log_reserve();
            let group = self.group_of(room.start).map(|group| group.start);
            self.log_reserve.group = group;
            group.and_then(|start| self.change(start, |group| group.keep_for_log(room)));
        }
    }

    /// Free range of `least` to `most` bytes for blocks of a log: of the pool's profile, and on fast devices, rather than
    /// long.
    fn room_for_log(&self, bounds: (u64, u64), nodesize: u64) -> Option<Interval> {
        let profile = self.profile(Content::Metadata);
        let groups = self.groups().filter(|group| group.is_open() && group.role == Role::Open);
        let rooms = groups.filter(|group| group.content() == Content::Metadata).filter_map(|group| {
            let room = group.best_room(bounds, nodesize, true)?;
            let lies_well = (group.kind.profile() == Some(profile), self.lies_at_best(group));
            Some(((lies_well, room.length(), Reverse(room.start)), room))
        });
        rooms.max_by_key(|(rank, _)| *rank).map(|(_, room)| room)
    }

    /// Frees the reserve for all; returns true if anything in it was free.
    pub(super) fn give_back_log_reserve(&mut self) -> bool {
        let group = self.log_reserve.group.take();
        group.and_then(|start| self.change(start, Group::give_back_log_reserve)).unwrap_or(false)
    }
}

impl Group {
    /// Keeps a free range for logs.
    fn keep_for_log(&mut self, span: Interval) {
        let free = self.free.as_mut().expect("a range that is kept was found among the free ones");
        free.remove(span);
        self.log_reserve = Some(LogReserve { span, free: FreeRanges::of(span), next: span.start });
    }

    /// Gives up the reserve; returns true if anything in it was free.
    fn give_back_log_reserve(&mut self) -> bool {
        let Some(reserve) = self.log_reserve.take() else { return false };
        reserve.free.iter().for_each(|span| self.add_free(span));
        !reserve.free.is_empty()
    }

    /// A range is free from now on: for logs, as far as it is kept for them.
    pub(super) fn add_free(&mut self, span: Interval) {
        let Some(free) = &mut self.free else { return };
        free.insert(span);
        if let Some(reserve) = &mut self.log_reserve {
            for part in free.remove(reserve.span) {
                reserve.free.insert(part);
            }
        }
    }

    /// The free ranges that hold an address: those of the reserve, or the others.
    pub(super) fn free_at(&mut self, at: u64) -> Option<&mut FreeRanges> {
        match &mut self.log_reserve {
            Some(reserve) if reserve.span.contains(at) => Some(&mut reserve.free),
            _ => self.free.as_mut(),
        }
    }
}
