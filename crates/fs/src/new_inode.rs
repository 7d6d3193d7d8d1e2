//! A new inode: what is asked for, what it inherits, and the items that make it.

use crate::attributes::{Attributes, InodeId};
use crate::core::edit::{Edit, Entry, name_length};
use crate::packed::append;
use brindle_ondisk::item::{
    DirEntryHeader, FileExtentHeader, FileExtentType, FileType, InodeFlags, InodeItem, InodeRefHeader,
    Timespec,
};
use brindle_ondisk::{Generation, Key, KeyType, ObjectId, name_hash, to_u64};
use brindle_tree::{Tree, TreeError};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

/// An inode to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInode<'a> {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Permissions not to be given, unless the directory has a default ACL, which then counts instead. 0 if the
    /// caller has applied it.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group; that of the directory, if that has the set-group-id bit.
    pub gid: u32,
    /// Device number of a device node, as on disk: major from bit 20 on, minor in the low 20 bits.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Option<&'a [u8]>,
}

/// Properties of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inheritance {
    pub(crate) mode: u32,
    pub(crate) gid: u32,
    pub(crate) flags: InodeFlags,
    /// Extended attributes, by name and value.
    pub(crate) xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

/// An inode that is about to be made.
#[derive(Clone, Debug)]
pub(crate) struct PlannedInode<'a> {
    pub(crate) id: InodeId,
    pub(crate) kind: FileType,
    pub(crate) uid: u32,
    pub(crate) rdev: u64,
    pub(crate) target: Option<&'a [u8]>,
    pub(crate) inheritance: Inheritance,
}

/// The name that a new inode gets, and its index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstName<'a> {
    pub(crate) parent: ObjectId,
    pub(crate) name: &'a [u8],
    pub(crate) index: u64,
}

impl PlannedInode<'_> {
    /// Upper bound on the number of its items.
    pub(crate) fn items(&self) -> usize {
        3 + self.inheritance.xattrs.len()
    }

    /// Its entry in the directory.
    pub(crate) fn entry(&self) -> Entry {
        Entry { location: Key::new(self.id.number, KeyType::INODE_ITEM, 0), kind: self.kind }
    }

    pub(crate) fn attributes(&self, item: &InodeItem) -> Attributes {
        Attributes::from_item(self.id, item).expect("the mode of a planned inode has a type")
    }

    fn item(&self, generation: Generation, now: Timespec, nlink: u32) -> InodeItem {
        let mut item = InodeItem::new_zeroed();
        item.generation = generation;
        item.transid = generation;
        item.nlink.set(nlink);
        item.uid.set(self.uid);
        item.gid.set(self.inheritance.gid);
        item.mode.set(self.inheritance.mode);
        item.rdev.set(self.rdev);
        item.flags.set(self.inheritance.flags.bits());
        item.sequence.set(1);
        let size = to_u64(self.target.map_or(0, <[u8]>::len));
        item.size.set(size);
        item.nbytes.set(size);
        (item.atime, item.ctime, item.mtime, item.otime) = (now, now, now, now);
        item
    }
}

impl Edit<'_> {
    /// Adds an inode with all that belongs to it.
    pub(crate) fn insert_inode(
        &self,
        tree: &Tree,
        planned: &PlannedInode<'_>,
        first: Option<FirstName<'_>>,
    ) -> Result<InodeItem, TreeError> {
        if let Some(first) = &first {
            let directory = InodeId { tree: tree.id(), number: first.parent };
            self.note_name(directory, first.name, planned.id.number);
        }
        let item = planned.item(self.generation(), self.now, u32::from(first.is_some()));
        let mut items = vec![(planned.id.key(KeyType::INODE_ITEM, 0), item.as_bytes().to_vec())];
        if let Some(first) = first {
            let header = InodeRefHeader { index: U64::new(first.index), name_len: name_length(first.name) };
            let key = planned.id.key(KeyType::INODE_REF, first.parent.get());
            items.push((key, [header.as_bytes(), first.name].concat()));
        }
        for (name, value) in &planned.inheritance.xattrs {
            let mut data = Vec::new();
            append(&mut data, &self.xattr_header(name, value), name, value);
            items.push((planned.id.key(KeyType::XATTR_ITEM, name_hash(name)), data));
        }
        if let Some(target) = planned.target {
            let data = [self.inline_header(target.len()).as_bytes(), target].concat();
            items.push((planned.id.key(KeyType::EXTENT_DATA, 0), data));
        }
        items.sort_unstable_by_key(|(key, _)| *key);
        let items: Vec<(Key, &[u8])> = items.iter().map(|(key, data)| (*key, &data[..])).collect();
        self.editor.insert_all(tree, &items)?;
        Ok(item)
    }

    /// Header before an extended attribute's name and value.
    pub(crate) fn xattr_header(&self, name: &[u8], value: &[u8]) -> DirEntryHeader {
        DirEntryHeader {
            location: Key::MIN,
            transid: self.generation(),
            data_len: U16::new(u16::try_from(value.len()).expect("an item is at most 64 KiB")),
            name_len: name_length(name),
            file_type: FileType::Xattr as u8,
        }
    }

    fn inline_header(&self, length: usize) -> FileExtentHeader {
        FileExtentHeader {
            generation: self.generation(),
            ram_bytes: U64::new(to_u64(length)),
            compression: 0,
            encryption: 0,
            other_encoding: U16::new(0),
            extent_type: FileExtentType::Inline as u8,
        }
    }
}
