//! The edits that operations on names are made of, each of one or two items. They are done when everything has been
//! checked, and have nothing to refuse.

use crate::attributes::InodeId;
use crate::core::log_book::LogBook;
use crate::packed::{append, remove};
use brindle_ondisk::item::{
    DirEntryHeader, FileType, InodeExtrefHeader, InodeItem, InodeRefHeader, RootRefHeader, Timespec,
};
use brindle_ondisk::{Defect, Generation, Key, KeyType, ObjectId, RootId, extref_hash, name_hash, to_u64};
use brindle_tree::{Editor, Tree, TreeError, Unlogged};
use std::sync::Arc;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Part in the running transaction, and the time at which the operation happens.
#[derive(Debug)]
pub(crate) struct Edit<'p> {
    pub(crate) editor: Editor<'p>,
    pub(crate) now: Timespec,
    /// Notes of what changes, for fsyncs.
    pub(crate) log_book: &'p LogBook,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The directory's subvolume.
    pub(crate) tree: &'a Arc<Tree>,
    /// The directory.
    pub(crate) directory: InodeId,
    /// The name.
    pub(crate) name: &'a [u8],
}

/// Directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The inode item, or the root item of a subvolume.
    pub(crate) location: Key,
    /// Type of the target.
    pub(crate) kind: FileType,
}

/// Item in which an inode keeps one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameForm {
    /// With the others that it has in the same directory.
    Ref,
    /// Item of its own, when there is no more room in the shared one.
    Extref,
}

impl Edit<'_> {
    pub(crate) fn generation(&self) -> Generation {
        self.editor.generation()
    }

    /// Notes for the log that an entry comes.
    fn note_entry(&self, place: Place<'_>, index: u64) {
        self.log_book.note_entry(self.generation(), place.directory, index, name_hash(place.name));
    }

    /// Notes for the log that an entry goes.
    fn note_lost_entry(&self, place: Place<'_>, index: u64) {
        self.log_book.note_lost_entry(self.generation(), place.directory, index, name_hash(place.name));
    }

    /// Notes for the log that an inode gets or loses a name.
    pub(crate) fn note_name(&self, directory: InodeId, name: &[u8], number: ObjectId) {
        let inode = InodeId { tree: directory.tree, number };
        self.log_book.note_name(self.generation(), directory, name_hash(name), inode);
    }

    /// Notes for the log that an inode loses its last name.
    pub(crate) fn note_gone(&self, tree: RootId, number: ObjectId) {
        self.log_book.note_gone(self.generation(), InodeId { tree, number });
    }

    /// Notes for the log that a directory moves.
    pub(crate) fn note_moved(&self, directory: InodeId) {
        self.log_book.note_moved(self.generation(), directory);
    }

    /// Notes that the name of a subvolume comes or goes, which no log tells.
    pub(crate) fn note_subvolume(&self) {
        self.log_book.give_up_names(self.generation(), Unlogged::Names);
    }

    /// Changes an inode item, and moves its transaction and change counter on.
    pub(crate) fn inode<T>(
        &self,
        tree: &Tree,
        number: ObjectId,
        change: impl FnOnce(&mut InodeItem) -> T,
    ) -> Result<T, TreeError> {
        let key = Key::new(number, KeyType::INODE_ITEM, 0);
        let changed = self.editor.update(tree, &key, |data| {
            let item = InodeItem::mut_from_bytes(data).ok()?;
            let changed = change(item);
            item.transid = self.generation();
            item.sequence.set(item.sequence.get().wrapping_add(1));
            Some(changed)
        })?;
        let gone =
            || TreeError::item(tree.id(), key, Defect::new("inode item has gone, number", number.get()));
        changed.flatten().ok_or_else(gone)
    }

    /// Changes the size of a directory by `grown` bytes, and its times.
    pub(crate) fn directory(&self, tree: &Tree, number: ObjectId, grown: i64) -> Result<(), TreeError> {
        self.inode(tree, number, |item| {
            item.size.set(item.size.get().saturating_add_signed(grown));
            (item.mtime, item.ctime) = (self.now, self.now);
        })
    }

    fn packed_entry(&self, place: Place<'_>, entry: Entry) -> Vec<u8> {
        let header = DirEntryHeader {
            location: entry.location,
            transid: self.generation(),
            data_len: U16::new(0),
            name_len: name_length(place.name),
            file_type: entry.kind as u8,
        };
        let mut packed = Vec::new();
        append(&mut packed, &header, place.name, &[]);
        packed
    }

    /// Adds an entry to a directory.
    pub(crate) fn add_entry(&self, place: Place<'_>, index: u64, entry: Entry) -> Result<(), TreeError> {
        self.note_entry(place, index);
        let packed = self.packed_entry(place, entry);
        self.editor.insert(place.tree, &place.directory.key(KeyType::DIR_INDEX, index), &packed)?;
        let key = place.directory.key(KeyType::DIR_ITEM, name_hash(place.name));
        self.editor.edit(place.tree, &key, |data| data.extend_from_slice(&packed))
    }

    /// Lets an entry stand for something else, with another index. The name is found, and listed, all the time.
    pub(crate) fn replace_entry(
        &self,
        place: Place<'_>,
        old_index: u64,
        index: u64,
        entry: Entry,
    ) -> Result<(), TreeError> {
        self.note_lost_entry(place, old_index);
        self.note_entry(place, index);
        let packed = self.packed_entry(place, entry);
        self.editor.insert(place.tree, &place.directory.key(KeyType::DIR_INDEX, index), &packed)?;
        let key = place.directory.key(KeyType::DIR_ITEM, name_hash(place.name));
        self.editor.edit(place.tree, &key, |data| {
            remove(data, |_: &DirEntryHeader, name: &[u8]| name == place.name);
            data.extend_from_slice(&packed);
        })?;
        self.editor.remove(place.tree, &place.directory.key(KeyType::DIR_INDEX, old_index)).map(|_| ())
    }

    /// Removes an entry from a directory.
    pub(crate) fn remove_entry(&self, place: Place<'_>, index: u64) -> Result<(), TreeError> {
        self.note_lost_entry(place, index);
        self.editor.remove(place.tree, &place.directory.key(KeyType::DIR_INDEX, index))?;
        let key = place.directory.key(KeyType::DIR_ITEM, name_hash(place.name));
        let is_wanted = |_: &DirEntryHeader, name: &[u8]| name == place.name;
        self.editor.edit(place.tree, &key, |data| remove(data, is_wanted)).map(|_| ())
    }

    /// Adds a name to an inode.
    pub(crate) fn add_name(
        &self,
        place: Place<'_>,
        number: ObjectId,
        index: u64,
        form: NameForm,
    ) -> Result<(), TreeError> {
        self.note_name(place.directory, place.name, number);
        let (parent, name_len) = (place.directory.number, name_length(place.name));
        let index = U64::new(index);
        match form {
            NameForm::Ref => {
                let key = Key::new(number, KeyType::INODE_REF, parent.get());
                let header = InodeRefHeader { index, name_len };
                self.editor.edit(place.tree, &key, |data| append(data, &header, place.name, &[]))
            }
            NameForm::Extref => {
                let key = Key::new(number, KeyType::INODE_EXTREF, extref_hash(parent, place.name));
                let header = InodeExtrefHeader { parent_objectid: parent, index, name_len };
                self.editor.edit(place.tree, &key, |data| append(data, &header, place.name, &[]))
            }
        }
    }

    /// Removes a name from an inode.
    pub(crate) fn remove_name(
        &self,
        place: Place<'_>,
        number: ObjectId,
        form: NameForm,
    ) -> Result<(), TreeError> {
        self.note_name(place.directory, place.name, number);
        let parent = place.directory.number;
        match form {
            NameForm::Ref => {
                let key = Key::new(number, KeyType::INODE_REF, parent.get());
                let is_wanted = |_: &InodeRefHeader, name: &[u8]| name == place.name;
                self.editor.edit(place.tree, &key, |data| remove(data, is_wanted))?;
            }
            NameForm::Extref => {
                let key = Key::new(number, KeyType::INODE_EXTREF, extref_hash(parent, place.name));
                let is_wanted = |header: &InodeExtrefHeader, name: &[u8]| {
                    header.parent_objectid == parent && name == place.name
                };
                self.editor.edit(place.tree, &key, |data| remove(data, is_wanted))?;
            }
        }
        Ok(())
    }

    /// Links a subvolume to the directory that has its name.
    pub(crate) fn add_root_reference(
        &self,
        place: Place<'_>,
        child: RootId,
        index: u64,
    ) -> Result<(), TreeError> {
        self.note_subvolume();
        let root_tree = self.editor.store().tree(RootId::ROOT_TREE)?;
        let header = RootRefHeader {
            dirid: place.directory.number,
            sequence: U64::new(index),
            name_len: name_length(place.name),
        };
        let data = [header.as_bytes(), place.name].concat();
        let [forth, back] = root_reference_keys(place.directory.tree, child);
        self.editor.insert(&root_tree, &forth, &data)?;
        self.editor.insert(&root_tree, &back, &data)
    }

    /// Takes the link between a subvolume and its parent away.
    pub(crate) fn remove_root_reference(&self, parent: RootId, child: RootId) -> Result<(), TreeError> {
        self.note_subvolume();
        let root_tree = self.editor.store().tree(RootId::ROOT_TREE)?;
        for key in root_reference_keys(parent, child) {
            self.editor.remove(&root_tree, &key)?;
        }
        Ok(())
    }

    /// Marks an inode of a subvolume, or a subvolume in the tree of roots, as one that is to go.
    pub(crate) fn add_orphan(&self, tree: &Tree, number: ObjectId) -> Result<(), TreeError> {
        self.editor.insert(tree, &orphan_key(number), &[])
    }

    /// Takes the mark away.
    pub(crate) fn remove_orphan(&self, tree: &Tree, number: ObjectId) -> Result<(), TreeError> {
        self.editor.remove(tree, &orphan_key(number)).map(|_| ())
    }
}

/// The key of the mark of what is to go.
pub(crate) const fn orphan_key(number: ObjectId) -> Key {
    Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, number.get())
}

/// The keys of the link from a subvolume to one below it, and of the way back.
pub(crate) const fn root_reference_keys(parent: RootId, child: RootId) -> [Key; 2] {
    [
        Key::new(parent.object_id(), KeyType::ROOT_REF, child.get()),
        Key::new(child.object_id(), KeyType::ROOT_BACKREF, parent.get()),
    ]
}

/// Bytes that a name adds to the size of its directory: it is there twice, by hash and by index.
pub(crate) fn directory_bytes(name: &[u8]) -> i64 {
    i64::try_from(to_u64(name.len()) * 2).expect("names are short")
}

/// The length of a name that has passed [`check_name`](super::check_name).
pub(crate) fn name_length(name: &[u8]) -> U16 {
    U16::new(u16::try_from(name.len()).expect("names are short"))
}
