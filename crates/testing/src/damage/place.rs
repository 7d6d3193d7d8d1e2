//! Locations of the copies of an address: a second, plainer computation than `brindle-volume`'s, so that a test of
//! the latter does not stand on itself.

use brindle_ondisk::item::Chunk;
use brindle_ondisk::{Logical, Profile, to_u64, to_usize};

/// Bytes on one stripe before the next one's turn.
const STRIP_BYTES: u64 = 64 << 10;

/// A place on a device of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Id of the device.
    pub devid: u64,
    /// Offset on it, in bytes.
    pub physical: u64,
}

/// A chunk, as the chunk tree of the healthy pool has it.
#[derive(Clone, Debug)]
pub(super) struct ChunkPlace {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) profile: Profile,
    stripes: Vec<Place>,
}

impl ChunkPlace {
    pub(super) fn new(start: Logical, chunk: &Chunk<'_>) -> Self {
        Self {
            start: start.get(),
            length: chunk.header.length.get(),
            profile: chunk.block_group_type().profile().expect("the chunk has one profile"),
            stripes: chunk
                .stripes
                .iter()
                .map(|stripe| Place { devid: stripe.devid.get(), physical: stripe.offset.get() })
                .collect(),
        }
    }

    pub(super) fn holds(&self, logical: Logical) -> bool {
        (self.start..self.start + self.length).contains(&logical.get())
    }

    /// Every copy of an address; with parity, the one place that holds it as it is.
    pub(super) fn copies(&self, logical: Logical) -> Vec<Place> {
        let offset = logical.get() - self.start;
        let (strip, within) = (offset / STRIP_BYTES, offset % STRIP_BYTES);
        let count = to_u64(self.stripes.len());
        let at = |stripe: u64, offset: u64| {
            let place = self.stripes[to_usize(stripe)];
            Place { physical: place.physical + offset, ..place }
        };
        // One strip of the row, of a number of data columns.
        let striped =
            |columns: u64| (strip / columns, strip % columns, strip / columns * STRIP_BYTES + within);
        match self.profile {
            Profile::Single | Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
                (0..count).map(|stripe| at(stripe, offset)).collect()
            }
            Profile::Raid0 => {
                let (_, column, offset) = striped(count);
                vec![at(column, offset)]
            }
            Profile::Raid10 => {
                let (_, column, offset) = striped(count / 2);
                vec![at(column * 2, offset), at(column * 2 + 1, offset)]
            }
            Profile::Raid5 | Profile::Raid6 => {
                let parities = if self.profile == Profile::Raid5 { 1 } else { 2 };
                let (row, column, offset) = striped(count - parities);
                vec![at((column + row) % count, offset)]
            }
        }
    }

    /// Number of bytes from an address on that lie together.
    pub(super) fn contiguous(&self, logical: Logical) -> u64 {
        STRIP_BYTES - (logical.get() - self.start) % STRIP_BYTES
    }

    pub(super) fn has_parity(&self) -> bool {
        matches!(self.profile, Profile::Raid5 | Profile::Raid6)
    }
}
