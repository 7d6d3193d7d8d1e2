//! Promises of data space, and extents taken and not referred to yet.

use super::Space;
use super::metadata::Load;
use super::state::content;
use super::writeback_tier::GivenUp;
use crate::error::TreeError;
use crate::pool::Pool;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::{BlockGroupType, Logical};
use brindle_policy::writeback::DataPlace;

/// Number of attempts to reserve data space after a commit; others may be faster every time.
const TRIES: usize = 4;

/// Place of new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierChoice {
    /// Here, if there is room.
    Preferred(DataPlace),
    /// Here, or nowhere.
    Only(DataPlace),
}

/// Data space that is taken and not referred to yet: it goes back if this is dropped, unless [`keep`](Self::keep)
/// was called when the extent's first reference was queued.
#[derive(Debug)]
pub struct ReservedExtent<'p> {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    pub(crate) pool: &'p Pool,
    is_kept: bool,
}

impl ReservedExtent<'_> {
    /// The extent is referred to now.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    /// Takes a part from the front, to become an extent of its own that is referred to; the rest stays reserved.
    pub fn split_front(&mut self, length: u64) -> Logical {
        assert!(length <= self.length, "no more is taken than was reserved");
        let taken = self.start;
        self.start = taken + length;
        self.length -= length;
        self.is_kept = self.length == 0;
        taken
    }
}

impl Drop for ReservedExtent<'_> {
    fn drop(&mut self) {
        if !self.is_kept
            && let Ok(changes) = self.pool.changes()
        {
            changes.space.give_back(Interval::new(self.start.get(), self.length));
        }
    }
}

impl Pool {
    /// Reserves `bytes` bytes of data space; [`TreeError::NoSpace`] if there are not enough. May commit if that
    /// helps: not to be called within a transaction, nor with a tree locked.
    pub fn reserve_data(&self, bytes: u64) -> Result<(), TreeError> {
        let changes = self.changes()?;
        for _ in 0..TRIES {
            if changes.space.promise_data(self, self.changes()?.load(self), bytes)? {
                return Ok(());
            }
            self.commit()?;
            changes.space.wait_for_readers();
        }
        Err(TreeError::NoSpace(format!("no {bytes} bytes for data")))
    }

    /// Takes back what was promised and is not needed (any more).
    pub fn release_data(&self, bytes: u64) {
        if let Ok(changes) = self.changes() {
            changes.space.release_data(bytes);
        }
    }

    /// Takes data space that was promised: one extent of `min` to `max` bytes, multiples of the sector size, as
    /// long as there is, near `hint` (the end of what it follows) if possible. The promise shrinks by what is taken.
    pub fn reserve_extent(
        &self,
        min: u64,
        max: u64,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        self.reserve_extent_on(DataPlace::Bulk, min, max, hint)
    }

    /// Reserves an extent like [`reserve_extent`](Self::reserve_extent), in data chunks of a place, as far as there is room, or
    /// in others.
    pub fn reserve_extent_on(
        &self,
        place: DataPlace,
        min: u64,
        max: u64,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        self.reserve_extent_in(TierChoice::Preferred(place), (min, max), hint)
    }

    /// The same, perhaps nowhere else.
    pub(crate) fn reserve_extent_in(
        &self,
        tier: TierChoice,
        bounds: (u64, u64),
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        let space = &self.changes()?.space;
        let taken = space.take_extent(self, tier, bounds, hint)?;
        let (start, length) = (Logical::new(taken.start), taken.length());
        space.release_data(length);
        Ok(ReservedExtent { start, length, pool: self, is_kept: false })
    }
}

impl Space {
    /// Promises data space; `false` if only a commit can help.
    pub(super) fn promise_data(&self, store: &Store, load: Load, bytes: u64) -> Result<bool, TreeError> {
        let content = content(self.is_mixed, BlockGroupType::DATA);
        let mut state = self.lock();
        loop {
            let mut taken = state.promised_data + state.kept_for_destaging();
            if self.is_mixed {
                let kept = self.kept_back(&state);
                taken += self.needed(&state, load, 0) + kept.commit + kept.freeing;
            }
            let totals = self.data_totals(&state);
            let available = totals.available.saturating_sub(taken);
            if available >= bytes {
                state.promised_data += bytes;
                return Ok(true);
            }
            let Err(error) = self.make_chunk(store, &mut state, content) else { continue };
            match state.give_up_write_back_chunk() {
                Some(GivenUp::Now) => continue,
                Some(GivenUp::WithACommit) => return Ok(false),
                None => {}
            }
            // Changed metadata of a mixed pool takes room that a commit gives back.
            let changed = if self.is_mixed { taken - state.promised_data } else { 0 };
            let is_hopeful = available + totals.pinned + changed >= bytes || load.references > 0;
            let is_idle = totals.pinned == 0 && load.references == 0 && load.dirty == 0;
            return if is_hopeful && !is_idle { Ok(false) } else { Err(error) };
        }
    }

    /// Takes part of a promise back.
    pub(super) fn release_data(&self, bytes: u64) {
        let mut state = self.lock();
        debug_assert!(state.promised_data >= bytes, "only what was promised is taken back");
        state.promised_data = state.promised_data.saturating_sub(bytes);
    }

    /// An extent was taken and not used.
    fn give_back(&self, span: Interval) {
        self.lock().change_at(span, |group| {
            group.unreserve(span);
            Ok(())
        });
    }
}
