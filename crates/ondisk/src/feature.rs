//! Feature bits, which decide whether a pool may be mounted at all.

use bitflags::bitflags;

bitflags! {
    /// Features without which the pool can't even be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Incompat: u64 {
        /// Back references of both kinds; every pool since 2009.
        const MIXED_BACKREF = 1 << 0;
        /// A default subvolume other than the top level has been set.
        const DEFAULT_SUBVOL = 1 << 1;
        /// Data and metadata share block groups.
        const MIXED_GROUPS = 1 << 2;
        /// Something is compressed with LZO.
        const COMPRESS_LZO = 1 << 3;
        /// Something is compressed with zstd.
        const COMPRESS_ZSTD = 1 << 4;
        /// Nodes are larger than a page.
        const BIG_METADATA = 1 << 5;
        /// Extended inode references.
        const EXTENDED_IREF = 1 << 6;
        /// RAID5 or RAID6 chunks.
        const RAID56 = 1 << 7;
        /// Tree blocks have `METADATA_ITEM`s.
        const SKINNY_METADATA = 1 << 8;
        /// Holes have no file extent.
        const NO_HOLES = 1 << 9;
        /// Metadata carries a UUID other than the pool's.
        const METADATA_UUID = 1 << 10;
        /// RAID1 with three or four copies.
        const RAID1C34 = 1 << 11;
        /// Zoned devices.
        const ZONED = 1 << 12;
        /// Extent tree, version 2.
        const EXTENT_TREE_V2 = 1 << 13;
        /// RAID stripe tree.
        const RAID_STRIPE_TREE = 1 << 14;
        /// Simple quotas.
        const SIMPLE_QUOTA = 1 << 16;
        /// Remap tree.
        const REMAP_TREE = 1 << 17;
    }

    /// Features without which the pool can be read but not written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CompatRo: u64 {
        /// There is a free space tree.
        const FREE_SPACE_TREE = 1 << 0;
        /// The free space tree can be trusted.
        const FREE_SPACE_TREE_VALID = 1 << 1;
        /// A file has fs-verity.
        const VERITY = 1 << 2;
        /// Block group items live in a tree of their own.
        const BLOCK_GROUP_TREE = 1 << 3;
    }
}

/// Features that brindle knows by name and can neither read nor write.
pub const UNSUPPORTED_INCOMPAT: Incompat = Incompat::ZONED
    .union(Incompat::EXTENT_TREE_V2)
    .union(Incompat::RAID_STRIPE_TREE)
    .union(Incompat::REMAP_TREE);

impl Incompat {
    /// The bits, by name or by number, that keep brindle from reading or writing the pool.
    pub fn refused(self) -> Vec<String> {
        names(self & (UNSUPPORTED_INCOMPAT | Self::from_bits_retain(!Self::all().bits())))
    }

    /// Every bit that is set, by name or by number.
    pub fn names(self) -> Vec<String> {
        names(self)
    }
}

impl CompatRo {
    /// Every bit that is set, by name or by number.
    pub fn names(self) -> Vec<String> {
        names(self)
    }

    /// The bits, by number, that keep brindle from writing the pool.
    pub fn refused_for_writing(self) -> Vec<String> {
        names(self.difference(Self::all()))
    }

    /// Returns true if a bit forbids writing.
    pub fn forbids_writing(self) -> bool {
        !self.refused_for_writing().is_empty()
    }
}

/// The names of the set bits; a bit without a name is shown as `unknown flag: 0x…`.
fn names<F: bitflags::Flags<Bits = u64> + Copy>(flags: F) -> Vec<String> {
    let bits = flags.bits();
    let known = F::FLAGS.iter().filter(|flag| bits & flag.value().bits() != 0);
    let mut names: Vec<String> = known.map(|flag| flag.name().to_owned()).collect();
    let unknown = bits & !F::all().bits();
    let unknown = (0..64).map(|shift| 1u64 << shift).filter(|bit| unknown & bit != 0);
    names.extend(unknown.map(|bit| format!("unknown flag: {bit:#x}")));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_features_are_named() {
        let flags = Incompat::from_bits_retain(
            (Incompat::MIXED_BACKREF | Incompat::ZONED | Incompat::REMAP_TREE).bits() | 1 << 40,
        );
        assert_eq!(flags.refused(), ["ZONED", "REMAP_TREE", "unknown flag: 0x10000000000"]);
        let readable = Incompat::RAID56 | Incompat::SIMPLE_QUOTA;
        assert!(readable.refused().is_empty());
    }

    #[test]
    fn an_unknown_compat_ro_bit_forbids_writing() {
        assert!(!CompatRo::all().forbids_writing());
        assert!(CompatRo::from_bits_retain(1 << 9).forbids_writing());
    }
}
