//! Places for data, one behind the other: out of windows of reserved space, so that few are asked for.

use crate::error::FsError;
use brindle_ondisk::Logical;
use brindle_policy::placement::DataTier;
use brindle_tree::{Pool, ReservedExtent, TreeError};

/// Bytes that are reserved at a time.
const WINDOW_BYTES: u64 = 64 << 20;

/// Location of the next data.
#[derive(Debug)]
pub(super) struct DataSpace<'p> {
    pool: &'p Pool,
    tier: DataTier,
    sector: u64,
    window: Option<ReservedExtent<'p>>,
    /// Approximate upper bound on the further data, in bytes.
    expected: u64,
    hint: Option<Logical>,
}

/// A place for data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: Logical,
    pub(super) length: u64,
    /// True if it may not be one extent with the data before, though it follows.
    pub(super) is_fresh: bool,
}

impl<'p> DataSpace<'p> {
    pub(super) fn new(pool: &'p Pool, tier: DataTier, expected: u64) -> Self {
        let sector = pool.volume().tree_context().sectorsize.into();
        Self { pool, tier, sector, window: None, expected, hint: None }
    }

    pub(super) fn tier(&self) -> DataTier {
        self.tier
    }

    /// A place for `min` to `max` bytes, as large as there is.
    pub(super) fn take(&mut self, min: u64, max: u64) -> Result<Place, FsError> {
        let has_room = self.window.as_ref().is_some_and(|window| window.length >= min);
        if !has_room {
            // What is left of the window goes back.
            self.window = None;
            self.window = Some(self.reserve(min, max)?);
        }
        let window = self.window.as_mut().expect("a window was reserved");
        let length = window.length.min(max);
        let start = window.split_front(length);
        self.hint = Some(start + length);
        self.expected = self.expected.saturating_sub(length);
        Ok(Place { start, length, is_fresh: !has_room })
    }

    fn reserve(&self, min: u64, max: u64) -> Result<ReservedExtent<'p>, TreeError> {
        let wanted = self.expected.max(max).min(WINDOW_BYTES).max(min).next_multiple_of(self.sector);
        match self.reserve_exactly(min, wanted) {
            // With less than wanted, there may be enough for this piece.
            Err(TreeError::NoSpace(_)) if wanted > min => self.reserve_exactly(min, min),
            reserved => reserved,
        }
    }

    fn reserve_exactly(&self, min: u64, max: u64) -> Result<ReservedExtent<'p>, TreeError> {
        self.pool.reserve_data(max)?;
        match self.pool.reserve_extent_on(self.tier.into(), min, max, self.hint) {
            Ok(extent) => {
                self.pool.release_data(max - extent.length);
                Ok(extent)
            }
            Err(error) => {
                self.pool.release_data(max);
                Err(error)
            }
        }
    }
}
