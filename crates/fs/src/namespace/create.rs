//! New inodes.

use super::edit::{Edit, Entry, Place, directory_bytes, name_length};
use super::inherit::{Inheritance, inherit};
use super::{NewInode, check_name};
use crate::attributes::{Attributes, InodeId};
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inode_hold::InodeHold;
use crate::inodes::Inode;
use crate::open_file::OpenFile;
use crate::packed::append;
use crate::subvolume::SubvolumeState;
use brindle_ondisk::item::{
    DirEntryHeader, FileExtentHeader, FileExtentType, FileType, InodeItem, InodeRefHeader, Timespec,
};
use brindle_ondisk::{Generation, Key, KeyType, ObjectId, name_hash, to_u64};
use brindle_tree::{Need, Tree, TreeError};
use std::sync::Arc;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Upper bound of a symbolic link's target, in bytes: `PATH_MAX` without the terminating zero. The target is an inline
/// extent, so a small node size lowers the bound further.
const TARGET_BYTES_MAX: usize = 4095;

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

impl Filesystem {
    /// Makes a file, directory, symbolic link, device node, pipe or socket.
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<Attributes, FsError> {
        self.create_in(parent, name, new, 0).map(|(attributes, _)| attributes)
    }

    /// Makes a regular file, open from the beginning.
    pub fn create_open(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(Attributes, OpenFile), FsError> {
        let (attributes, inode) = self.create_in(parent, name, new, 1)?;
        let file = self.holds.open_held(&attributes, self.holds.counted(inode))?;
        Ok((attributes, file))
    }

    fn create_in(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        opens: u32,
    ) -> Result<(Attributes, Arc<Inode>), FsError> {
        check_name(name)?;
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let _access = subvolume.begin_write()?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        let directory = self.core.directory(parent);
        let mut names = directory.names();
        let above = self.directories.changeable_directory(parent, false)?;
        let slot = self.directories.slot(place)?;
        if slot.entry.is_some() {
            return Err(FsError::Exists(name.to_vec()));
        }
        self.directories.check_room(place, &slot, 0)?;
        let inherited = self.inherited(parent, &mut names)?;
        let planned = self
            .plan_inode(&subvolume, new, |kind, options| inherit(new, kind, &above, &inherited, options))?;
        let index = self.directories.new_index(place.tree, parent, &mut names)?;
        let inode = self.core.inode(planned.id);
        // A lookup that finds the name waits until the opener is counted. New numbers are greater than all before.
        let mut new_names = inode.names();
        if planned.kind == FileType::Regular {
            inode.data.load(0);
        }
        let attributes = self.core.change(Need::items(planned.items() + 4), |edit| {
            let first = FirstName { parent: parent.number, name, index };
            let item = edit.insert_inode(place.tree, &planned, Some(first))?;
            edit.add_entry(place, index, planned.entry())?;
            edit.directory(place.tree, parent.number, directory_bytes(name))?;
            Ok(planned.attributes(&item))
        })?;
        new_names.opens = opens;
        drop(new_names);
        Ok((attributes, inode))
    }

    /// Makes a file without a name, which is held as if by [`acquire`](Self::acquire) (`O_TMPFILE`). `parent` decides in
    /// which subvolume, and what it inherits. [`link`](Self::link) can give it a name.
    pub fn create_unnamed(
        &self,
        parent: InodeId,
        new: &NewInode<'_>,
    ) -> Result<(Attributes, InodeHold), FsError> {
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let _access = subvolume.begin_write()?;
        let inherited = self.inherited(parent, &mut self.core.inode(parent).names())?;
        let above = self.directories.changeable_directory(parent, false)?;
        let planned = self
            .plan_inode(&subvolume, new, |kind, options| inherit(new, kind, &above, &inherited, options))?;
        let inode = self.core.inode(planned.id);
        let mut names = inode.names();
        let attributes = self.core.change(Need::items(planned.items() + 1), |edit| {
            let item = edit.insert_inode(subvolume.tree(), &planned, None)?;
            edit.add_orphan(subvolume.tree(), planned.id.number)?;
            Ok(planned.attributes(&item))
        })?;
        (names.opens, names.is_unnamed, names.is_linkable) = (1, true, true);
        drop(names);
        Ok((attributes, self.holds.counted(inode)))
    }

    /// Decides everything about a new inode, and gives it its number.
    fn plan_inode<'a>(
        &self,
        subvolume: &SubvolumeState,
        new: &NewInode<'a>,
        inherit: impl FnOnce(FileType, &crate::write_options::WriteOptions) -> Inheritance,
    ) -> Result<PlannedInode<'a>, FsError> {
        let tree = subvolume.tree().id();
        let invalid = |why| FsError::Invalid { file: InodeId { tree, number: ObjectId::new(0) }, why };
        let kind = FileType::from_mode(new.mode).ok_or_else(|| invalid("a new inode has no type"))?;
        let target_bytes_max =
            TARGET_BYTES_MAX.min(self.core.item_bytes_max() - size_of::<FileExtentHeader>());
        match new.target {
            Some(target) if target.len() > target_bytes_max => {
                return Err(FsError::NameTooLong(target.to_vec()));
            }
            Some(b"") => return Err(FsError::NotFound(Vec::new())),
            Some(target) if target.contains(&0) => return Err(FsError::InvalidName(target.to_vec())),
            _ if new.target.is_some() != (kind == FileType::Symlink) => {
                return Err(invalid("a symbolic link, and nothing else, has a target"));
            }
            _ => {}
        }
        let inheritance = inherit(kind, &self.core.writing()?.options);
        let id = InodeId { tree, number: subvolume.new_number(self.core.pool())? };
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let rdev = if is_device { new.rdev } else { 0 };
        Ok(PlannedInode { id, kind, uid: new.uid, rdev, target: new.target, inheritance })
    }
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

    fn attributes(&self, item: &InodeItem) -> Attributes {
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
        if first.is_some() {
            self.note_inode(tree.id(), planned.id.number);
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
