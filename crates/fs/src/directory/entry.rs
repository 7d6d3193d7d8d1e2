//! Targets of names, and the locations of their parts: facts needed before a name can be added, moved or removed.

use crate::attributes::{Attributes, InodeId};
use crate::core::edit::{Entry, NameForm, Place};
use crate::core::inodes::{Inode, NameLocks, lock_names};
use crate::core::name_state::NameState;
use crate::directory::{Directories, FIRST_INDEX};
use crate::error::FsError;
use crate::packed::{entry_bytes, find};
use brindle_ondisk::item::{DirEntryHeader, FileType, InodeExtrefHeader, InodeFlags, InodeRefHeader};
use brindle_ondisk::{Defect, Incompat, Key, KeyType, ObjectId, RootId, extref_hash, name_hash};
use brindle_tree::{Tree, TreeError};
use std::sync::Arc;

/// Target of a name.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) entry: Entry,
    pub(crate) target: Target,
    /// The inode that is locked with it.
    pub(crate) inode: Arc<Inode>,
}

/// Kind of a name's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An inode of the same subvolume.
    Inode,
    /// Another subvolume.
    Subvolume(RootId),
    /// The place of a subvolume that a snapshot did not take along.
    Nothing,
}

/// The item that has, or would have, an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) entry: Option<Entry>,
    /// The size of the item, 0 if there is none.
    item_bytes: usize,
}

/// Record of a name beside the directory's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamePlace {
    pub(crate) index: u64,
    pub(crate) form: NameForm,
}

impl NamePlace {
    /// Record of a name in an item of an inode, if it is among those in the same directory.
    pub(crate) fn in_item(place: Place<'_>, key: &Key, data: &[u8]) -> Option<Self> {
        if (key.item_type, key.offset()) != (KeyType::INODE_REF, place.directory.number.get()) {
            return None;
        }
        let found = find::<InodeRefHeader>(data, |_, name| name == place.name)?;
        Some(Self { index: found.header.index.get(), form: NameForm::Ref })
    }
}

impl Directories {
    /// The item of a name's hash, and the entry of the name in it.
    pub(crate) fn slot(&self, place: Place<'_>) -> Result<Slot, FsError> {
        let key = place.directory.key(KeyType::DIR_ITEM, name_hash(place.name));
        let found = self.core.pool().with_item(place.tree, &key, |data| {
            let entry = find::<DirEntryHeader>(data, |_, name| name == place.name);
            let entry = entry.map(|entry| match FileType::from_disk(entry.header.file_type & 0x7f) {
                Some(kind) => Ok(Entry { location: entry.header.location, kind }),
                None => Err(Defect::new("unknown type of directory entry", entry.header.file_type.into())),
            });
            (entry.transpose(), data.len())
        })?;
        let (entry, item_bytes) = found.unwrap_or((Ok(None), 0));
        let entry = entry.map_err(|defect| FsError::Item { file: place.directory, key, defect })?;
        Ok(Slot { entry, item_bytes })
    }

    /// Refuses a name whose entry has no room beside those of the same hash.
    pub(crate) fn check_room(&self, place: Place<'_>, slot: &Slot, freed: usize) -> Result<(), FsError> {
        let bytes = slot.item_bytes - freed + entry_bytes::<DirEntryHeader>(place.name, &[]);
        if bytes > self.core.item_bytes_max() {
            return Err(FsError::TooManyCollisions(place.name.to_vec()));
        }
        Ok(())
    }

    /// Target of an entry.
    pub(crate) fn child(&self, place: Place<'_>, entry: Entry) -> Result<Child, FsError> {
        let inode = self.target(place.directory, &entry.location, place.name)?;
        let target = match entry.location.item_type {
            KeyType::ROOT_ITEM if inode.is_empty_subvolume() => Target::Nothing,
            KeyType::ROOT_ITEM => Target::Subvolume(inode.tree),
            _ => Target::Inode,
        };
        Ok(Child { entry, target, inode: self.core.inode(inode) })
    }

    /// Does something with a name and what it stands for, both locked.
    pub(crate) fn with_child<T>(
        &self,
        directory: &Arc<Inode>,
        place: Place<'_>,
        act: impl FnOnce(&Child, &mut NameLocks<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let missing = || FsError::NotFound(place.name.to_vec());
        {
            let names = directory.names();
            let child = self.child(place, self.slot(place)?.entry.ok_or_else(missing)?)?;
            // As a rule a directory is older than what it holds, and comes first.
            if directory.id() < child.inode.id() {
                return act(&child, &mut NameLocks::in_order((directory, names), &child.inode));
            }
        }
        loop {
            let entry = self.slot(place)?.entry.ok_or_else(missing)?;
            let child = self.child(place, entry)?;
            let mut locks = lock_names(&[directory, &child.inode]);
            // Before the locks were held the name may have come to stand for something else.
            if self.slot(place)?.entry == Some(entry) {
                return act(&child, &mut locks);
            }
        }
    }

    /// The attributes of a directory that entries are to be added to or (`removing`) taken from.
    pub(crate) fn changeable_directory(
        &self,
        directory: InodeId,
        removing: bool,
    ) -> Result<Attributes, FsError> {
        let refuse = |why| Err(FsError::NotPermitted { file: directory, why });
        if directory.is_empty_subvolume() {
            return refuse("it stands for a subvolume that the snapshot does not have");
        }
        let attributes = self.items.attributes(directory)?;
        if attributes.kind != FileType::Directory {
            return Err(FsError::NotADirectory(directory));
        }
        if attributes.nlink == 0 {
            return Err(FsError::NoInode(directory));
        }
        if attributes.flags.contains(InodeFlags::IMMUTABLE) {
            return refuse("the directory is immutable");
        }
        if removing && attributes.flags.contains(InodeFlags::APPEND) {
            return refuse("the directory is append-only");
        }
        Ok(attributes)
    }

    /// An index for a new entry of a directory, never used before since the directory came into memory.
    pub(crate) fn new_index(
        &self,
        tree: &Arc<Tree>,
        directory: InodeId,
        names: &mut NameState,
    ) -> Result<u64, FsError> {
        let exhausted = || TreeError::NoSpace("directory indexes".to_owned());
        let index = match names.next_index {
            Some(index) => index,
            None => {
                let last = self.last_used_index(tree, directory)?;
                last.map_or(Some(FIRST_INDEX), |last| last.checked_add(1)).ok_or_else(exhausted)?
            }
        };
        names.next_index = Some(index.checked_add(1).ok_or_else(exhausted)?);
        Ok(index)
    }

    /// Record of an existing name of an inode.
    pub(crate) fn name_place(&self, place: Place<'_>, number: ObjectId) -> Result<NamePlace, FsError> {
        let parent = place.directory.number;
        let key = Key::new(number, KeyType::INODE_REF, parent.get());
        let found =
            self.core.pool().with_item(place.tree, &key, |data| NamePlace::in_item(place, &key, data))?;
        if let Some(found) = found.flatten() {
            return Ok(found);
        }
        let key = Key::new(number, KeyType::INODE_EXTREF, extref_hash(parent, place.name));
        let index = self.core.pool().with_item(place.tree, &key, |data| {
            let is_wanted = |header: &InodeExtrefHeader, name: &[u8]| {
                header.parent_objectid == parent && name == place.name
            };
            find(data, is_wanted).map(|found| found.header.index.get())
        })?;
        let missing = || {
            let defect = Defect::new("directory has a name that the inode lacks, number", number.get());
            let key = place.directory.key(KeyType::DIR_ITEM, name_hash(place.name));
            FsError::Item { file: place.directory, key, defect }
        };
        index.flatten().map(|index| NamePlace { index, form: NameForm::Extref }).ok_or_else(missing)
    }

    /// Item for a new name of an inode, when `leaving` in the same directory goes at the same time.
    pub(crate) fn new_name_form(
        &self,
        place: Place<'_>,
        number: ObjectId,
        leaving: Option<&[u8]>,
    ) -> Result<NameForm, FsError> {
        let parent = place.directory.number;
        let length =
            |key| self.core.pool().with_item(place.tree, &key, <[u8]>::len).map(|length| length.unwrap_or(0));
        let freed = leaving.map_or(0, |name| entry_bytes::<InodeRefHeader>(name, &[]));
        let used = length(Key::new(number, KeyType::INODE_REF, parent.get()))?;
        let new = entry_bytes::<InodeRefHeader>(place.name, &[]);
        if used.saturating_sub(freed) + new <= self.core.item_bytes_max() {
            return Ok(NameForm::Ref);
        }
        let has_extrefs = self.core.pool().superblock().incompat().contains(Incompat::EXTENDED_IREF);
        let used = length(Key::new(number, KeyType::INODE_EXTREF, extref_hash(parent, place.name)))?;
        let new = entry_bytes::<InodeExtrefHeader>(place.name, &[]);
        if !has_extrefs || used + new > self.core.item_bytes_max() {
            return Err(FsError::TooManyLinks(InodeId { tree: place.directory.tree, number }));
        }
        Ok(NameForm::Extref)
    }

    /// Returns true if a directory has no entries.
    pub(crate) fn is_empty_directory(&self, id: InodeId) -> Result<bool, FsError> {
        Ok(self.entries_after(id, 0, 1)?.is_empty())
    }
}

/// The edit of an entry as large as it was: how much it frees in its item, in bytes.
pub(crate) fn freed_entry_bytes(name: &[u8]) -> usize {
    entry_bytes::<DirEntryHeader>(name, &[])
}

/// Refuses to change names or attributes of what its flags protect.
pub(crate) fn frozen_flags(attributes: &Attributes) -> Result<(), FsError> {
    let refuse = |why| Err(FsError::NotPermitted { file: attributes.id, why });
    if attributes.flags.contains(InodeFlags::IMMUTABLE) {
        return refuse("it is immutable");
    }
    if attributes.flags.contains(InodeFlags::APPEND) {
        return refuse("it is append-only");
    }
    Ok(())
}
