//! The items of an inode, in the order of their keys.

use super::queue::ItemQueue;
use crate::attributes::{InodeId, Timestamp};
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::items::xattr::Xattr;
use crate::packed::{append, entry_bytes};
use brindle_ondisk::item::{
    DirEntryHeader, FileExtentHeader, FileExtentType, FileType, InodeExtrefHeader, InodeFlags, InodeItem,
    InodeRefHeader,
};
use brindle_ondisk::{Generation, Key, KeyType, ObjectId, RootId, extref_hash, name_hash, to_u64};
use std::collections::BTreeMap;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

/// The longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// An inode, with all its names.
#[derive(Clone, Debug)]
pub struct BulkInode {
    /// Its number.
    pub number: ObjectId,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, as on disk.
    pub rdev: u64,
    /// Size of a file in bytes.
    pub size: u64,
    /// Flags.
    pub flags: InodeFlags,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of the contents.
    pub mtime: Timestamp,
    /// Time of the last change.
    pub ctime: Timestamp,
    /// Time of its making.
    pub otime: Timestamp,
    /// Its names; a root has none.
    pub names: Vec<BulkName>,
}

/// A name of an inode.
#[derive(Clone, Debug)]
pub struct BulkName {
    /// The directory.
    pub parent: ObjectId,
    /// Its number there, from 2 on.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// Entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct BulkEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Its number in the directory; ascending.
    pub index: u64,
    /// Target.
    pub target: BulkTarget,
    /// Type of the target.
    pub kind: FileType,
}

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkTarget {
    /// An inode of the same subvolume.
    Inode(ObjectId),
    /// The root of another subvolume.
    Subvolume(RootId),
}

impl BulkInode {
    /// The inode item; of a directory with the size that its names make.
    pub(super) fn item(&self, generation: Generation, size: u64, nbytes: u64) -> InodeItem {
        let mut item = InodeItem::new_zeroed();
        item.generation = generation;
        item.transid = generation;
        item.nlink.set(u32::try_from(self.names.len().max(1)).unwrap_or(u32::MAX));
        item.uid.set(self.uid);
        item.gid.set(self.gid);
        item.mode.set(self.mode);
        item.rdev.set(self.rdev);
        item.flags.set(self.flags.bits());
        item.sequence.set(1);
        item.size.set(size);
        item.nbytes.set(nbytes);
        item.atime = self.atime.into();
        item.mtime = self.mtime.into();
        item.ctime = self.ctime.into();
        item.otime = self.otime.into();
        item
    }
}

/// Values common to the items of all inodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemContext {
    pub(super) generation: Generation,
    pub(super) item_bytes_max: usize,
}

/// Adds the names of an inode: those in one directory share an item as long as they fit, the others have their own.
pub(super) fn push_names(
    queue: &mut ItemQueue,
    inode: &BulkInode,
    context: ItemContext,
) -> Result<(), FsError> {
    let mut refs: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut extrefs: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for BulkName { parent, index, name } in &inode.names {
        let (index, name_len) = (U64::new(*index), crate::core::edit::name_length(name));
        let packed = refs.entry(parent.get()).or_default();
        if packed.len() + entry_bytes::<InodeRefHeader>(name, &[]) <= context.item_bytes_max {
            append(packed, &InodeRefHeader { index, name_len }, name, &[]);
        } else {
            let header = InodeExtrefHeader { parent_objectid: *parent, index, name_len };
            append(extrefs.entry(extref_hash(*parent, name)).or_default(), &header, name, &[]);
        }
    }
    for (item_type, items) in [(KeyType::INODE_REF, refs), (KeyType::INODE_EXTREF, extrefs)] {
        for (offset, data) in items {
            if data.len() > context.item_bytes_max {
                return Err(FsError::TooManyCollisions(inode.names[0].name.clone()));
            }
            queue.push(Key::new(inode.number, item_type, offset), &[&data]);
        }
    }
    Ok(())
}

/// Adds extended attributes.
pub(super) fn push_xattrs(
    queue: &mut ItemQueue,
    number: ObjectId,
    xattrs: &[Xattr],
    context: ItemContext,
) -> Result<(), FsError> {
    let mut items: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for Xattr { name, value } in xattrs {
        let too_large = || FsError::XattrTooLarge(name.clone());
        let data = items.entry(name_hash(name)).or_default();
        if data.len() + entry_bytes::<DirEntryHeader>(name, value) > context.item_bytes_max {
            return Err(too_large());
        }
        let header = DirEntryHeader {
            location: Key::MIN,
            transid: context.generation,
            data_len: U16::new(u16::try_from(value.len()).map_err(|_| too_large())?),
            name_len: crate::core::edit::name_length(name),
            file_type: FileType::Xattr as u8,
        };
        append(data, &header, name, value);
    }
    for (hash, data) in items {
        queue.push(Key::new(number, KeyType::XATTR_ITEM, hash), &[&data]);
    }
    Ok(())
}

/// Adds the entries of a directory: by hash, then by index.
pub(super) fn push_entries(
    queue: &mut ItemQueue,
    number: ObjectId,
    entries: &[BulkEntry<'_>],
    context: ItemContext,
) -> Result<(), FsError> {
    let header = |entry: &BulkEntry<'_>| DirEntryHeader {
        location: match entry.target {
            BulkTarget::Inode(number) => Key::new(number, KeyType::INODE_ITEM, 0),
            BulkTarget::Subvolume(id) => Key::new(id.object_id(), KeyType::ROOT_ITEM, 0),
        },
        transid: context.generation,
        data_len: U16::new(0),
        name_len: crate::core::edit::name_length(entry.name),
        file_type: entry.kind as u8,
    };
    for entry in entries {
        check_name(entry.name)?;
    }
    let mut by_hash: Vec<(u64, usize)> =
        entries.iter().enumerate().map(|(slot, entry)| (name_hash(entry.name), slot)).collect();
    by_hash.sort_unstable();
    for same in by_hash.chunk_by(|one, next| one.0 == next.0) {
        let key = Key::new(number, KeyType::DIR_ITEM, same[0].0);
        if let [(_, slot)] = same {
            let entry = &entries[*slot];
            queue.push(key, &[header(entry).as_bytes(), entry.name]);
            continue;
        }
        let mut data = Vec::new();
        for (_, slot) in same {
            append(&mut data, &header(&entries[*slot]), entries[*slot].name, &[]);
        }
        if data.len() > context.item_bytes_max {
            return Err(FsError::TooManyCollisions(entries[same[0].1].name.to_vec()));
        }
        queue.push(key, &[&data]);
    }
    for entry in entries {
        let key = Key::new(number, KeyType::DIR_INDEX, entry.index);
        queue.push(key, &[header(entry).as_bytes(), entry.name]);
    }
    Ok(())
}

/// Adds the target of a symbolic link.
pub(super) fn push_target(
    queue: &mut ItemQueue,
    id: InodeId,
    target: &[u8],
    context: ItemContext,
) -> Result<(), FsError> {
    let header = inline_header(context.generation, to_u64(target.len()), 0);
    if target.len() > TARGET_BYTES_MAX || header.as_bytes().len() + target.len() > context.item_bytes_max {
        return Err(FsError::NameTooLong(target.to_vec()));
    }
    queue.push(id.key(KeyType::EXTENT_DATA, 0), &[header.as_bytes(), target]);
    Ok(())
}

/// Header before the contents in an item.
pub(super) fn inline_header(generation: Generation, ram_bytes: u64, compression: u8) -> FileExtentHeader {
    FileExtentHeader {
        generation,
        ram_bytes: U64::new(ram_bytes),
        compression,
        encryption: 0,
        other_encoding: U16::new(0),
        extent_type: FileExtentType::Inline as u8,
    }
}
