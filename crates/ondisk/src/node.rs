//! Tree blocks: the header that all have, and the two bodies, node and leaf.

use crate::{Checksum, Defect, Generation, Key, KeyType, Logical, ObjectId, RootId, Uuid, to_u64, to_usize};
use std::fmt;
use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The greatest level of a root (`BTRFS_MAX_LEVEL - 1`).
pub const MAX_LEVEL: u8 = 7;

/// Header of every tree block (`btrfs_header`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHeader {
    /// Checksum of all that follows it.
    pub csum: [u8; 32],
    /// UUID of the pool (`metadata_uuid`).
    pub fsid: Uuid,
    /// The block's own address.
    pub bytenr: Logical,
    /// Flags; the top byte is the backref revision.
    pub flags: U64,
    /// UUID of the chunk tree.
    pub chunk_tree_uuid: Uuid,
    /// The transaction that wrote the block.
    pub generation: Generation,
    /// The tree that allocated the block.
    pub owner: RootId,
    /// Number of items, or of children.
    pub nritems: U32,
    /// 0 for a leaf.
    pub level: u8,
}
const _: () = assert!(size_of::<NodeHeader>() == 101 && std::mem::offset_of!(NodeHeader, nritems) == 96);

impl NodeHeader {
    /// Set in every block on disk (`BTRFS_HEADER_FLAG_WRITTEN`); the kernel refuses one without it.
    pub const FLAG_WRITTEN: u64 = 1 << 0;
    /// The block belongs to a relocation tree, whatever its owner says (`BTRFS_HEADER_FLAG_RELOC`).
    pub const FLAG_RELOC: u64 = 1 << 1;
    /// The top byte of every block since 2009: back references as the extent tree has them now
    /// (`BTRFS_MIXED_BACKREF_REV`).
    pub const MIXED_BACKREF: u64 = 1 << 56;

    /// Returns true if the block is marked as written.
    pub fn is_written(&self) -> bool {
        self.flags.get() & Self::FLAG_WRITTEN != 0
    }

    /// Returns true if the block belongs to a relocation tree.
    pub fn is_relocation(&self) -> bool {
        self.flags.get() & Self::FLAG_RELOC != 0
    }
}

/// One child of a node (`btrfs_key_ptr`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct KeyPtr {
    /// The least key in the child.
    pub key: Key,
    /// Address of the child.
    pub blockptr: Logical,
    /// The transid that wrote the child; a child that disagrees is a stale or misplaced write.
    pub generation: Generation,
}
const _: () = assert!(size_of::<KeyPtr>() == 33 && std::mem::offset_of!(KeyPtr, blockptr) == 17);

/// Slot of a leaf: key and location of one item (`btrfs_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ItemHeader {
    /// The item's key.
    pub key: Key,
    /// Start of its data, from the end of the header of the leaf.
    pub offset: U32,
    /// Length of its data, in bytes.
    pub size: U32,
}
const _: () = assert!(size_of::<ItemHeader>() == 25);

/// Facts known of a block before it is read: from the parent, the root item or the superblock.
#[derive(Clone, Copy, Debug)]
pub struct NodeExpectation {
    /// Its address.
    pub bytenr: Logical,
    /// The transaction that wrote it.
    pub generation: Option<Generation>,
    /// Its level.
    pub level: Option<u8>,
    /// Its first key.
    pub first_key: Option<Key>,
}

impl NodeExpectation {
    /// Expectation from a parent's pointer.
    pub fn child(pointer: &KeyPtr, parent_level: u8) -> Self {
        Self {
            bytenr: pointer.blockptr,
            generation: Some(pointer.generation),
            level: parent_level.checked_sub(1),
            first_key: Some(pointer.key),
        }
    }

    /// Expectation from a root item or a superblock.
    pub fn root(bytenr: Logical, generation: Generation, level: u8) -> Self {
        Self { bytenr, generation: Some(generation), level: Some(level), first_key: None }
    }
}

/// A tree block that has passed the tree checker: what stands behind this type trusts it.
#[derive(Clone)]
pub struct Node {
    bytes: Box<[u8]>,
}

/// Refusal of a tree block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct CorruptNode {
    /// Address at which it was read.
    pub at: Logical,
    /// The tree that its header names, where the header could be read at all.
    pub owner: Option<RootId>,
    /// The problem.
    pub problem: NodeProblem,
}

/// Reason for refusing a tree block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeProblem {
    /// The checksum does not match.
    Checksum {
        /// The stored checksum.
        stored: Checksum,
        /// The computed checksum.
        computed: Checksum,
    },
    /// The block is not the one that was looked for, or its header is nonsense.
    Header(Defect),
    /// The block is one of another generation: a write was lost, or went elsewhere.
    Generation(Defect),
    /// One slot is.
    Slot {
        /// The slot's number.
        slot: usize,
        /// Its key.
        key: Key,
        /// The defect.
        defect: Defect,
        /// True if in a leaf.
        leaf: bool,
    },
}

impl fmt::Display for CorruptNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.problem {
            NodeProblem::Slot { leaf: true, .. } => "leaf",
            NodeProblem::Slot { leaf: false, .. } => "node",
            _ => "tree block",
        };
        write!(f, "corrupt {kind} at logical {}", self.at)?;
        if let Some(owner) = self.owner {
            match owner.well_known_name() {
                Some(name) => write!(f, " of {name}")?,
                None => write!(f, " of tree {owner}")?,
            }
        }
        match &self.problem {
            NodeProblem::Checksum { stored, computed } => {
                write!(f, ": checksum is {stored}, computed {computed}")
            }
            NodeProblem::Header(defect) | NodeProblem::Generation(defect) => write!(f, ": {defect}"),
            NodeProblem::Slot { slot, key, defect, .. } => write!(f, " slot {slot} key {key}: {defect}"),
        }
    }
}

impl Node {
    /// Takes a block of the size of tree blocks, for the gate to look at.
    pub(crate) fn unchecked(bytes: Box<[u8]>, nodesize: u32) -> Result<Self, Defect> {
        let size = to_u64(bytes.len());
        if size == u64::from(nodesize) && bytes.len() >= size_of::<NodeHeader>() {
            return Ok(Self { bytes });
        }
        Err(Defect::expected("size of block", nodesize.into(), size))
    }

    /// The header.
    pub fn header(&self) -> &NodeHeader {
        match NodeHeader::ref_from_prefix(&self.bytes) {
            Ok((header, _)) => header,
            Err(_) => unreachable!("a node is longer than its header"),
        }
    }

    /// The whole block.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The level; 0 for a leaf.
    pub fn level(&self) -> u8 {
        self.header().level
    }

    /// Returns true for a leaf.
    pub fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// The transaction that wrote the block.
    pub fn generation(&self) -> Generation {
        self.header().generation
    }

    /// Number of items, or of children.
    pub fn len(&self) -> usize {
        to_usize(self.header().nritems.get().into())
    }

    /// Returns true if there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The children of a node; none of a leaf.
    pub fn key_ptrs(&self) -> &[KeyPtr] {
        if self.is_leaf() { &[] } else { self.slots() }
    }

    /// The items of a leaf; none of a node.
    pub fn items(&self) -> &[ItemHeader] {
        if self.is_leaf() { self.slots() } else { &[] }
    }

    /// The key of a slot.
    pub fn key(&self, slot: usize) -> Option<Key> {
        if self.is_leaf() {
            self.items().get(slot).map(|item| item.key)
        } else {
            self.key_ptrs().get(slot).map(|pointer| pointer.key)
        }
    }

    /// Key and data of an item.
    pub fn item(&self, slot: usize) -> Option<(Key, &[u8])> {
        let item = self.items().get(slot)?;
        Some((item.key, self.item_data(item)?))
    }

    /// The data of an item; `None` only before the tree checker has seen the leaf.
    pub(crate) fn item_data(&self, item: &ItemHeader) -> Option<&[u8]> {
        let start = size_of::<NodeHeader>() + to_usize(item.offset.get().into());
        self.bytes.get(start..start + to_usize(item.size.get().into()))
    }

    /// The slot of a key, or the slot before which it would stand.
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        let slot = if self.is_leaf() {
            self.items().partition_point(|item| item.key.is_before(key))
        } else {
            self.key_ptrs().partition_point(|pointer| pointer.key.is_before(key))
        };
        if self.key(slot) == Some(*key) { Ok(slot) } else { Err(slot) }
    }

    /// The slots, as many as fit: the checker refuses a block that claims more.
    fn slots<T: FromBytes + Immutable + KnownLayout + Unaligned>(&self) -> &[T] {
        let body = self.bytes.get(size_of::<NodeHeader>()..).unwrap_or_default();
        let count = self.len().min(body.len() / size_of::<T>());
        <[T]>::ref_from_prefix_with_elems(body, count).map(|(slots, _)| slots).unwrap_or_default()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        let kind = if self.is_leaf() { "leaf" } else { "node" };
        write!(
            f,
            "{kind} {} level {} items {} generation {} owner {}",
            header.bytenr, header.level, header.nritems, header.generation, header.owner
        )
    }
}

/// A key that stands for "the first item of this object of this type or later".
impl Key {
    /// The least key of an object and type.
    pub const fn first_of(objectid: ObjectId, item_type: KeyType) -> Self {
        Self::new(objectid, item_type, 0)
    }

    /// The greatest key of an object and type.
    pub const fn last_of(objectid: ObjectId, item_type: KeyType) -> Self {
        Self::new(objectid, item_type, u64::MAX)
    }
}

mod edit;
#[cfg(test)]
mod tests;
