//! The extent tree: allocated extents and their backrefs.

use super::prefix;
use crate::name_hash::raw_crc32c;
use crate::{Defect, Generation, Key, KeyType, Logical, ObjectId, RootId, to_u64};
use bitflags::bitflags;
use std::cmp::Reverse;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bitflags! {
    /// Content of an extent, and form of its backrefs (`BTRFS_EXTENT_FLAG_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExtentFlags: u64 {
        /// Data of files.
        const DATA = 1 << 0;
        /// A tree block.
        const TREE_BLOCK = 1 << 1;
        /// Backrefs of the block's children are filed under the block, not under its owner.
        const FULL_BACKREF = 1 << 8;
    }
}

/// The fixed part of an extent item (`btrfs_extent_item`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtentItemHeader {
    /// Number of references.
    pub refs: U64,
    /// The transaction that allocated the extent.
    pub generation: Generation,
    /// [`ExtentFlags`].
    pub flags: U64,
}
const _: () = assert!(size_of::<ExtentItemHeader>() == 24);

/// Tree block part of an `EXTENT_ITEM` (`btrfs_tree_block_info`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TreeBlockInfo {
    /// The first key of the block.
    pub key: Key,
    /// Its level.
    pub level: u8,
}
const _: () = assert!(size_of::<TreeBlockInfo>() == 18);

/// A reference from a file of a tree (`btrfs_extent_data_ref`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtentDataRef {
    /// The tree.
    pub root: RootId,
    /// The file's inode number.
    pub objectid: ObjectId,
    /// Offset in the file at which the extent would begin, in bytes.
    pub offset: U64,
    /// Number of references.
    pub count: U32,
}
const _: () = assert!(size_of::<ExtentDataRef>() == 28);

impl ExtentDataRef {
    /// The key offset under which the reference is filed when it is an item of its own, and the order of the
    /// inline ones (`hash_extent_data_ref`). References of one hash take the next free offset.
    pub fn hash(&self) -> u64 {
        let high = raw_crc32c(!0, self.root.as_bytes());
        let low = raw_crc32c(raw_crc32c(!0, self.objectid.as_bytes()), self.offset.as_bytes());
        (u64::from(high) << 31) ^ u64::from(low)
    }
}

/// A reference from a leaf (`btrfs_shared_data_ref`); which leaf, the key's or inline offset says.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SharedDataRef {
    /// Number of references.
    pub count: U32,
}

/// One reference to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackRef {
    /// A tree owns this block (`TREE_BLOCK_REF`).
    Tree(RootId),
    /// A block points to this block (`SHARED_BLOCK_REF`).
    SharedTree(Logical),
    /// A file of a tree has this extent (`EXTENT_DATA_REF`).
    Data(ExtentDataRef),
    /// Items of a leaf have this extent (`SHARED_DATA_REF`).
    SharedData {
        /// The leaf.
        parent: Logical,
        /// Number of references.
        count: u32,
    },
    /// The subvolume that first created this extent (`EXTENT_OWNER_REF`); counts as no reference.
    Owner(RootId),
}

impl BackRef {
    /// Number of references in this backref.
    pub fn count(&self) -> u64 {
        match self {
            Self::Tree(_) | Self::SharedTree(_) => 1,
            Self::Data(reference) => reference.count.get().into(),
            Self::SharedData { count, .. } => (*count).into(),
            Self::Owner(_) => 0,
        }
    }

    /// The key type of this kind of reference.
    pub fn key_type(&self) -> KeyType {
        match self {
            Self::Tree(_) => KeyType::TREE_BLOCK_REF,
            Self::SharedTree(_) => KeyType::SHARED_BLOCK_REF,
            Self::Data(_) => KeyType::EXTENT_DATA_REF,
            Self::SharedData { .. } => KeyType::SHARED_DATA_REF,
            Self::Owner(_) => KeyType::EXTENT_OWNER_REF,
        }
    }

    /// Order among inline backrefs: by type, ascending, and within a type by the referrer, descending, so that a
    /// search can end early. Backrefs of equal rank may stand in any order.
    pub fn inline_rank(&self) -> (KeyType, Reverse<u64>) {
        let name = match self {
            Self::Tree(root) | Self::Owner(root) => root.get(),
            Self::SharedTree(parent) | Self::SharedData { parent, .. } => parent.get(),
            Self::Data(data) => data.hash(),
        };
        (self.key_type(), Reverse(name))
    }

    /// Size of the inline form, in bytes.
    pub const fn inline_size(&self) -> usize {
        1 + match self {
            Self::Tree(_) | Self::SharedTree(_) | Self::Owner(_) => size_of::<U64>(),
            Self::Data(_) => size_of::<ExtentDataRef>(),
            Self::SharedData { .. } => size_of::<U64>() + size_of::<SharedDataRef>(),
        }
    }

    /// Writes it as an inline reference.
    pub fn write_inline(&self, into: &mut Vec<u8>) {
        into.push(self.key_type().0);
        match self {
            Self::Tree(root) | Self::Owner(root) => into.extend_from_slice(root.as_bytes()),
            Self::SharedTree(parent) => into.extend_from_slice(parent.as_bytes()),
            Self::Data(data) => into.extend_from_slice(data.as_bytes()),
            Self::SharedData { parent, count } => {
                into.extend_from_slice(parent.as_bytes());
                into.extend_from_slice(&count.to_le_bytes());
            }
        }
    }

    /// The key of the item that it is when it is one of its own, of the extent that begins at `extent`. That of a
    /// data reference is the first of those that it may have.
    pub fn key(&self, extent: Logical) -> Key {
        let offset = match self {
            Self::Tree(root) | Self::Owner(root) => root.get(),
            Self::SharedTree(parent) | Self::SharedData { parent, .. } => parent.get(),
            Self::Data(data) => data.hash(),
        };
        Key::new(ObjectId::new(extent.get()), self.key_type(), offset)
    }

    /// The data of the item that it is when it is one of its own.
    pub fn item_data(&self) -> Vec<u8> {
        match self {
            Self::Tree(_) | Self::SharedTree(_) | Self::Owner(_) => Vec::new(),
            Self::Data(data) => data.as_bytes().to_vec(),
            Self::SharedData { count, .. } => count.to_le_bytes().to_vec(),
        }
    }

    /// A reference that is an item of its own.
    pub(super) fn parse_keyed(key: &Key, data: &[u8]) -> Result<Self, Defect> {
        let (reference, rest) = match key.item_type {
            KeyType::TREE_BLOCK_REF => (Self::Tree(RootId::new(key.offset())), data),
            KeyType::SHARED_BLOCK_REF => (Self::SharedTree(Logical::new(key.offset())), data),
            KeyType::EXTENT_DATA_REF => {
                let (reference, rest) = prefix::<ExtentDataRef>(data, "extent data ref is cut off")?;
                (Self::Data(*reference), rest)
            }
            _ => {
                let (shared, rest) = prefix::<SharedDataRef>(data, "shared data ref is cut off")?;
                let parent = Logical::new(key.offset());
                (Self::SharedData { parent, count: shared.count.get() }, rest)
            }
        };
        if rest.is_empty() {
            Ok(reference)
        } else {
            Err(Defect::expected("bytes left behind an extent reference", 0, to_u64(rest.len())))
        }
    }

    /// The inline reference at the start of `data`, and what follows.
    fn parse_inline(data: &[u8]) -> Result<(Self, &[u8]), Defect> {
        let (kind, rest) = prefix::<KeyType>(data, "inline ref is cut off")?;
        if *kind == KeyType::EXTENT_DATA_REF {
            let (reference, rest) = prefix::<ExtentDataRef>(rest, "inline data ref is cut off")?;
            return Ok((Self::Data(*reference), rest));
        }
        let (offset, rest) = prefix::<U64>(rest, "inline ref is cut off")?;
        Ok(match *kind {
            KeyType::TREE_BLOCK_REF => (Self::Tree(RootId::new(offset.get())), rest),
            KeyType::SHARED_BLOCK_REF => (Self::SharedTree(Logical::new(offset.get())), rest),
            KeyType::EXTENT_OWNER_REF => (Self::Owner(RootId::new(offset.get())), rest),
            KeyType::SHARED_DATA_REF => {
                let (shared, rest) = prefix::<SharedDataRef>(rest, "inline shared ref is cut off")?;
                let parent = Logical::new(offset.get());
                (Self::SharedData { parent, count: shared.count.get() }, rest)
            }
            unknown => return Err(Defect::new("unknown type of inline ref", unknown.0.into())),
        })
    }
}

/// An allocated extent.
#[derive(Clone, Copy, Debug)]
pub struct ExtentItem<'a> {
    /// The fixed part.
    pub header: &'a ExtentItemHeader,
    /// First key and level of a tree block whose item is not skinny.
    pub tree_block: Option<&'a TreeBlockInfo>,
    /// The references that are kept inline.
    pub inline_refs: ExtentRefs<'a>,
}

impl<'a> ExtentItem<'a> {
    pub(super) fn parse(key: &Key, data: &'a [u8]) -> Result<Self, Defect> {
        let (header, rest) = prefix::<ExtentItemHeader>(data, "extent item is cut off")?;
        let flags = ExtentFlags::from_bits_retain(header.flags.get());
        let has_info = key.item_type == KeyType::EXTENT_ITEM && flags.contains(ExtentFlags::TREE_BLOCK);
        let (tree_block, rest) = if has_info {
            let (info, rest) = prefix(rest, "tree block info is cut off")?;
            (Some(info), rest)
        } else {
            (None, rest)
        };
        Ok(Self { header, tree_block, inline_refs: ExtentRefs(rest) })
    }

    /// The bytes of an item of these parts; the references are in the order of [`BackRef::inline_rank`].
    pub fn encode(
        header: &ExtentItemHeader,
        tree_block: Option<&TreeBlockInfo>,
        inline_refs: &[BackRef],
    ) -> Vec<u8> {
        let refs: usize = inline_refs.iter().map(BackRef::inline_size).sum();
        let fixed = size_of::<ExtentItemHeader>() + size_of::<TreeBlockInfo>();
        let mut bytes = Vec::with_capacity(fixed + refs);
        bytes.extend_from_slice(header.as_bytes());
        if let Some(info) = tree_block {
            bytes.extend_from_slice(info.as_bytes());
        }
        for reference in inline_refs {
            reference.write_inline(&mut bytes);
        }
        bytes
    }

    /// The flags, unknown ones kept.
    pub fn flags(&self) -> ExtentFlags {
        ExtentFlags::from_bits_retain(self.header.flags.get())
    }
}

/// Inline references, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct ExtentRefs<'a>(&'a [u8]);

impl Iterator for ExtentRefs<'_> {
    type Item = Result<BackRef, Defect>;

    fn next(&mut self) -> Option<Self::Item> {
        super::inode::next_packed(&mut self.0, BackRef::parse_inline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Item;

    fn some_of_each() -> [BackRef; 5] {
        let data = ExtentDataRef {
            root: RootId::new(256),
            objectid: ObjectId::new(257),
            offset: U64::new(4096),
            count: U32::new(3),
        };
        [
            BackRef::Owner(RootId::new(256)),
            BackRef::Tree(RootId::new(5)),
            BackRef::Data(data),
            BackRef::SharedTree(Logical::new(1 << 20)),
            BackRef::SharedData { parent: Logical::new(1 << 21), count: 7 },
        ]
    }

    #[test]
    fn inline_references_come_back_as_they_were() {
        let mut bytes = Vec::new();
        for reference in some_of_each() {
            let before = bytes.len();
            reference.write_inline(&mut bytes);
            assert_eq!(bytes.len() - before, reference.inline_size());
        }
        let read: Result<Vec<BackRef>, Defect> = ExtentRefs(&bytes).collect();
        assert_eq!(read.expect("well formed"), some_of_each());
    }

    #[test]
    fn keyed_references_come_back_as_they_were() {
        for reference in some_of_each().into_iter().skip(1) {
            let key = reference.key(Logical::new(1 << 30));
            assert_eq!(key.objectid.get(), 1 << 30);
            let data = reference.item_data();
            assert!(matches!(Item::parse(&key, &data), Ok(Item::ExtentRef(read)) if read == reference));
        }
    }

    #[test]
    fn ranks_are_by_type_and_then_descending() {
        let ranks = some_of_each().map(|reference| reference.inline_rank());
        assert!(ranks.is_sorted());
        assert!(BackRef::Tree(RootId::new(6)).inline_rank() < BackRef::Tree(RootId::new(5)).inline_rank());
    }
}
