//! Data space that is promised, and goes back if it is not needed.

use brindle_ondisk::Logical;
use brindle_policy::writeback::DataPlace;
use brindle_tree::{Pool, ReservedExtent, TreeError};

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
