//! Taking space: runs of tree blocks, and extents of data.
//!
//! Both prefer to go on where the last one ended. When that is not possible, tree blocks take the longest free range
//! there is, and go on there; so the blocks of a commit, which come in the order of their keys, lie side by side. An
//! extent of data takes a range that it just fits in, or the longest.

use super::data::TierChoice;
use super::group::{Content, Group, Role};
use super::state::{State, content};
use super::{Space, interval};
use crate::error::TreeError;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::{BlockGroupType, Logical, RootId, to_u64, to_usize};
use brindle_policy::placement::{PlacementMode, Ranks};
use brindle_policy::writeback::DataPlace;
use brindle_sync::Rank;
use std::cmp::Reverse;

/// Length in bytes of a free range in which tree blocks go on where the last ones ended; a shorter one will do if it
/// has room for all of them.
const RUN_BYTES: u64 = 256 << 10;
/// An extent of data of this length is long enough to be taken without looking for a longer one.
const GOOD_EXTENT_BYTES: u64 = 1 << 20;
/// Number of block groups that are looked into for a good extent before a new chunk is made.
const LOOK_UPS_MAX: usize = 8;

/// Permission to make a chunk on fast devices for data that has no room on bulk ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spill {
    /// Only if the chunks of the fast tier have no room.
    IfNeeded,
    /// Always.
    Allowed,
}

impl Space {
    /// Allocates places for `count` tree blocks, in as few and as long runs as there are, behind `hint` (the last
    /// block before them) if possible. Reads no tree, so that it may be called with trees locked.
    pub(crate) fn allocate_blocks(
        &self,
        store: &Store,
        kind: BlockGroupType,
        count: usize,
        hint: Option<Logical>,
    ) -> Result<Vec<Logical>, TreeError> {
        let nodesize = u64::from(store.nodesize());
        let content = content(self.is_mixed, kind);
        let mut state = self.lock();
        let mut places = Vec::with_capacity(count);
        let mut spares = true;
        if let Some(hint) = hint {
            state.next_blocks[content] = hint.get().checked_add(nodesize);
        }
        while places.len() < count {
            let wanted = to_u64(count - places.len()) * nodesize;
            let Some(run) = state.take_run(content, wanted, nodesize, spares) else {
                if state.give_back_log_reserve() {
                    continue;
                }
                // The reservation should have seen to it, unless groups are avoided; a new chunk is the last resort.
                match self.make_chunk(store, &mut state, content) {
                    Err(error) if !spares => return Err(error),
                    made => spares = made.is_ok(),
                }
                continue;
            };
            places.extend((run.start..run.end).step_by(to_usize(nodesize)).map(Logical::new));
        }
        Ok(places)
    }

    /// Takes an extent of data of `least` to `most` bytes, of a tier if it has room.
    pub(super) fn take_extent(
        &self,
        store: &Store,
        tier: TierChoice,
        bounds: (u64, u64),
        hint: Option<Logical>,
    ) -> Result<Interval, TreeError> {
        Rank::SpaceLoad.assert_free();
        let mut taken = Err(TreeError::NoSpace(format!("no free range of {} bytes for data", bounds.0)));
        let contents = match tier {
            TierChoice::Preferred(tier) => self.data_contents(tier),
            TierChoice::Only(tier) => &self.data_contents(tier)[..1],
        };
        let (place, is_strict) = match tier {
            TierChoice::Preferred(place) => (place, false),
            TierChoice::Only(place) => (place, true),
        };
        // A class that is asked for is the first step.
        let steps_max = if is_strict && matches!(place, DataPlace::Class(..)) { 1 } else { usize::MAX };
        // Data goes to chunks of the fast tier that are there before it spills into new ones.
        let has_fallback = contents.contains(&Content::Data) && contents.contains(&Content::FastData);
        let rounds = if has_fallback { &[Spill::IfNeeded, Spill::Allowed][..] } else { &[Spill::Allowed] };
        for spill in rounds {
            for content in contents {
                let steps = self.lock().steps(*content, place);
                for ranks in steps.into_iter().take(steps_max) {
                    taken = self.take_from(store, (*content, ranks), bounds, hint, (is_strict, *spill));
                    match &taken {
                        Err(TreeError::NoSpace(_)) => {}
                        _ => return taken,
                    }
                }
            }
        }
        taken
    }

    /// Takes a range that is known only to a log, if all of it is free, and in a block group of that kind. Reads
    /// trees.
    pub(crate) fn claim(
        &self,
        store: &Store,
        kind: BlockGroupType,
        start: Logical,
        length: u64,
    ) -> Result<bool, TreeError> {
        let span = interval(start, length);
        let group = self
            .lock()
            .group_of(span.start)
            .filter(|group| group.kind.contains(kind))
            .map(|group| group.start);
        let Some(group) = group else { return Ok(false) };
        self.look_up(store, group)?;
        let mut state = self.lock();
        state.give_back_log_reserve();
        let free = state.group(group).and_then(|group| group.free.as_ref()?.holding(span.start));
        let is_free = free.is_some_and(|free| !span.is_empty() && span.end <= free.end);
        if is_free {
            state.reserve(span);
        }
        Ok(is_free)
    }

    fn take_from(
        &self,
        store: &Store,
        (content, ranks): (Content, Ranks),
        (least, most): (u64, u64),
        hint: Option<Logical>,
        (is_strict, spill): (bool, Spill),
    ) -> Result<Interval, TreeError> {
        let good = GOOD_EXTENT_BYTES.min(most).max(least);
        let mut look_ups = 0;
        let mut may_make_chunk = true;
        loop {
            let unknown = {
                let mut state = self.lock();
                if let Some(span) =
                    state.take_data((content, ranks), (good, most), hint, self.sectorsize, true)
                {
                    self.note_taken(&mut state, content, span);
                    return Ok(span);
                }
                let unknown = state.next_unknown(content, ranks).filter(|_| look_ups < LOOK_UPS_MAX);
                if unknown.is_none()
                    && may_make_chunk
                    && self.may_spill(store, &state, (content, ranks), spill)
                {
                    may_make_chunk = false;
                    let mode = if is_strict { PlacementMode::Strict } else { self.mode(&state) };
                    if self.make_chunk_as(store, &mut state, content, mode, ranks).is_ok() {
                        continue;
                    }
                }
                for spares in [true, false] {
                    if unknown.is_none() {
                        if let Some(span) =
                            state.take_data((content, ranks), (least, most), hint, self.sectorsize, spares)
                        {
                            self.note_taken(&mut state, content, span);
                            return Ok(span);
                        }
                    }
                }
                unknown.or_else(|| state.next_unknown(content, ranks))
            };
            match unknown {
                Some(group) => self.look_up(store, group)?,
                None => return Err(TreeError::NoSpace(format!("no free range of {least} bytes for data"))),
            }
            look_ups += 1;
        }
    }

    /// Returns false if a new chunk would be one of the fast tier, and the chunks of that have room.
    fn may_spill(
        &self,
        store: &Store,
        state: &State,
        (content, ranks): (Content, Ranks),
        spill: Spill,
    ) -> bool {
        content != Content::Data
            || spill == Spill::Allowed
            || state.totals(Content::FastData).available < GOOD_EXTENT_BYTES
            || !self.would_spill(store, state, ranks)
    }

    /// Data lies in the write-back tier from now on.
    fn note_taken(&self, state: &mut State, content: Content, span: Interval) {
        if content == Content::WriteBack {
            let now = (self.clock)().sec.get();
            state.begins_to_wait(span.start, u64::try_from(now).unwrap_or(0));
        }
    }

    /// The longest run of free space for the blocks of a tree, or the first that is found to be long enough.
    pub(crate) fn longest_run(&self, store: &Store, tree: RootId, enough: u64) -> Result<u64, TreeError> {
        Rank::SpaceLoad.assert_free();
        let content = content(self.is_mixed, block_kind(tree));
        let mut look_ups = 0;
        loop {
            let unknown = {
                let state = self.lock();
                let longest = state.longest_run(content, self.nodesize);
                let unknown = state.next_unknown(content, Ranks::ALL).filter(|_| look_ups < LOOK_UPS_MAX);
                match unknown {
                    Some(unknown) if longest < enough => unknown,
                    _ => return Ok(longest),
                }
            };
            self.look_up(store, unknown)?;
            look_ups += 1;
        }
    }

    /// Looks up free ranges until `bytes` of a content are known, or everything is.
    pub(super) fn look_up_until(&self, store: &Store, content: Content, bytes: u64) -> Result<(), TreeError> {
        Rank::SpaceLoad.assert_free();
        loop {
            let unknown = {
                let state = self.lock();
                if state.totals(content).looked_up >= bytes {
                    None
                } else {
                    state.next_unknown(content, Ranks::ALL)
                }
            };
            match unknown {
                Some(group) => self.look_up(store, group)?,
                None => return Ok(()),
            }
        }
    }
}

/// Type of block group that holds the blocks of a tree.
pub(crate) fn block_kind(tree: RootId) -> BlockGroupType {
    match tree {
        RootId::CHUNK_TREE => BlockGroupType::SYSTEM,
        _ => BlockGroupType::METADATA,
    }
}

impl State {
    /// Block group with most room of those not looked up.
    fn next_unknown(&self, content: Content, ranks: Ranks) -> Option<u64> {
        let unknown =
            self.candidates(content, ranks).filter(|group| group.free.is_none() && group.available() > 0);
        unknown.max_by_key(|group| (group.available(), Reverse(group.start))).map(|group| group.start)
    }

    fn candidates(&self, content: Content, ranks: Ranks) -> impl Iterator<Item = &Group> {
        // Chunks of the write-back tier that were made when waiting data was to have another profile are only emptied.
        let chosen = (content == Content::WriteBack).then(|| self.profile(content));
        let is_meant = move |group: &&Group| {
            ranks.contains(group.rank) && (chosen.is_none() || group.kind.profile() == chosen)
        };
        self.groups().filter(move |group| group.is_open() && group.content() == content && is_meant(group))
    }

    /// The group that something may be taken from at an address.
    fn candidate_at(&self, (content, ranks): (Content, Ranks), at: u64) -> Option<&Group> {
        let may =
            |group: &&Group| group.is_open() && group.role != Role::Avoided && ranks.contains(group.rank);
        let is_meant = |group: &&Group| group.content() == content && self.is_of_chosen_profile(group);
        self.group_of(at).filter(|group| may(group) && is_meant(group))
    }

    /// Takes the next run of tree blocks. `spares`: not of groups that are to be avoided.
    fn take_run(&mut self, content: Content, wanted: u64, nodesize: u64, spares: bool) -> Option<Interval> {
        let next = self.next_blocks[content];
        let enough = wanted.min(RUN_BYTES.max(nodesize));
        let near = next.and_then(|at| {
            self.candidate_at((content, Ranks::ALL), at)?.room_at(at, (enough, wanted), nodesize)
        });
        let bounds = (nodesize, wanted);
        let span = near.or_else(|| self.best_room((content, Ranks::ALL), bounds, nodesize, false, spares))?;
        self.next_blocks[content] = Some(span.end);
        self.reserve(span);
        Some(span)
    }

    /// Takes an extent of data. `spares`: not of groups that are to be avoided.
    fn take_data(
        &mut self,
        (content, ranks): (Content, Ranks),
        bounds: (u64, u64),
        hint: Option<Logical>,
        sectorsize: u64,
        spares: bool,
    ) -> Option<Interval> {
        let places = [hint.map(Logical::get), self.next_data[content]];
        let near = |at: u64| self.candidate_at((content, ranks), at)?.room_at(at, bounds, sectorsize);
        let near = places.into_iter().flatten().find_map(near);
        let span = near.or_else(|| self.best_room((content, ranks), bounds, sectorsize, true, spares))?;
        self.next_data[content] = Some(span.end);
        self.reserve(span);
        Some(span)
    }

    /// The best room in any group: of the pool's profile rather than of others, then as long as is wanted.
    fn best_room(
        &self,
        (content, ranks): (Content, Ranks),
        bounds: (u64, u64),
        unit: u64,
        tight: bool,
        spares: bool,
    ) -> Option<Interval> {
        let profile = self.profile(content);
        let groups = self.candidates(content, ranks).filter(|group| !spares || group.role != Role::Avoided);
        let rooms = groups.filter_map(|group| {
            let room = group.best_room(bounds, unit, tight)?;
            Some(((group.kind.profile() == Some(profile), room.length(), Reverse(room.start)), room))
        });
        rooms.max_by_key(|(rank, _)| *rank).map(|(_, room)| room)
    }

    /// The longest run of tree blocks that could be taken.
    fn longest_run(&self, content: Content, nodesize: u64) -> u64 {
        let groups = self.candidates(content, Ranks::ALL).filter(|group| group.role != Role::Avoided);
        let rooms = groups.filter_map(|group| group.best_room((nodesize, u64::MAX), nodesize, false));
        rooms.map(|room| room.length()).max().unwrap_or(0)
    }

    pub(super) fn reserve(&mut self, span: Interval) {
        self.change_at(span, |group| {
            group.reserve(span);
            Ok(())
        });
    }
}
