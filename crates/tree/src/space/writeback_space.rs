//! Space of data in the write-back tier: which of it waits, and the room that is kept for it on bulk devices.

use super::Space;
use super::group::{Content, Group, Role};
use super::state::State;
use super::writeback_tier::{CHUNKS_MAX, WriteBackSettings};
use crate::store::Store;
use brindle_ondisk::{Logical, Profile};
use brindle_policy::placement::{PlacementMode, fast_data_devices, room_for};
use brindle_policy::writeback::{WriteBackMode, WriteBackObstacle, obstacle};

/// Number of empty chunks that stay: one to be filled while the other is emptied.
const SPARE_CHUNKS: usize = 2;
/// Room in chunks of the tier from which on another one is made ahead of need, in bytes: a log can't point into a chunk
/// that no commit knows.
const AHEAD_BYTES: u64 = 64 << 20;
/// Time for which no data goes to the tier after a device has refused some, in seconds.
const REST_SECONDS: u64 = 600;

/// State of the write-back tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackStatus {
    /// Mode, if there is no obstacle.
    pub mode: WriteBackMode,
    /// Settings that the pool stores.
    pub stored: WriteBackSettings,
    /// Reason for which no data goes there.
    pub obstacle: Option<WriteBackObstacle>,
    /// Profile of its new chunks.
    pub profile: Profile,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Bytes that could wait, those that do included.
    pub capacity_bytes: u64,
    /// Time since which the oldest have waited, in seconds since 1970.
    pub since: Option<u64>,
}

/// Gain of a chunk of the tier that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// Its room is there for other data.
    Now,
    /// The next commit takes the chunk away.
    WithACommit,
}

/// Bytes of the tier that have a place on bulk devices already, for as long as this lives.
#[derive(Debug)]
#[must_use = "the room is counted twice from its end on"]
pub struct InTransit<'p> {
    space: &'p Space,
    bytes: u64,
}

impl Drop for InTransit<'_> {
    fn drop(&mut self) {
        // A destructor's call; the count is whole whatever else is not.
        let mut state = self.space.state.lock_after_panic();
        let tier = &mut state.write_back;
        tier.in_transit = tier.in_transit.saturating_sub(self.bytes);
    }
}

impl Space {
    /// Stores other settings of the write-back tier, and goes by them from now on; durable with the next commit.
    ///
    /// # Errors
    /// A pool that is not written.
    pub(crate) fn set_write_back(&self, store: &Store, settings: WriteBackSettings) {
        let mut state = self.lock();
        let tier = &mut state.write_back;
        tier.mode = settings.mode.unwrap_or(tier.mode);
        tier.stored = settings;
        tier.is_changed = true;
        tier.obstacle = None;
        // Empty chunks may be wanted no more.
        state.may_remove = true;
        state.tell_expendable(store);
    }

    /// A device has refused data of the tier: for some time no more goes there.
    pub(crate) fn rest_write_back(&self) {
        let until = self.seconds().saturating_add(REST_SECONDS);
        self.lock().write_back.rests_until = until;
    }

    /// The time, in seconds since 1970.
    fn seconds(&self) -> u64 {
        u64::try_from((self.clock)().sec.get()).unwrap_or(0)
    }

    /// Returns true if new data goes to the write-back tier. `is_synced`: a sync waits for it.
    pub(crate) fn takes_write_back(&self, is_synced: bool) -> bool {
        let mut state = self.lock();
        let is_meant = match state.write_back.mode {
            WriteBackMode::Off => false,
            WriteBackMode::Sync => is_synced,
            WriteBackMode::All => true,
        };
        is_meant && self.write_back_obstacle(&mut state).is_none()
    }

    /// Returns true if the write-back tier has room for some bytes, in its chunks or in one that could be made.
    pub(crate) fn has_write_back_room(&self, store: &Store, bytes: u64) -> bool {
        let state = self.lock();
        let in_new_chunks = || {
            let request = self.request(store, &state, Content::WriteBack);
            room_for(&state.summaries_for(Content::WriteBack), &request)
        };
        state.totals(Content::WriteBack).available >= bytes
            || state.has_room_for_write_back_chunk() && in_new_chunks() >= bytes
    }

    /// Returns true if an extent of data lies on bulk devices, with one copy at least, in a pool that distinguishes them.
    pub(crate) fn lies_on_bulk_devices(&self, at: Logical) -> bool {
        let state = self.lock();
        let is_there = |group: &Group| match group.content() {
            Content::Data => true,
            Content::FastData => !state.lies_on_fast_devices(group),
            _ => false,
        };
        state.fast.is_some() && state.group_of(at.get()).is_some_and(is_there)
    }

    /// Returns true if an extent of data waits in the write-back tier.
    pub(crate) fn lies_in_write_back_tier(&self, at: Logical) -> bool {
        self.lock().group_of(at.get()).is_some_and(|group| group.content() == Content::WriteBack)
    }

    /// Makes a chunk of the write-back tier if it is in use, and the chunks that there are may soon be full: to be called now
    /// and then, so that no sync has to wait for one. Whether one was made; it serves a log from the next commit on.
    ///
    /// # Errors
    /// A pool that is not written.
    pub(crate) fn make_write_back_room(&self, store: &Store) -> bool {
        let mut state = self.lock();
        let is_off = state.write_back.mode == WriteBackMode::Off;
        let chunks = state.groups().filter(|group| group.content() == Content::WriteBack);
        let largest = chunks.map(|group| group.length).max().unwrap_or(0);
        if is_off
            || state.totals(Content::WriteBack).available >= AHEAD_BYTES.min(largest / 2)
            || self.write_back_obstacle(&mut state).is_some()
        {
            return false;
        }
        // No room on the fast devices is no error: data goes to bulk devices then.
        self.make_chunk(store, &mut state, Content::WriteBack).is_ok()
    }

    /// Closes a chunk of the write-back tier to allocation while it is destaged.
    pub(crate) fn close_write_back_group(&self, start: Logical) {
        let mut state = self.lock();
        state.change(start.get(), |group| group.role = Role::Closed);
    }

    /// Promises room on bulk devices for data that moves there from the write-back tier: it was kept for it. Both places count as
    /// one as long as the answer lives.
    ///
    /// # Errors
    /// A pool that is not written.
    pub(crate) fn reserve_kept_data(&self, bytes: u64) -> InTransit<'_> {
        let mut state = self.lock();
        state.promised_data += bytes;
        state.write_back.in_transit += bytes;
        InTransit { space: self, bytes }
    }
}

impl Space {
    /// Reason for which no data goes to the write-back tier.
    pub(super) fn write_back_obstacle(&self, state: &mut State) -> Option<WriteBackObstacle> {
        if self.rests(state) {
            return Some(WriteBackObstacle::Refused);
        }
        if let Some(known) = state.write_back.obstacle {
            return known;
        }
        let found = self.find_lasting_obstacle(state);
        state.write_back.obstacle = Some(found);
        found
    }

    pub(super) fn find_write_back_obstacle(&self, state: &State) -> Option<WriteBackObstacle> {
        let rests = self.rests(state).then_some(WriteBackObstacle::Refused);
        self.find_lasting_obstacle(state).or(rests)
    }

    /// Returns true if a device has refused data not long ago. A clock that is set back ends it, too.
    fn rests(&self, state: &State) -> bool {
        let until = state.write_back.rests_until;
        until > 0 && (until.saturating_sub(REST_SECONDS)..until).contains(&self.seconds())
    }

    fn find_lasting_obstacle(&self, state: &State) -> Option<WriteBackObstacle> {
        let is_strict = self.mode(state) == PlacementMode::Strict;
        let fast = fast_data_devices(&state.summaries());
        obstacle(state.fast.is_some(), is_strict, fast, state.profile(Content::WriteBack))
    }

    pub(crate) fn write_back_status(&self, store: &Store) -> WriteBackStatus {
        let state = self.lock();
        let obstacle = self.find_write_back_obstacle(&state);
        let waiting_bytes = state.totals(Content::WriteBack).taken;
        let in_chunks = state.totals(Content::WriteBack).available;
        let in_new_chunks = match obstacle {
            None => {
                let request = self.request(store, &state, Content::WriteBack);
                room_for(&state.summaries_for(Content::WriteBack), &request)
            }
            Some(_) => 0,
        };
        WriteBackStatus {
            mode: state.write_back.mode,
            stored: state.write_back.stored,
            obstacle,
            profile: state.profile(Content::WriteBack),
            waiting_bytes,
            capacity_bytes: waiting_bytes + in_chunks + in_new_chunks,
            since: state.oldest_waiting(),
        }
    }
}

impl State {
    /// Has the pool go on without chunks of the tier, if the owner has chosen a profile for them.
    pub(super) fn tell_expendable(&self, store: &Store) {
        let tier = &self.write_back;
        let starts = tier.chunks.keys().filter(|_| tier.stored.profile.is_some());
        store.volume().set_expendable(starts.map(|start| Logical::new(*start)).collect());
    }

    /// Bytes of data that are still to have a place on bulk devices.
    pub(super) fn kept_for_destaging(&self) -> u64 {
        self.totals(Content::WriteBack).taken.saturating_sub(self.write_back.in_transit)
    }

    /// Returns true if the tier may have another chunk.
    pub(super) fn has_room_for_write_back_chunk(&self) -> bool {
        self.write_back.chunks.len() < CHUNKS_MAX
    }

    /// Returns true unless a group is of the write-back tier, and made when waiting data was to have another profile: nothing
    /// more is taken from that.
    pub(super) fn is_of_chosen_profile(&self, group: &Group) -> bool {
        group.content() != Content::WriteBack
            || group.kind.profile() == Some(self.profile(Content::WriteBack))
    }

    /// Returns true if an empty chunk of the tier stays.
    pub(super) fn is_write_back_spare(&self, group: &Group) -> bool {
        let is_spare = |group: &&Group| group.content() == Content::WriteBack && group.is_empty();
        let is_wanted = self.write_back.mode != WriteBackMode::Off && self.is_of_chosen_profile(group);
        is_wanted && self.groups().filter(is_spare).count() <= SPARE_CHUNKS
    }

    /// Returns true if an empty chunk of the tier is wanted no more, and goes with the next commit.
    pub(super) fn has_unwanted_spare(&self) -> bool {
        self.may_remove && self.unwanted_spares().any(Group::is_settled)
    }

    /// Returns true if an empty chunk of the tier is wanted no more, and goes with a commit after the one that makes it known.
    pub(super) fn has_unsettled_spare(&self) -> bool {
        self.unwanted_spares().any(|group| !group.is_settled())
    }

    fn unwanted_spares(&self) -> impl Iterator<Item = &Group> {
        let is_spare =
            |group: &&Group| group.content() == Content::WriteBack && group.is_empty() && group.writable;
        self.groups().filter(is_spare).filter(|group| !self.is_write_back_spare(group))
    }

    /// Gives up a chunk of the tier in which nothing waits. `None` if there is none.
    pub(super) fn give_up_write_back_chunk(&mut self) -> Option<GivenUp> {
        let is_idle =
            |group: &&Group| group.content() == Content::WriteBack && group.is_open() && group.is_empty();
        let group = self.groups().find(is_idle)?;
        let (start, profile) = (group.start, group.kind.profile());
        if profile != Some(self.profile(Content::Data)) {
            self.change(start, |group| group.role = Role::Closed);
            return Some(GivenUp::WithACommit);
        }
        tracing::debug!("chunk at logical {start} is no more for write-back: all else is full");
        self.set_write_back_chunk(start, false);
        self.write_back.given_up.push(start);
        let group = self.take_away(start).expect("it was there just now");
        self.add(group);
        Some(GivenUp::Now)
    }

    /// A chunk is, or is no more, of the tier.
    pub(super) fn set_write_back_chunk(&mut self, start: u64, is_one: bool) {
        let tier = &mut self.write_back;
        let changed = match is_one {
            true => tier.chunks.insert(start, 0).is_none(),
            false => tier.chunks.remove(&start).is_some(),
        };
        tier.is_changed |= changed;
    }

    /// Something is taken from a chunk of the tier: from now on data waits in it, if none did before.
    pub(super) fn begins_to_wait(&mut self, address: u64, now: u64) {
        let start = self.group_of(address).map(|group| group.start);
        if let Some(since) =
            start.and_then(|start| self.write_back.chunks.get_mut(&start)).filter(|since| **since == 0)
        {
            *since = now.max(1);
            self.write_back.is_changed = true;
        }
    }

    /// Chunks of the tier in which nothing waits (any more) forget the time.
    pub(super) fn forget_waiting_times(&mut self) {
        let is_idle =
            |start: &u64| self.group(*start).is_none_or(|group| group.used == 0 && group.reserved == 0);
        let idle: Vec<u64> = self
            .write_back
            .chunks
            .iter()
            .filter(|(start, since)| **since != 0 && is_idle(start))
            .map(|(start, _)| *start)
            .collect();
        for start in idle {
            self.write_back.chunks.insert(start, 0);
            self.write_back.is_changed = true;
        }
    }

    /// Time since which the oldest data has waited, in seconds since 1970.
    fn oldest_waiting(&self) -> Option<u64> {
        let waits = |start: &u64| self.group(*start).is_some_and(|group| group.used + group.reserved > 0);
        let waiting = self.write_back.chunks.iter().filter(|(start, _)| waits(start));
        waiting.map(|(_, since)| *since).filter(|since| *since > 0).min()
    }
}
