//! Addresses and identifiers, each a type of its own: on disk and in memory the same eight little-endian
//! bytes, with only the arithmetic that means something.

use std::fmt;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(transparent)]
        pub struct $name(U64);

        impl $name {
            /// Marks a plain number as one of these.
            pub const fn new(value: u64) -> Self {
                Self(U64::new(value))
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u64(self.get());
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.get().cmp(&other.get())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.get())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.get(), f)
            }
        }
    };
}

macro_rules! address {
    ($name:ident) => {
        impl $name {
            /// The address `length` bytes on, or `None` past the end of the 64-bit space.
            pub const fn checked_add(self, length: u64) -> Option<Self> {
                match self.get().checked_add(length) {
                    Some(sum) => Some(Self::new(sum)),
                    None => None,
                }
            }

            /// Distance in bytes from `start`, or `None` if `self` lies before it.
            pub const fn distance_from(self, start: Self) -> Option<u64> {
                self.get().checked_sub(start.get())
            }

            /// Returns true if the address is a multiple of `alignment` bytes.
            pub const fn is_aligned(self, alignment: u64) -> bool {
                self.get() % alignment == 0
            }
        }

        impl std::ops::Add<u64> for $name {
            type Output = Self;

            fn add(self, length: u64) -> Self {
                self.checked_add(length).expect("address stays within the 64-bit space")
            }
        }

        impl std::ops::Sub<$name> for $name {
            type Output = u64;

            fn sub(self, start: $name) -> u64 {
                self.distance_from(start).expect("the subtracted address lies before")
            }
        }
    };
}

identifier! {
    /// A byte address in the logical space; a chunk maps it to stripes.
    Logical
}
identifier! {
    /// A byte address on one device.
    Physical
}
identifier! {
    /// A device of the pool (`devid`).
    DevId
}
identifier! {
    /// The first part of a key: an inode number in a subvolume, other things in other trees.
    ObjectId
}
identifier! {
    /// The transaction that wrote something (`generation`, `transid`).
    Generation
}
identifier! {
    /// A tree: a subvolume, or one of the pool's own trees.
    RootId
}
address!(Logical);
address!(Physical);

macro_rules! well_known {
    ($type:ident { $($(#[$doc:meta])* $name:ident = $value:expr, $text:literal;)* }) => {
        impl $type {
            $($(#[$doc])* pub const $name: Self = Self::new($value);)*

            /// The name that btrfs gives this number, if it is one of the well-known.
            pub const fn well_known_name(self) -> Option<&'static str> {
                match self.get() {
                    $(value if value == $value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

/// A number counted down from the top of the 64-bit space, as btrfs writes its negative ids.
const fn negative(value: u64) -> u64 {
    0u64.wrapping_sub(value)
}

well_known!(RootId {
    /// The tree of tree roots.
    ROOT_TREE = 1, "ROOT_TREE";
    /// References to every allocated extent.
    EXTENT_TREE = 2, "EXTENT_TREE";
    /// Logical to physical mapping, and the devices.
    CHUNK_TREE = 3, "CHUNK_TREE";
    /// Device extents and device statistics.
    DEV_TREE = 4, "DEV_TREE";
    /// The top-level subvolume.
    FS_TREE = 5, "FS_TREE";
    /// Checksums of data.
    CSUM_TREE = 7, "CSUM_TREE";
    /// Quota groups.
    QUOTA_TREE = 8, "QUOTA_TREE";
    /// Subvolumes by their UUID.
    UUID_TREE = 9, "UUID_TREE";
    /// Free space, version 2.
    FREE_SPACE_TREE = 10, "FREE_SPACE_TREE";
    /// Block group items, where they do not live in the extent tree.
    BLOCK_GROUP_TREE = 11, "BLOCK_GROUP_TREE";
    /// Stripe extents of zoned RAID.
    RAID_STRIPE_TREE = 12, "RAID_STRIPE_TREE";
    /// Log trees, one for each subvolume that has one.
    TREE_LOG = negative(6), "TREE_LOG";
    /// Relocation trees.
    TREE_RELOC = negative(8), "TREE_RELOC";
    /// Inodes into which balance copies data.
    DATA_RELOC_TREE = negative(9), "DATA_RELOC_TREE";
});

impl RootId {
    /// Returns true if the tree holds files: the top level, a subvolume, or the data relocation tree.
    pub const fn is_file_tree(self) -> bool {
        self.get() == Self::FS_TREE.get() || self.is_subvolume() || self.get() == Self::DATA_RELOC_TREE.get()
    }

    /// Returns true for a subvolume or snapshot other than the top level.
    pub const fn is_subvolume(self) -> bool {
        self.get() >= ObjectId::FIRST_FREE.get() && self.get() <= ObjectId::LAST_FREE.get()
    }

    /// The object id under which this tree's root item is stored.
    pub const fn object_id(self) -> ObjectId {
        ObjectId::new(self.get())
    }
}

well_known!(ObjectId {
    /// Objectid of device items in the chunk tree (also the device statistics' 0 in the device tree).
    DEV_ITEMS = 1, "DEV_ITEMS";
    /// The directory in the root tree that names the default subvolume.
    ROOT_TREE_DIR = 6, "ROOT_TREE_DIR";
    /// Objectid of every chunk item, and the first inode number of a subvolume.
    FIRST_CHUNK_TREE = 256, "FIRST_CHUNK_TREE";
    /// The state of a balance.
    BALANCE = negative(4), "BALANCE";
    /// Inodes without a name, to be deleted at the next mount.
    ORPHAN = negative(5), "ORPHAN";
    /// Log trees.
    TREE_LOG = negative(6), "TREE_LOG";
    /// Relocation trees.
    TREE_RELOC = negative(8), "TREE_RELOC";
    /// Data relocation tree.
    DATA_RELOC_TREE = negative(9), "DATA_RELOC_TREE";
    /// Every checksum item.
    EXTENT_CSUM = negative(10), "EXTENT_CSUM";
    /// Free space cache, version 1.
    FREE_SPACE = negative(11), "FREE_SPACE";
    /// Free inode number cache.
    FREE_INO = negative(12), "FREE_INO";
});

impl ObjectId {
    /// The root directory of every subvolume, and the least number a file can have.
    pub const FIRST_FREE: Self = Self::new(256);
    /// The greatest number a file or subvolume can have.
    pub const LAST_FREE: Self = Self::new(negative(256));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_add_lengths_and_refuse_to_wrap() {
        assert_eq!(Logical::new(10) + 5, Logical::new(15));
        assert_eq!(Logical::new(u64::MAX).checked_add(1), None);
        assert_eq!(Physical::new(7).distance_from(Physical::new(8)), None);
    }

    #[test]
    fn order_is_numeric_not_by_bytes() {
        assert!(Logical::new(0x0100) > Logical::new(0x00ff));
    }

    #[test]
    fn names_of_negative_ids() {
        assert_eq!(RootId::new(u64::MAX - 8).well_known_name(), Some("DATA_RELOC_TREE"));
        assert_eq!(RootId::new(300).well_known_name(), None);
        assert!(RootId::new(300).is_subvolume() && !RootId::TREE_LOG.is_file_tree());
    }
}
