//! Promises of data space, and extents taken and not referred to yet.

use super::Space;
use super::metadata::Load;
use super::state::content;
use super::writeback_space::GivenUp;
use crate::error::TreeError;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::{BlockGroupType, Logical};
use brindle_policy::writeback::DataPlace;
use brindle_volume::Volume;

/// Place of new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierChoice {
    /// Here, if there is room.
    Preferred(DataPlace),
    /// Here, or nowhere.
    Only(DataPlace),
}

/// Lengths in bytes of a free range that is looked for, multiples of the sector size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLengths {
    /// Least length that will do.
    pub least: u64,
    /// Length of the first extent that is cut from it: a new chunk is made for it rather than a shorter range taken.
    pub first: u64,
    /// Length of all extents that are cut from it, and most that is taken.
    pub all: u64,
    /// Bytes that are about to be written, those in `all` among them: the range is to have room for them behind it.
    pub ahead: u64,
}

impl RangeLengths {
    /// For one extent of `least` to `most` bytes.
    pub(crate) fn of_extent(least: u64, most: u64) -> Self {
        Self { least, first: most, all: most, ahead: most }
    }
}

/// Data space that is taken and not referred to yet: it goes back if this is dropped, unless [`keep`](Self::keep)
/// was called when the extent's first reference was queued.
#[derive(Debug)]
pub struct ReservedExtent<'p> {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    space: &'p Space,
    volume: &'p Volume,
    is_kept: bool,
}

impl ReservedExtent<'_> {
    /// The extent is referred to now: to be called in the transaction of its first reference.
    pub fn keep(mut self) {
        self.volume.has_entered(self.start, self.length);
        self.is_kept = true;
    }

    /// Gives the space back, and promises as much in its stead; returns the number of bytes. What was written there is of no use.
    #[must_use = "the promise has to be kept, or taken back"]
    pub fn return_to_promise(mut self) -> u64 {
        self.volume.has_given_up(self.start, self.length);
        let span = Interval::new(self.start.get(), self.length);
        self.space.give_back(span, self.length);
        self.is_kept = true;
        self.length
    }

    /// Takes a part from the front, to be kept or to go back by itself; the rest stays reserved.
    pub fn cut_front(&mut self, length: u64) -> Self {
        assert!(length <= self.length, "no more is cut than was reserved");
        let (space, volume, is_kept) = (self.space, self.volume, length == 0);
        let front = Self { start: self.start, length, space, volume, is_kept };
        self.start = self.start + length;
        self.length -= length;
        self.is_kept = self.length == 0;
        front
    }

    /// Takes a part from the front, to become an extent of its own that is referred to; the rest stays reserved.
    pub fn split_front(&mut self, length: u64) -> Logical {
        assert!(length <= self.length, "no more is taken than was reserved");
        let taken = self.start;
        self.volume.has_entered(taken, length);
        self.start = taken + length;
        self.length -= length;
        self.is_kept = self.length == 0;
        taken
    }
}

impl Drop for ReservedExtent<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.space.give_back(Interval::new(self.start.get(), self.length), 0);
        }
    }
}

impl Space {
    /// The same, perhaps nowhere else.
    pub(crate) fn reserve_extent<'p>(
        &'p self,
        store: &'p Store,
        tier: TierChoice,
        lengths: RangeLengths,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'p>, TreeError> {
        let taken = self.take_extent(store, tier, lengths, hint)?;
        let (start, length) = (Logical::new(taken.start), taken.length());
        self.release_data(length);
        Ok(ReservedExtent { start, length, space: self, volume: store.volume(), is_kept: false })
    }
}

impl Space {
    /// Promises data space; `false` if only a commit can help.
    pub(crate) fn promise_data(&self, store: &Store, load: Load, bytes: u64) -> Result<bool, TreeError> {
        let content = content(self.is_mixed, BlockGroupType::DATA);
        let mut state = self.lock();
        loop {
            let mut taken = state.promised_data + state.kept_for_destaging();
            if self.is_mixed {
                taken += self.needed(&state, load, 0) + self.kept_back(&state, load.trees).bytes();
            }
            let totals = self.data_totals(&state);
            let available = totals.available.saturating_sub(taken);
            if available >= bytes {
                state.promised_data += bytes;
                return Ok(true);
            }
            let Err(error) = self.make_chunk(store, &mut state, content) else { continue };
            match state.give_up_write_back_chunk() {
                Some(GivenUp::Now) => {
                    state.tell_expendable(store);
                    continue;
                }
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
    pub(crate) fn release_data(&self, bytes: u64) {
        let mut state = self.lock();
        debug_assert!(state.promised_data >= bytes, "only what was promised is taken back");
        state.promised_data = state.promised_data.saturating_sub(bytes);
    }

    /// An extent was taken and not used; this number of bytes is promised in its stead.
    fn give_back(&self, span: Interval, promised: u64) {
        let mut state = self.lock();
        state.change_at(span, |group| {
            group.unreserve(span);
            Ok(())
        });
        state.promised_data += promised;
    }
}
