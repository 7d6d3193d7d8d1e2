//! Quota groups: their ids, and the bits of their items.

use crate::RootId;
use bitflags::bitflags;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Position of the level in a group's id (`BTRFS_QGROUP_LEVEL_SHIFT`).
const LEVEL_SHIFT: u32 = 48;

/// Id of a quota group: level and number, written as `1/100`. The group of a subvolume has level 0 and its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QgroupId(u64);

/// A word that is no id of a quota group.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{0}' is no quota group: LEVEL/NUMBER, as 1/100, or the id of a subvolume")]
pub struct BadQgroupId(String);

bitflags! {
    /// State of the quota tree (`BTRFS_QGROUP_STATUS_FLAG_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QgroupStatusFlags: u64 {
        /// Quotas are on.
        const ON = 1;
        /// A rescan is under way.
        const RESCAN = 1 << 1;
        /// The numbers are wrong.
        const INCONSISTENT = 1 << 2;
        /// Simple quotas.
        const SIMPLE = 1 << 3;
    }
}

bitflags! {
    /// Limits of a group that are set (`BTRFS_QGROUP_LIMIT_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QgroupLimitFlags: u64 {
        /// Most referenced.
        const MAX_RFER = 1;
        /// Most exclusive.
        const MAX_EXCL = 1 << 1;
        /// Reserved, referenced.
        const RSV_RFER = 1 << 2;
        /// Reserved, exclusive.
        const RSV_EXCL = 1 << 3;
        /// Referenced bytes count after compression.
        const RFER_CMPR = 1 << 4;
        /// Exclusive bytes count after compression.
        const EXCL_CMPR = 1 << 5;
    }
}

impl QgroupId {
    /// The id that a key or a message has.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The id as a number: level in the upper 16 bits.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The group of a subvolume.
    pub const fn of_subvolume(subvolume: RootId) -> Self {
        Self(subvolume.get())
    }

    /// Its level; 0 for a subvolume's group.
    pub const fn level(self) -> u64 {
        self.0 >> LEVEL_SHIFT
    }

    /// Its number within the level.
    pub const fn number(self) -> u64 {
        self.0 & ((1 << LEVEL_SHIFT) - 1)
    }
}

impl fmt::Display for QgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.level(), self.number())
    }
}

impl FromStr for QgroupId {
    type Err = BadQgroupId;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let bad = || BadQgroupId(word.to_owned());
        let (level, number) = word.split_once('/').unwrap_or(("0", word));
        let level: u16 = level.parse().map_err(|_| bad())?;
        let number: u64 = number.parse().map_err(|_| bad())?;
        if number >> LEVEL_SHIFT != 0 {
            return Err(bad());
        }
        Ok(Self(u64::from(level) << LEVEL_SHIFT | number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_level_and_number() {
        let id = QgroupId::new(1 << 48 | 100);
        assert_eq!((id.level(), id.number(), id.to_string()), (1, 100, "1/100".to_owned()));
        assert_eq!("1/100".parse(), Ok(id));
        assert_eq!("257".parse(), Ok(QgroupId::of_subvolume(RootId::new(257))));
        assert_eq!("0/257".parse(), Ok(QgroupId::new(257)));
        for word in ["", "/", "1/", "x/5", "70000/1", "1/281474976710656", "-1/5"] {
            assert!(word.parse::<QgroupId>().is_err(), "{word}");
        }
    }
}
