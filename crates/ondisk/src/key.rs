//! Keys: what every tree is ordered by.

use crate::ObjectId;
use std::cmp::Ordering;
use std::fmt;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The middle part of a key: what kind of item it is.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct KeyType(pub u8);

/// The key of an item or of a child node (`btrfs_disk_key`).
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Key {
    /// Owner of the item: an inode, an extent, a root.
    pub objectid: ObjectId,
    /// Type of the item.
    pub item_type: KeyType,
    offset: U64,
}
const _: () = assert!(size_of::<Key>() == 17 && std::mem::offset_of!(Key, offset) == 9);

impl Key {
    /// The least key of all.
    pub const MIN: Self = Self::new(ObjectId::new(0), KeyType(0), 0);
    /// The greatest key of all.
    pub const MAX: Self = Self::new(ObjectId::new(u64::MAX), KeyType(u8::MAX), u64::MAX);

    /// A key of its three parts.
    pub const fn new(objectid: ObjectId, item_type: KeyType, offset: u64) -> Self {
        Self { objectid, item_type, offset: U64::new(offset) }
    }

    /// The last part; its meaning depends on the type.
    pub const fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Returns true if this key sorts before another one. Equal to comparing, without branches, of which a search
    /// would mispredict every other.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let (upper, lower) = self.parts();
        let (other_upper, other_lower) = other.parts();
        (upper < other_upper) | ((upper == other_upper) & (lower < other_lower))
    }

    /// Two numbers that are ordered as keys are.
    fn parts(&self) -> (u128, u64) {
        (u128::from(self.objectid.get()) << 8 | u128::from(self.item_type.0), self.offset())
    }

    /// The next key in the order, or `None` after the greatest.
    pub fn successor(&self) -> Option<Self> {
        if let Some(offset) = self.offset().checked_add(1) {
            return Some(Self::new(self.objectid, self.item_type, offset));
        }
        if let Some(item_type) = self.item_type.0.checked_add(1) {
            return Some(Self::new(self.objectid, KeyType(item_type), 0));
        }
        let objectid = self.objectid.get().checked_add(1)?;
        Some(Self::new(ObjectId::new(objectid), KeyType(0), 0))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = |key: &Self| (key.objectid.get(), key.item_type.0, key.offset.get());
        parts(self).cmp(&parts(other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.objectid.well_known_name() {
            Some(name) => write!(f, "({name} {} {})", self.item_type, self.offset()),
            None => write!(f, "({} {} {})", self.objectid, self.item_type, self.offset()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! key_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl KeyType {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every known type, in the order of their numbers.
            pub const KNOWN: &'static [Self] = &[$(Self($value)),*];

            /// The name that btrfs-progs prints for this type.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

key_types! {
    /// A file, directory or other inode.
    INODE_ITEM = 1, "INODE_ITEM";
    /// One name of an inode, filed by parent.
    INODE_REF = 12, "INODE_REF";
    /// Names of an inode, filed by a hash of parent and name.
    INODE_EXTREF = 13, "INODE_EXTREF";
    /// Extended attributes, filed by name hash.
    XATTR_ITEM = 24, "XATTR_ITEM";
    /// fs-verity descriptor.
    VERITY_DESC_ITEM = 36, "VERITY_DESC_ITEM";
    /// fs-verity Merkle tree.
    VERITY_MERKLE_ITEM = 37, "VERITY_MERKLE_ITEM";
    /// An inode or root to be deleted at the next mount.
    ORPHAN_ITEM = 48, "ORPHAN_ITEM";
    /// Range of name hashes for which a log is complete.
    DIR_LOG_ITEM = 60, "DIR_LOG_ITEM";
    /// Range of directory indexes for which a log is complete.
    DIR_LOG_INDEX = 72, "DIR_LOG_INDEX";
    /// A directory's entries, filed by name hash.
    DIR_ITEM = 84, "DIR_ITEM";
    /// A directory's entry, filed by index.
    DIR_INDEX = 96, "DIR_INDEX";
    /// An extent of a file.
    EXTENT_DATA = 108, "EXTENT_DATA";
    /// Checksums of data, from a logical address on.
    EXTENT_CSUM = 128, "EXTENT_CSUM";
    /// The root of a tree.
    ROOT_ITEM = 132, "ROOT_ITEM";
    /// From a subvolume to its parent.
    ROOT_BACKREF = 144, "ROOT_BACKREF";
    /// From a subvolume to its child.
    ROOT_REF = 156, "ROOT_REF";
    /// An allocated extent, of data or (without skinny metadata) of a tree block.
    EXTENT_ITEM = 168, "EXTENT_ITEM";
    /// An allocated tree block, filed by level.
    METADATA_ITEM = 169, "METADATA_ITEM";
    /// The subvolume that first created an extent (simple quotas; inline only).
    EXTENT_OWNER_REF = 172, "EXTENT_OWNER_REF";
    /// A tree block's owner.
    TREE_BLOCK_REF = 176, "TREE_BLOCK_REF";
    /// A data extent's owner.
    EXTENT_DATA_REF = 178, "EXTENT_DATA_REF";
    /// A tree block's parent block.
    SHARED_BLOCK_REF = 182, "SHARED_BLOCK_REF";
    /// A data extent's parent block.
    SHARED_DATA_REF = 184, "SHARED_DATA_REF";
    /// Space accounting of a chunk's range.
    BLOCK_GROUP_ITEM = 192, "BLOCK_GROUP_ITEM";
    /// Free space tree: state of one block group.
    FREE_SPACE_INFO = 198, "FREE_SPACE_INFO";
    /// Free space tree: a free range.
    FREE_SPACE_EXTENT = 199, "FREE_SPACE_EXTENT";
    /// Free space tree: a bitmap.
    FREE_SPACE_BITMAP = 200, "FREE_SPACE_BITMAP";
    /// A piece of a device that belongs to a chunk.
    DEV_EXTENT = 204, "DEV_EXTENT";
    /// A device.
    DEV_ITEM = 216, "DEV_ITEM";
    /// A chunk: a logical range and its stripes.
    CHUNK_ITEM = 228, "CHUNK_ITEM";
    /// A stripe extent of the RAID stripe tree.
    RAID_STRIPE = 230, "RAID_STRIPE";
    /// State of the quota tree.
    QGROUP_STATUS = 240, "QGROUP_STATUS";
    /// Usage of a quota group.
    QGROUP_INFO = 242, "QGROUP_INFO";
    /// Limits of a quota group.
    QGROUP_LIMIT = 244, "QGROUP_LIMIT";
    /// Parent and child of quota groups.
    QGROUP_RELATION = 246, "QGROUP_RELATION";
    /// State that ends with its job, such as a balance (`BALANCE_ITEM` of old).
    TEMPORARY_ITEM = 248, "TEMPORARY_ITEM";
    /// State that stays, such as device statistics (`DEV_STATS` of old).
    PERSISTENT_ITEM = 249, "PERSISTENT_ITEM";
    /// State of a device replacement.
    DEV_REPLACE = 250, "DEV_REPLACE";
    /// Subvolumes of a UUID.
    UUID_KEY_SUBVOL = 251, "UUID_KEY_SUBVOL";
    /// Subvolumes of a received UUID.
    UUID_KEY_RECEIVED_SUBVOL = 252, "UUID_KEY_RECEIVED_SUBVOL";
    /// A string, for debugging.
    STRING_ITEM = 253, "STRING_ITEM";
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "UNKNOWN.{}", self.0),
        }
    }
}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(objectid: u64, item_type: u8, offset: u64) -> Key {
        Key::new(ObjectId::new(objectid), KeyType(item_type), offset)
    }

    #[test]
    fn order_is_objectid_then_type_then_offset() {
        assert!(key(1, 200, 0) < key(2, 0, 0));
        assert!(key(1, 1, 0x100) > key(1, 1, 0xff));
        assert!(key(1, 1, u64::MAX) < key(1, 2, 0));
    }

    #[test]
    fn successor_carries_and_ends_at_the_greatest() {
        assert_eq!(key(1, 2, 3).successor(), Some(key(1, 2, 4)));
        assert_eq!(key(1, 2, u64::MAX).successor(), Some(key(1, 3, 0)));
        assert_eq!(key(1, 255, u64::MAX).successor(), Some(key(2, 0, 0)));
        assert_eq!(Key::MAX.successor(), None);
    }
}
