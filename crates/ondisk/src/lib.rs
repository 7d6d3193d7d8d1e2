//! Meaning of the bytes on disk: superblock, keys, items, nodes, checksums, name hashes, features, RAID profiles, and
//! the tree checker, the one gate between hostile bytes and the rest of brindle. Must not know: any I/O.
//!
//! Structures are declared once, in the kernel's field order, with size and offsets asserted, and the same
//! type serves disk and memory. Facts come from the format documentation of btrfs
//! (`Documentation/dev/On-disk-format.rst` and `Tree-checker.rst` in btrfs-progs) and from what the kernel
//! writes, as `btrfs inspect-internal dump-tree` shows it; field and constant names are the kernel's, less
//! the `btrfs_` prefix.

mod address;
mod checksum;
mod defect;
mod feature;
mod id_hash;
pub mod item;
mod key;
mod lease;
mod name_hash;
mod node;
mod profile;
mod series;
mod superblock;
#[cfg(test)]
mod testing;
mod tree_checker;
mod uuid;

// The test helpers are shared with `fuzz/`, where the crate goes by its own name.
#[cfg(test)]
extern crate self as brindle_ondisk;

pub use address::{DevId, Generation, Logical, ObjectId, Physical, RootId};
pub use checksum::{Checksum, ChecksumType};
pub use defect::Defect;
pub use feature::{CompatRo, Incompat, UNSUPPORTED_INCOMPAT};
pub use id_hash::{IdHash, IdHasher, IdMap};
pub use item::{Item, QgroupId};
pub use key::{Key, KeyType};
pub use lease::{LEASE_BYTES, LEASE_OFFSET, LeaseDevice, LeasePlace, LeaseProcess, LeaseRecord};
pub use name_hash::{extref_hash, name_hash};
pub use node::{CorruptNode, ItemHeader, KeyPtr, MAX_LEVEL, Node, NodeExpectation, NodeHeader, NodeProblem};
pub use profile::{BlockGroupType, Profile, ProfileAttributes};
pub use series::{Holders, Series};
pub use superblock::{
    RootBackup, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, SYS_CHUNK_ARRAY_SIZE, Superblock, SuperblockDefect,
};
pub use tree_checker::{GenerationLimit, TreeContext};
pub use uuid::Uuid;

const _: () = assert!(usize::BITS >= 64, "lengths and offsets of the format are held in usize");

/// A length or offset of the format as an index into memory.
#[expect(clippy::cast_possible_truncation, reason = "usize is asserted to hold 64 bits")]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// An index into memory as a length or offset of the format.
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}
