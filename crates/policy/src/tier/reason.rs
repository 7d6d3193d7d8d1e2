//! Reasons for which data of a file lies on devices of one class or the other.

use crate::placement::{DataTier, PlacementClass};
use std::fmt;

/// Facts of a file and of a chunk that a part of it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The chunk is of the fast tier of data: on fast devices alone, or with a copy on each where they are fewer than copies.
    pub is_fast: bool,
    /// Rank of the chunk's slowest device; of the fast tier, of its slowest fast one.
    pub rank: u8,
    /// The chunk is of the write-back tier.
    pub is_write_back: bool,
    /// Another file, or a snapshot, has the extent as well.
    pub is_shared: bool,
    /// Mark of the file.
    pub mark: Option<DataTier>,
    /// The file is not larger than small files are.
    pub is_small: bool,
}

/// Reason for a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LocationReason {
    /// Data of no other wish, on bulk devices.
    Data,
    /// The file is marked so.
    Marked,
    /// The file is small.
    Small,
    /// Data that waits to be destaged.
    WriteBack,
    /// Data on another class that is shared: it moves when all that have it agree.
    Shared,
    /// Data on another class: its own was full, or the wish is newer than the data.
    Spilled,
    /// The pool makes no difference, or the kernel places its data.
    NoTiers,
}

impl LocationReason {
    /// Every reason.
    pub const ALL: [Self; 7] =
        [Self::Data, Self::Marked, Self::Small, Self::WriteBack, Self::Shared, Self::Spilled, Self::NoTiers];

    /// Name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Marked => "mark",
            Self::Small => "small",
            Self::WriteBack => "write_back",
            Self::Shared => "shared",
            Self::Spilled => "spilled",
            Self::NoTiers => "no_tiers",
        }
    }
}

impl fmt::Display for LocationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data of large files",
            Self::Marked => "marked by user.brindle.tier",
            Self::Small => "small files",
            Self::WriteBack => "waits in the write-back tier to be destaged",
            Self::Shared => "on another class, shared with a snapshot or clone",
            Self::Spilled => "on another class: its own was full, or the wish is newer",
            Self::NoTiers => "no tiers of data",
        })
    }
}

impl Location {
    /// Tier that the file asks for.
    fn wish(&self) -> DataTier {
        match (self.mark, self.is_small) {
            (Some(tier), _) => tier,
            (None, true) => PlacementClass::Fast.into(),
            (None, false) => PlacementClass::Bulk.into(),
        }
    }

    /// Reason for the copy on a device of this class. Where a chunk of the fast tier has copies on bulk devices as well, data for bulk
    /// devices is in its place there.
    pub fn reason_of_copy(&self, side: PlacementClass, rank: u8) -> LocationReason {
        match self.is_fast && side == PlacementClass::Bulk && self.wish().side == side {
            true => Self { is_fast: false, rank, ..*self }.reason(),
            false => self.reason(),
        }
    }

    /// Reason for it.
    pub fn reason(&self) -> LocationReason {
        let wish = self.wish();
        let is_right = self.is_fast == (wish.side == PlacementClass::Fast)
            && wish.rank.is_none_or(|rank| rank == self.rank);
        match (self.mark, is_right) {
            _ if self.is_write_back => LocationReason::WriteBack,
            (Some(_), true) => LocationReason::Marked,
            (None, true) if self.is_fast => LocationReason::Small,
            (None, true) => LocationReason::Data,
            (_, false) if self.is_shared => LocationReason::Shared,
            (_, false) => LocationReason::Spilled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_ON_BULK: Location = Location {
        is_fast: false,
        rank: 0,
        is_write_back: false,
        is_shared: false,
        mark: None,
        is_small: false,
    };

    #[test]
    fn each_location_has_its_reason() {
        let fast = Location { is_fast: true, ..LARGE_ON_BULK };
        let marked = Some(PlacementClass::Fast.into());
        let smr = Some(DataTier { side: PlacementClass::Bulk, rank: Some(3) });
        for (location, reason) in [
            (LARGE_ON_BULK, LocationReason::Data),
            (Location { is_small: true, ..fast }, LocationReason::Small),
            (Location { mark: marked, ..fast }, LocationReason::Marked),
            (
                Location { mark: Some(PlacementClass::Bulk.into()), is_small: true, ..LARGE_ON_BULK },
                LocationReason::Marked,
            ),
            (Location { mark: smr, rank: 3, ..LARGE_ON_BULK }, LocationReason::Marked),
            (Location { mark: smr, rank: 2, ..LARGE_ON_BULK }, LocationReason::Spilled),
            (Location { is_write_back: true, ..fast }, LocationReason::WriteBack),
            (Location { is_shared: true, ..fast }, LocationReason::Shared),
            (fast, LocationReason::Spilled),
            (Location { mark: marked, ..LARGE_ON_BULK }, LocationReason::Spilled),
            (Location { is_small: true, ..LARGE_ON_BULK }, LocationReason::Spilled),
        ] {
            assert_eq!(location.reason(), reason, "{location:?}");
        }
    }

    #[test]
    fn data_for_bulk_devices_is_in_its_place_on_the_bulk_copy_of_a_split_chunk() {
        let fast = Location { is_fast: true, ..LARGE_ON_BULK };
        let marked = |side: PlacementClass| Location { mark: Some(side.into()), ..fast };
        let smr = Location { mark: Some(DataTier { side: PlacementClass::Bulk, rank: Some(3) }), ..fast };
        for (location, side, rank, reason) in [
            (fast, PlacementClass::Bulk, 1, LocationReason::Data),
            (fast, PlacementClass::Fast, 0, LocationReason::Spilled),
            (marked(PlacementClass::Bulk), PlacementClass::Bulk, 1, LocationReason::Marked),
            (marked(PlacementClass::Bulk), PlacementClass::Fast, 0, LocationReason::Spilled),
            (smr, PlacementClass::Bulk, 3, LocationReason::Marked),
            (smr, PlacementClass::Bulk, 2, LocationReason::Spilled),
            (marked(PlacementClass::Fast), PlacementClass::Bulk, 1, LocationReason::Marked),
            (Location { is_small: true, ..fast }, PlacementClass::Bulk, 1, LocationReason::Small),
            (LARGE_ON_BULK, PlacementClass::Bulk, 0, LocationReason::Data),
        ] {
            assert_eq!(location.reason_of_copy(side, rank), reason, "{location:?} on {side} {rank}");
        }
    }

    #[test]
    fn names_and_words_differ() {
        let names: std::collections::BTreeSet<_> =
            LocationReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), LocationReason::ALL.len());
        assert!(LocationReason::ALL.iter().all(|reason| !reason.to_string().is_empty()));
    }
}
