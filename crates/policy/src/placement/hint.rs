//! Placement hint that the pool stores for a device (`dev_item.type`).
//!
//! Two numberings share the field: the hints of the allocation hint patches, 0 to 5, of which 0 to 3 are widely used
//! and 4 is an addition of one tree; and the roles of a later proposal, 1 to 128 in ranges, of which we read what
//! cannot be a hint: from 16 on. A number means the one or the other, never both.

use super::PlacementClass;
use std::fmt;
use std::str::FromStr;

/// Placement hint of a device (`dev_item.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AllocationHint {
    /// Data first, metadata if need be (`DATA_PREFERRED`); also what every stock pool says.
    #[default]
    DataPreferred = 0,
    /// Metadata first, data if need be (`METADATA_PREFERRED`).
    MetadataPreferred = 1,
    /// No data ever (`METADATA_ONLY`).
    MetadataOnly = 2,
    /// No metadata ever (`DATA_ONLY`).
    DataOnly = 3,
    /// Nothing new at all: the device is to be emptied.
    NoNewChunks = 4,
    /// Neither: behind devices that prefer what is wanted, before those that prefer the other (the role `none`).
    Indifferent = 80,
}

/// Each hint, and what it is called: as the allocation hint patches do, where they know it.
const NAMES: [(AllocationHint, &str); 6] = [
    (AllocationHint::DataPreferred, "DATA_PREFERRED"),
    (AllocationHint::MetadataPreferred, "METADATA_PREFERRED"),
    (AllocationHint::MetadataOnly, "METADATA_ONLY"),
    (AllocationHint::DataOnly, "DATA_ONLY"),
    (AllocationHint::NoNewChunks, "NO_NEW_CHUNKS"),
    (AllocationHint::Indifferent, "NONE"),
];

impl AllocationHint {
    /// Stored hint; `None` for numbers without a known meaning.
    pub const fn from_disk(number: u64) -> Option<Self> {
        match number {
            0 | 81..=100 => Some(Self::DataPreferred),
            1 | 21..=40 => Some(Self::MetadataPreferred),
            2 | 16..=20 => Some(Self::MetadataOnly),
            3 | 101..=128 => Some(Self::DataOnly),
            4 => Some(Self::NoNewChunks),
            41..=80 => Some(Self::Indifferent),
            _ => None,
        }
    }

    /// The number that is stored.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns true if brindle stores it: roles are only read.
    pub const fn is_stored(self) -> bool {
        self.number() <= Self::NoNewChunks.number()
    }

    /// Class that the hint gives the device; `None` if it says nothing about that.
    pub const fn class(self) -> Option<PlacementClass> {
        match self {
            Self::MetadataPreferred | Self::MetadataOnly => Some(PlacementClass::Fast),
            Self::DataPreferred | Self::DataOnly | Self::Indifferent => Some(PlacementClass::Bulk),
            Self::NoNewChunks => None,
        }
    }

    /// Returns true if it makes the hints of all devices count, rather than their classes.
    pub const fn counts(self) -> bool {
        !matches!(self, Self::DataPreferred | Self::NoNewChunks)
    }
}

impl fmt::Display for AllocationHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(hint, _)| hint == self).map_or("<UNKNOWN>", |(_, name)| name);
        f.write_str(name)
    }
}

/// No hint is called that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownHint;

impl fmt::Display for UnknownHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is one of ")?;
        for (index, (_, name)) in NAMES.iter().filter(|(hint, _)| hint.is_stored()).enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownHint {}

impl FromStr for AllocationHint {
    type Err = UnknownHint;

    fn from_str(text: &str) -> Result<Self, UnknownHint> {
        let text = text.to_ascii_uppercase().replace('-', "_");
        let found = NAMES.iter().find(|(hint, name)| hint.is_stored() && *name == text);
        found.map(|(hint, _)| *hint).ok_or(UnknownHint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_and_roles_are_told_apart() {
        let hint = AllocationHint::from_disk;
        assert_eq!(
            (0..=5).map(|number| hint(number).is_some()).collect::<Vec<_>>(),
            [true, true, true, true, true, false]
        );
        assert_eq!((6..16).filter_map(hint).count(), 0, "neither");
        assert_eq!(
            [20, 40, 80, 100, 120].map(hint),
            [
                Some(AllocationHint::MetadataOnly),
                Some(AllocationHint::MetadataPreferred),
                Some(AllocationHint::Indifferent),
                Some(AllocationHint::DataPreferred),
                Some(AllocationHint::DataOnly),
            ]
        );
        assert_eq!((hint(129), hint(u64::MAX)), (None, None));
    }

    #[test]
    fn names_are_those_of_the_patches() {
        for (hint, name) in NAMES {
            assert_eq!(hint.to_string(), name);
            assert_eq!(name.parse() == Ok(hint), hint.is_stored(), "roles are only read");
            assert_eq!(AllocationHint::from_disk(hint.number().into()), Some(hint));
        }
        assert_eq!("metadata-only".parse(), Ok(AllocationHint::MetadataOnly));
        let error = "fast".parse::<AllocationHint>().expect_err("no hint");
        assert!(error.to_string().ends_with("DATA_ONLY, NO_NEW_CHUNKS"), "{error}");
    }
}
