//! Taking space: runs of tree blocks, and extents of data.
//!
//! Both prefer to go on where the last one ended. When that is not possible, tree blocks take the longest free range
//! there is, and go on there; so the blocks of a commit, which come in the order of their keys, lie side by side. An
//! extent of data takes a range that it just fits in, or the longest.
//!
//! Extents that are written together take one range that all of them just fit in, for a hard disk seeks for each range. No chunk is
//! made for that. Small extents that are freed one by one leave holes between them, and would tear all free
//! space in time. So long ranges are for them only as long as three quarters of the free space are such; otherwise they take
//! short ranges, the longer ones first.

use super::data::{RangeLengths, TierChoice};
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
/// A free range of this length is long enough for data to be taken without looking for a longer one.
const GOOD_EXTENT_BYTES: u64 = 1 << 20;
/// Least part of the free space, in percent, that is to be in ranges of the length of a good extent.
const LONG_PERCENT: u64 = 75;
/// Number of free ranges for extents that are written together, about, where long ones are few.
const SHORT_RANGES: u64 = 16;
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

/// Demand on a free range for data, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// Room for everything, or as much as one looks for.
    Good,
    /// Room for the first extent, in the longest range. Without it, a chunk is made.
    First,
    /// Room for the least that will do.
    Least,
    /// The same in groups that are to be avoided.
    LeastOfAll,
}

/// Data that a free range is looked for.
struct Wanted {
    lengths: RangeLengths,
    /// Length in bytes of a free range that has room for all that is about to be written, as far as one looks for.
    room: u64,
    hint: Option<Logical>,
    sectorsize: u64,
}

impl Wanted {
    fn new(lengths: RangeLengths, hint: Option<Logical>, sectorsize: u64) -> Self {
        let room = lengths.all.max(GOOD_EXTENT_BYTES.min(lengths.ahead));
        Self { lengths, room, hint, sectorsize }
    }

    /// Returns true if more is to be written than one extent, and that is short.
    fn is_series(&self) -> bool {
        self.lengths.first < GOOD_EXTENT_BYTES && self.lengths.first < self.room
    }

    /// Least length of a free range that is chosen among all.
    fn least(&self, demand: Demand) -> u64 {
        let good = match demand {
            Demand::Good => self.room,
            Demand::First => self.lengths.first,
            Demand::Least | Demand::LeastOfAll => 0,
        };
        GOOD_EXTENT_BYTES.min(good).max(self.lengths.least)
    }

    /// Least length of what is left of a free range behind the last extent taken.
    fn behind(&self, demand: Demand) -> u64 {
        match demand {
            Demand::Good => GOOD_EXTENT_BYTES.min(self.lengths.all).max(self.lengths.least),
            Demand::First | Demand::Least | Demand::LeastOfAll => self.least(demand),
        }
    }
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

    /// Takes a free range for data, of a tier if it has room.
    pub(super) fn take_extent(
        &self,
        store: &Store,
        tier: TierChoice,
        lengths: RangeLengths,
        hint: Option<Logical>,
    ) -> Result<Interval, TreeError> {
        Rank::SpaceLoad.assert_free();
        let mut taken = Err(TreeError::NoSpace(format!("no free range of {} bytes for data", lengths.least)));
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
                    taken = self.take_from(store, (*content, ranks), lengths, hint, (is_strict, *spill));
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
        lengths: RangeLengths,
        hint: Option<Logical>,
        (is_strict, spill): (bool, Spill),
    ) -> Result<Interval, TreeError> {
        let wanted = Wanted::new(lengths, hint, self.sectorsize);
        let mut look_ups = 0;
        let mut may_make_chunk = true;
        loop {
            let unknown = {
                let mut state = self.lock();
                if let Some(span) = self.take_data(&mut state, (content, ranks), &wanted, Demand::Good) {
                    return Ok(span);
                }
                let unknown = state.next_unknown(content, ranks).filter(|_| look_ups < LOOK_UPS_MAX);
                if unknown.is_none() || wanted.is_series() && look_ups > 0 {
                    // A series has one more group looked up at a time, for no sync is to wait for many.
                    if let Some(span) = self.take_data(&mut state, (content, ranks), &wanted, Demand::First) {
                        return Ok(span);
                    }
                }
                if unknown.is_none() {
                    if may_make_chunk && self.may_spill(store, &state, (content, ranks), spill) {
                        may_make_chunk = false;
                        let mode = if is_strict { PlacementMode::Strict } else { self.mode(&state) };
                        if self.make_chunk_as(store, &mut state, content, mode, ranks).is_ok() {
                            continue;
                        }
                    }
                    for demand in [Demand::Least, Demand::LeastOfAll] {
                        if let Some(span) = self.take_data(&mut state, (content, ranks), &wanted, demand) {
                            return Ok(span);
                        }
                    }
                }
                unknown.or_else(|| state.next_unknown(content, ranks))
            };
            match unknown {
                Some(group) => self.look_up(store, group)?,
                None => {
                    let least = lengths.least;
                    return Err(TreeError::NoSpace(format!("no free range of {least} bytes for data")));
                }
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

    fn take_data(
        &self,
        state: &mut State,
        (content, ranks): (Content, Ranks),
        wanted: &Wanted,
        demand: Demand,
    ) -> Option<Interval> {
        let span = state.take_data((content, ranks), wanted, demand)?;
        if content == Content::WriteBack {
            // Data lies in the write-back tier from now on.
            let now = (self.clock)().sec.get();
            state.begins_to_wait(span.start, u64::try_from(now).unwrap_or(0));
        }
        Some(span)
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

    /// Takes a free range for data, behind the last one or where it fits.
    fn take_data(
        &mut self,
        (content, ranks): (Content, Ranks),
        wanted: &Wanted,
        demand: Demand,
    ) -> Option<Interval> {
        let unit = wanted.sectorsize;
        let places = [wanted.hint.map(Logical::get), self.next_data[content]];
        let bounds = (wanted.behind(demand), wanted.lengths.all);
        let near = |at: u64| self.candidate_at((content, ranks), at)?.room_at(at, bounds, unit);
        let near = places.into_iter().flatten().filter(|_| demand != Demand::First).find_map(near);
        let is_among_short = || wanted.is_series() && self.has_few_long_ranges((content, ranks));
        let best = || {
            let bounds = (wanted.least(demand), wanted.room);
            match demand {
                Demand::Good if is_among_short() => None,
                Demand::First if is_among_short() => self.short_room((content, ranks), wanted),
                demand => self.best_room((content, ranks), bounds, unit, true, demand != Demand::LeastOfAll),
            }
        };
        let room = near.or_else(best)?;
        let span = Interval::new(room.start, room.length().min(wanted.lengths.all));
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

    /// A short free range for a series of extents: of the pool's profile rather than of others, one that part of them just fit in, or
    /// the longest. If there is none, one that the first of them just fits in.
    fn short_room(&self, (content, ranks): (Content, Ranks), wanted: &Wanted) -> Option<Interval> {
        let (first, unit) = (wanted.lengths.first.max(wanted.lengths.least), wanted.sectorsize);
        let part = (GOOD_EXTENT_BYTES.min(wanted.room) / SHORT_RANGES).max(first);
        let profile = self.profile(content);
        let groups = self.candidates(content, ranks).filter(|group| group.role != Role::Avoided);
        let rooms = groups.filter_map(|group| {
            let room = group.short_room((first, part), GOOD_EXTENT_BYTES, unit)?;
            // The shortest of those that are long enough, or the longest of the others.
            let (is_enough, length) = (room.length() >= part, room.length());
            let fit = if is_enough { GOOD_EXTENT_BYTES.saturating_sub(length) } else { length };
            Some(((group.kind.profile() == Some(profile), is_enough, fit, Reverse(room.start)), room))
        });
        let short = rooms.max_by_key(|(rank, _)| *rank).map(|(_, room)| room);
        short.or_else(|| self.best_room((content, ranks), (first, first), unit, true, true))
    }

    /// Returns true if too little of the free space that is looked up is in long ranges for small extents to be taken from them.
    fn has_few_long_ranges(&self, (content, ranks): (Content, Ranks)) -> bool {
        let groups = self.candidates(content, ranks).filter(|group| group.role != Role::Avoided);
        let known =
            groups.filter_map(|group| Some((group.long_bytes(GOOD_EXTENT_BYTES)?, group.available())));
        let (long, all) = known.fold((0, 0), |sum: (u64, u64), (long, all)| (sum.0 + long, sum.1 + all));
        long < all / 100 * LONG_PERCENT
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
