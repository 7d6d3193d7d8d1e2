//! RAID geometry: where in its stripes a chunk keeps what.
//!
//! Striped profiles deal strips of 64 KiB to their stripes. A *row* is one strip of each stripe; a *column*
//! counts the strips of data within a row. With parity, a row of `k` stripes holds `k - nparity` columns,
//! then P, then Q, and all of it is rotated by the row's number: column `c` of row `r` lies on stripe
//! `(c + r) mod k`.

use crate::parity::{MAX_DATA_STRIPES, Recovery};
use brindle_ondisk::item::Chunk;
use brindle_ondisk::{Defect, Profile};

/// Bytes on one stripe before the next one's turn (`BTRFS_STRIPE_LEN`).
pub(crate) const STRIP_BYTES: u64 = 64 << 10;

/// The geometry of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    profile: Profile,
    stripes: u64,
    /// Strips of data in a row; 1 where there are no rows.
    columns: u64,
}

/// A part of a chunk that is contiguous on every stripe that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) row: u64,
    pub(crate) column: u64,
    /// Offset in the stripe; the parity of the same bytes has the same offset in its stripe.
    pub(crate) stripe_offset: u64,
    pub(crate) length: u64,
}

/// One way to obtain a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Mirror on this stripe.
    Direct(usize),
    /// Rebuild from other stripes.
    Rebuild(Recovery),
}

impl Layout {
    /// The geometry of a chunk, if it has one.
    pub(crate) fn new(chunk: &Chunk<'_>) -> Result<Self, Defect> {
        let kind = chunk.block_group_type();
        let Some(profile) = kind.profile() else {
            return Err(Defect::new("more than one profile in chunk type", kind.bits()));
        };
        let attributes = profile.attributes();
        let stripes = chunk.stripes.len() as u64;
        let refuse = |why| Err(Defect::new(why, stripes));
        let columns = match profile {
            Profile::Single if stripes == 1 => 1,
            Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4
                if stripes == u64::from(attributes.ncopies) =>
            {
                1
            }
            Profile::Raid0 if stripes > 0 => stripes,
            Profile::Raid10 if stripes > 0 && stripes % 2 == 0 => stripes / 2,
            Profile::Raid5 | Profile::Raid6 if stripes > u64::from(attributes.nparity) => {
                stripes - u64::from(attributes.nparity)
            }
            _ => return refuse("number of stripes does not suit the chunk's profile"),
        };
        if profile == Profile::Raid6 && columns > MAX_DATA_STRIPES {
            return refuse("more stripes than raid6 can tell apart");
        }
        let (length, strip) = (chunk.header.length.get(), chunk.header.stripe_len.get());
        if length == 0 || length % columns != 0 {
            return Err(Defect::new("length of chunk is no multiple of its stripes", length));
        }
        if strip != STRIP_BYTES {
            return Err(Defect::expected("stripe_len of chunk", STRIP_BYTES, strip));
        }
        Ok(Self { profile, stripes, columns })
    }

    /// The longest run at an offset of the chunk; the chunk's own end is not regarded.
    pub(crate) fn run_at(&self, offset: u64) -> Run {
        if !self.has_rows() {
            return Run { row: 0, column: 0, stripe_offset: offset, length: u64::MAX };
        }
        let (strip, within) = (offset / STRIP_BYTES, offset % STRIP_BYTES);
        let (row, column) = (strip / self.columns, strip % self.columns);
        Run { row, column, stripe_offset: row * STRIP_BYTES + within, length: STRIP_BYTES - within }
    }

    /// Length of the device extents of a chunk of this length, in bytes.
    pub(crate) fn stripe_length(&self, chunk_length: u64) -> u64 {
        chunk_length / self.columns
    }

    /// Number of ways to obtain any run.
    pub(crate) fn ways(&self) -> usize {
        match self.profile {
            Profile::Single | Profile::Raid0 => 1,
            Profile::Raid5 => 2,
            // Direct, from P, from Q, and for each of the other columns from both.
            Profile::Raid6 => self.to_index(self.columns + 2),
            _ => usize::from(self.profile.attributes().ncopies),
        }
    }

    /// A way to obtain a run; those that there are not are the last.
    pub(crate) fn way(&self, run: &Run, number: usize) -> Way {
        match (self.profile, number) {
            (Profile::Single | Profile::Raid0, _) => Way::Direct(self.to_index(run.column)),
            (Profile::Raid10, _) => Way::Direct(self.to_index(run.column * 2) + number.min(1)),
            (Profile::Raid5 | Profile::Raid6, 0) => Way::Direct(self.stripe_of_column(run, run.column)),
            (Profile::Raid5, _) | (Profile::Raid6, 1) => Way::Rebuild(Recovery::FromP),
            (Profile::Raid6, 2) => Way::Rebuild(Recovery::FromQ),
            (Profile::Raid6, _) => {
                let other = (number as u64 - 3).min(self.columns.saturating_sub(2));
                let other = other + u64::from(other >= run.column);
                Way::Rebuild(Recovery::FromBoth { other })
            }
            _ => Way::Direct(number.min(self.to_index(self.stripes - 1))),
        }
    }

    /// The stripes, each with its factor, that add up to a run rebuilt.
    pub(crate) fn sources(&self, run: &Run, recovery: Recovery) -> impl Iterator<Item = (usize, u8)> + use<> {
        let (layout, run) = (*self, *run);
        let lost = run.column;
        let factor = move |column| match column {
            column if column < layout.columns => recovery.data_factor(lost, column),
            column if column == layout.columns => recovery.p_factor(lost),
            _ => recovery.q_factor(lost),
        };
        let all =
            (0..self.stripes).map(move |column| (layout.stripe_of_column(&run, column), factor(column)));
        all.filter(|(_, factor)| *factor != 0)
    }

    /// The stripes that a recovery takes to be lost.
    pub(crate) fn lost_stripes(&self, run: &Run, recovery: Recovery) -> impl Iterator<Item = usize> + use<> {
        let second = match recovery {
            Recovery::FromP => None,
            Recovery::FromQ => Some(self.columns),
            Recovery::FromBoth { other } => Some(other),
        };
        let (layout, run) = (*self, *run);
        [Some(run.column), second].into_iter().flatten().map(move |c| layout.stripe_of_column(&run, c))
    }

    /// Returns true if every byte can still be had when some stripes are lost.
    pub(crate) fn survives(&self, lost: impl Fn(usize) -> bool) -> bool {
        let stripes = self.to_index(self.stripes);
        let count = (0..stripes).filter(|stripe| lost(*stripe)).count();
        match self.profile {
            Profile::Single | Profile::Raid0 => count == 0,
            Profile::Raid5 | Profile::Raid6 => count <= usize::from(self.profile.attributes().nparity),
            Profile::Raid10 => (0..stripes).step_by(2).all(|first| !lost(first) || !lost(first + 1)),
            _ => count < stripes,
        }
    }

    /// Run on a stripe from an offset on, within a strip; parity counts as the columns that follow the data.
    pub(crate) fn run_on(&self, stripe: usize, stripe_offset: u64, length: u64) -> Run {
        let stripe = stripe as u64;
        let row = stripe_offset / STRIP_BYTES;
        let column = match self.profile {
            Profile::Raid5 | Profile::Raid6 => (stripe + self.stripes - row % self.stripes) % self.stripes,
            Profile::Raid10 => stripe / 2,
            Profile::Raid0 => stripe,
            _ => 0,
        };
        Run { row, column, stripe_offset, length }
    }

    /// Offset in the chunk of the data at an offset of a stripe; `None` for parity.
    pub(crate) fn offset_on(&self, stripe: usize, stripe_offset: u64) -> Option<u64> {
        if !self.has_rows() {
            return Some(stripe_offset);
        }
        let run = self.run_on(stripe, stripe_offset, 1);
        let strip = run.row * self.columns + run.column;
        (run.column < self.columns).then_some(strip * STRIP_BYTES + stripe_offset % STRIP_BYTES)
    }

    /// The part of a chunk that all the rows of a part of a stripe hold: its offset and its length.
    pub(crate) fn span_of(&self, stripe_offset: u64, length: u64) -> (u64, u64) {
        if !self.has_rows() {
            return (stripe_offset, length);
        }
        let (first, end) = (stripe_offset / STRIP_BYTES, (stripe_offset + length).div_ceil(STRIP_BYTES));
        let row_bytes = self.columns * STRIP_BYTES;
        (first * row_bytes, (end - first) * row_bytes)
    }

    /// Returns true if strips are dealt to several stripes.
    fn has_rows(&self) -> bool {
        self.columns > 1 || self.profile.has_parity()
    }

    /// Returns true if the same bytes lie on several stripes.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.profile.attributes().ncopies > 1
    }

    /// Returns true if lost stripes are rebuilt from parity.
    pub(crate) fn has_parity(&self) -> bool {
        self.profile.has_parity()
    }

    /// Strips of data in a row.
    pub(crate) fn columns(&self) -> u64 {
        self.columns
    }

    /// Strips of parity in a row.
    pub(crate) fn parities(&self) -> u64 {
        self.profile.attributes().nparity.into()
    }

    /// Stripe of a column of a row; with parity, P and Q count as the columns that follow the data.
    pub(crate) fn stripe_in_row(&self, row: u64, column: u64) -> usize {
        self.to_index((column + row % self.stripes) % self.stripes)
    }

    fn stripe_of_column(&self, run: &Run, column: u64) -> usize {
        self.stripe_in_row(run.row, column)
    }

    fn to_index(self, stripe: u64) -> usize {
        debug_assert!(stripe <= self.stripes, "stripes are counted with 16 bits on disk");
        brindle_ondisk::to_usize(stripe)
    }
}

/// Bytes of a chunk that are contiguous on each stripe that holds them as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripePlaces {
    /// Numbers of the stripes, which are mirrors of each other.
    pub stripes: Vec<usize>,
    /// Offset in each of them, in bytes.
    pub stripe_offset: u64,
}

/// Places of the byte at an offset of a chunk; parity is none.
///
/// # Errors
/// A chunk without a geometry.
pub fn stripe_places(chunk: &Chunk<'_>, offset: u64) -> Result<StripePlaces, Defect> {
    let layout = Layout::new(chunk)?;
    let run = layout.run_at(offset);
    let copies = usize::from(layout.profile.attributes().ncopies);
    let stripe = |number| match layout.way(&run, number) {
        Way::Direct(stripe) => Some(stripe),
        Way::Rebuild(_) => None,
    };
    let stripes = (0..copies).filter_map(stripe).collect();
    Ok(StripePlaces { stripes, stripe_offset: run.stripe_offset })
}

/// Stripes of one row of a chunk with parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityStripes {
    /// Those with data, in the order of the columns.
    pub data: Vec<usize>,
    /// Those with P and Q.
    pub parity: Vec<usize>,
}

/// The row that holds the byte at an offset of a chunk; none without parity.
///
/// # Errors
/// A chunk without a geometry.
pub fn parity_stripes(chunk: &Chunk<'_>, offset: u64) -> Result<Option<ParityStripes>, Defect> {
    let layout = Layout::new(chunk)?;
    if !layout.has_parity() {
        return Ok(None);
    }
    let row = layout.run_at(offset).row;
    let stripe = |column| layout.stripe_in_row(row, column);
    let data = (0..layout.columns).map(stripe).collect();
    let parity = (layout.columns..layout.stripes).map(stripe).collect();
    Ok(Some(ParityStripes { data, parity }))
}

/// Length of the device extents of a chunk, in bytes.
///
/// # Errors
/// A chunk without a geometry.
pub fn device_extent_length(chunk: &Chunk<'_>) -> Result<u64, Defect> {
    Ok(Layout::new(chunk)?.stripe_length(chunk.header.length.get()))
}

#[cfg(test)]
mod tests;
