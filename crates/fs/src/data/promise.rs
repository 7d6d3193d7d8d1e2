//! Data space that is promised, and goes back if it is not needed.

use brindle_ondisk::Logical;
use brindle_policy::writeback::DataPlace;
use brindle_tree::{Pool, RangeLengths, ReservedExtent, TreeError};

/// A piece of this length in bytes is long enough to be an extent by itself.
const PIECE_BYTES: u64 = 1 << 20;

/// Free ranges for extents that are written together, in their order: one for all of them if there is one as long. A hard disk
/// seeks for each range.
#[derive(Debug)]
pub(super) struct Places<'p> {
    /// Rest of the range that was taken last.
    rest: Option<ReservedExtent<'p>>,
    /// Bytes of the extents that have no place yet.
    left: u64,
    /// Bytes that are to be written, and have no place yet.
    ahead: u64,
}

impl Places<'_> {
    /// For extents of `all` bytes, behind which more is to be written: `ahead` bytes in all.
    pub(super) fn new(all: u64, ahead: u64) -> Self {
        Self { rest: None, left: all, ahead: ahead.max(all) }
    }
}

/// Data space that is promised, in bytes; what is left of it goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Promise<'p> {
    pool: &'p Pool,
    bytes: u64,
    /// Place from which extents are taken, if there is room.
    place: DataPlace,
}

impl<'p> Promise<'p> {
    /// Takes over what was promised before.
    pub(super) fn of(pool: &'p Pool, bytes: u64) -> Self {
        Self { pool, bytes, place: DataPlace::Bulk }
    }

    /// Grows the reservation to `bytes` in all.
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), TreeError> {
        if bytes > self.bytes {
            self.pool.reserve_data(bytes - self.bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Sets the place from which extents are rather taken. (The reservation is of space anywhere.)
    pub(super) fn set_place(&mut self, place: DataPlace) {
        self.place = place;
    }

    /// Place from which extents are rather taken.
    pub(super) fn place(&self) -> DataPlace {
        self.place
    }

    /// Reserved bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands over up to `bytes` of it to another owner; returns the number of bytes.
    pub(super) fn hand_over(&mut self, bytes: u64) -> u64 {
        let given = bytes.min(self.bytes);
        self.bytes -= given;
        given
    }

    /// Gives back up to `bytes`.
    pub(super) fn release(&mut self, bytes: u64) {
        let given = self.hand_over(bytes);
        if given > 0 {
            self.pool.release_data(given);
        }
    }

    /// Takes back an extent that was taken, and is not used.
    pub(super) fn take_back(&mut self, extent: ReservedExtent<'p>) {
        self.bytes += extent.return_to_promise();
    }

    /// Takes the next place for an extent of `min` to `max` bytes.
    pub(super) fn take_place(
        &mut self,
        places: &mut Places<'p>,
        min: u64,
        max: u64,
    ) -> Result<ReservedExtent<'p>, TreeError> {
        let enough = PIECE_BYTES.min(max).max(min);
        let mut range = match places.rest.take() {
            Some(rest) if rest.length >= enough => rest,
            rest => {
                self.take_back_rest(rest);
                self.take_range(places, min, max)?
            }
        };
        let extent = range.cut_front(range.length.min(max));
        places.left = places.left.saturating_sub(extent.length);
        places.ahead = places.ahead.saturating_sub(extent.length);
        places.rest = Some(range);
        Ok(extent)
    }

    /// Takes back the places that no extent has taken.
    pub(super) fn end_places(&mut self, places: Places<'p>) {
        self.take_back_rest(places.rest);
    }

    /// Takes a range for all extents that have no place yet, of which the next one is of `min` to `max` bytes.
    fn take_range(
        &mut self,
        places: &Places<'p>,
        min: u64,
        max: u64,
    ) -> Result<ReservedExtent<'p>, TreeError> {
        let (all, ahead) = (places.left.max(max), places.ahead.max(max));
        self.grow_to(all)?;
        let lengths = RangeLengths { least: min, first: max, all, ahead };
        let range = self.pool.reserve_range_on(self.place, lengths)?;
        self.bytes -= range.length;
        Ok(range)
    }

    fn take_back_rest(&mut self, rest: Option<ReservedExtent<'p>>) {
        if let Some(rest) = rest.filter(|rest| rest.length > 0) {
            self.take_back(rest);
        }
    }

    /// Takes an extent; the part of it that is not reserved is asked for.
    pub(super) fn take_extent(
        &mut self,
        min: u64,
        max: u64,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'p>, TreeError> {
        self.grow_to(max)?;
        let extent = self.pool.reserve_extent_on(self.place, min, max, hint)?;
        self.bytes -= extent.length;
        Ok(extent)
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}
