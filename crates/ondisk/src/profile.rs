//! Block group types and the table of RAID profiles.

use bitflags::bitflags;
use std::fmt;

bitflags! {
    /// Content and profile of a chunk (`type` of a chunk, `flags` of a block group).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct BlockGroupType: u64 {
        /// Holds data.
        const DATA = 1 << 0;
        /// Holds the chunk tree.
        const SYSTEM = 1 << 1;
        /// Holds the other trees.
        const METADATA = 1 << 2;
        /// Striped without redundancy.
        const RAID0 = 1 << 3;
        /// Two copies on two devices.
        const RAID1 = 1 << 4;
        /// Two copies, on one device if need be.
        const DUP = 1 << 5;
        /// Striped over mirrored pairs.
        const RAID10 = 1 << 6;
        /// Striped with one parity.
        const RAID5 = 1 << 7;
        /// Striped with two parities.
        const RAID6 = 1 << 8;
        /// Three copies on three devices.
        const RAID1C3 = 1 << 9;
        /// Four copies on four devices.
        const RAID1C4 = 1 << 10;
    }
}

/// Layout of a chunk's range over its stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Profile {
    /// One copy on one device.
    Single,
    /// Two copies, on one device if need be.
    Dup,
    /// Striped without redundancy.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
    /// Striped over mirrored pairs.
    Raid10,
    /// Striped with one parity.
    Raid5,
    /// Striped with two parities.
    Raid6,
}

/// The geometry of a profile (`btrfs_raid_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileAttributes {
    /// The profile.
    pub profile: Profile,
    /// Its name as mkfs.btrfs takes it.
    pub name: &'static str,
    /// Its bit in the block group type; none for `single`.
    pub flag: BlockGroupType,
    /// Stripes that hold the same data and follow each other.
    pub sub_stripes: u16,
    /// Stripes of a chunk on one device.
    pub dev_stripes: u16,
    /// Devices at the most for one chunk; 0 for as many as there are.
    pub devs_max: u16,
    /// Devices at the least.
    pub devs_min: u16,
    /// Devices that may be missing with every byte still readable.
    pub tolerated_failures: u16,
    /// The number of devices is a multiple of this.
    pub devs_increment: u16,
    /// Copies of the data.
    pub ncopies: u16,
    /// Stripes that hold parity.
    pub nparity: u16,
}

impl Profile {
    /// The geometry of every profile.
    #[rustfmt::skip]
    pub const TABLE: [ProfileAttributes; 9] = [
        //  profile           name       flag                    sub dev max min tol inc cop par
        row(Profile::Single,  "single",  BlockGroupType::empty(), [1, 1, 1, 1, 0, 1, 1, 0]),
        row(Profile::Dup,     "dup",     BlockGroupType::DUP,     [1, 2, 1, 1, 0, 1, 2, 0]),
        row(Profile::Raid0,   "raid0",   BlockGroupType::RAID0,   [1, 1, 0, 1, 0, 1, 1, 0]),
        row(Profile::Raid1,   "raid1",   BlockGroupType::RAID1,   [1, 1, 2, 2, 1, 2, 2, 0]),
        row(Profile::Raid1c3, "raid1c3", BlockGroupType::RAID1C3, [1, 1, 3, 3, 2, 3, 3, 0]),
        row(Profile::Raid1c4, "raid1c4", BlockGroupType::RAID1C4, [1, 1, 4, 4, 3, 4, 4, 0]),
        row(Profile::Raid10,  "raid10",  BlockGroupType::RAID10,  [2, 1, 0, 2, 1, 2, 2, 0]),
        row(Profile::Raid5,   "raid5",   BlockGroupType::RAID5,   [1, 1, 0, 2, 1, 1, 1, 1]),
        row(Profile::Raid6,   "raid6",   BlockGroupType::RAID6,   [1, 1, 0, 3, 2, 1, 1, 2]),
    ];

    /// The geometry.
    pub fn attributes(self) -> &'static ProfileAttributes {
        let row = Self::TABLE.iter().find(|row| row.profile == self);
        row.unwrap_or(&Self::TABLE[0])
    }

    /// Returns true if lost stripes are rebuilt from parity.
    pub fn has_parity(self) -> bool {
        self.attributes().nparity > 0
    }
}

const fn row(
    profile: Profile,
    name: &'static str,
    flag: BlockGroupType,
    numbers: [u16; 8],
) -> ProfileAttributes {
    let [sub_stripes, dev_stripes, devs_max, devs_min, tolerated_failures, devs_increment, ncopies, nparity] =
        numbers;
    ProfileAttributes {
        profile,
        name,
        flag,
        sub_stripes,
        dev_stripes,
        devs_max,
        devs_min,
        tolerated_failures,
        devs_increment,
        ncopies,
        nparity,
    }
}

impl BlockGroupType {
    /// The bits that say what a chunk holds.
    pub const CONTENT: Self = Self::DATA.union(Self::SYSTEM).union(Self::METADATA);
    /// The bits that say how it is laid out.
    pub const PROFILE: Self = Self::all().difference(Self::CONTENT);

    /// The profile, or `None` if more than one bit claims to be it.
    pub fn profile(self) -> Option<Profile> {
        let flag = self & Self::PROFILE;
        Profile::TABLE.iter().find(|row| row.flag == flag).map(|row| row.profile)
    }

    /// Name of the content as in `btrfs filesystem df`: `Data`, `Metadata`, `System`, `Data+Metadata`.
    pub fn content_name(self) -> &'static str {
        match (self.contains(Self::DATA), self.contains(Self::METADATA), self.contains(Self::SYSTEM)) {
            (true, true, _) => "Data+Metadata",
            (true, false, _) => "Data",
            (false, true, _) => "Metadata",
            (false, false, true) => "System",
            (false, false, false) => "Unknown",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.attributes().name)
    }
}

/// The form of `dump-tree`: `METADATA|RAID1`.
impl fmt::Display for BlockGroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter_names().map(|(name, _)| name).collect();
        f.write_str(&names.join("|"))?;
        let unknown = self.bits() & !Self::all().bits();
        match (unknown, self.intersects(Self::PROFILE)) {
            (0, true) => Ok(()),
            (0, false) => f.write_str("|single"),
            (unknown, _) => write!(f, "|{unknown:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_its_row() {
        for row in &Profile::TABLE {
            assert_eq!(row.profile.attributes().name, row.name);
            assert_eq!((BlockGroupType::DATA | row.flag).profile(), Some(row.profile));
        }
    }

    #[test]
    fn two_profiles_at_once_are_none() {
        assert_eq!((BlockGroupType::RAID1 | BlockGroupType::RAID5).profile(), None);
    }

    #[test]
    fn display_is_that_of_dump_tree() {
        assert_eq!((BlockGroupType::METADATA | BlockGroupType::DUP).to_string(), "METADATA|DUP");
        assert_eq!(BlockGroupType::DATA.to_string(), "DATA|single");
    }
}
