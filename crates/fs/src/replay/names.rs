//! Names of a log: what directories and inodes say of each other, and the number of links that follows.

use super::Replay;
use crate::attributes::InodeId;
use crate::core::edit::Entry;
use crate::core::edit::NameForm;
use crate::core::edit::Place;
use crate::core::edit::directory_bytes;
use crate::core::edit::orphan_key;
use crate::directory::entry::NamePlace;
use crate::error::FsError;
use crate::packed::find;
use brindle_ondisk::item::{
    DirEntry, DirEntryHeader, FileType, InodeExtrefHeader, InodeItem, InodeRefHeader,
};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, extref_hash};
use brindle_tree::Readahead;
use std::ops::RangeInclusive;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// A name as an inode has it: the directory, the index there, the name.
type Name<'n> = (ObjectId, u64, &'n [u8]);

impl<'a> Replay<'a> {
    fn place<'n>(&self, parent: ObjectId, name: &'n [u8]) -> Place<'n>
    where
        'a: 'n,
    {
        Place { tree: self.tree, directory: self.id(parent), name }
    }

    /// Removes the names of a directory, in a range of indexes, that the log does not have.
    pub(super) fn drop_names(
        &mut self,
        directory: ObjectId,
        range: RangeInclusive<u64>,
    ) -> Result<(), FsError> {
        for (index, name, location) in self.entries(directory, range)? {
            let key = Key::new(directory, KeyType::DIR_INDEX, index);
            let is_logged = self.core.pool().with_item(&self.log.tree, &key, |data| {
                find::<DirEntryHeader>(data, |_, logged| logged == &name[..]).is_some()
            })?;
            if is_logged != Some(true) && location.item_type == KeyType::INODE_ITEM {
                self.remove(self.place(directory, &name), index, location.objectid)?;
            }
        }
        Ok(())
    }

    /// The entries of a directory in a range of indexes: index, name, and what it stands for.
    fn entries(
        &self,
        directory: ObjectId,
        range: RangeInclusive<u64>,
    ) -> Result<Vec<(u64, Vec<u8>, Key)>, FsError> {
        let mut cursor = self.core.pool().cursor(self.tree, Readahead::Forward);
        cursor.seek(&Key::new(directory, KeyType::DIR_INDEX, *range.start()))?;
        let mut found = Vec::new();
        while let Some((key, data)) = cursor.item().filter(|(key, _)| {
            (key.objectid, key.item_type) == (directory, KeyType::DIR_INDEX) && key.offset() <= *range.end()
        }) {
            if let Ok(Item::DirIndex(mut entries)) = Item::parse(&key, data) {
                if let Some(Ok(entry)) = entries.next() {
                    found.push((key.offset(), entry.name.to_vec(), entry.header.location));
                }
            }
            cursor.next()?;
        }
        Ok(found)
    }

    /// A name that a directory has. If the inode says so too, it will have its turn.
    pub(super) fn replay_entry(
        &mut self,
        directory: ObjectId,
        index: u64,
        entry: &DirEntry<'_>,
    ) -> Result<(), FsError> {
        let location = entry.header.location;
        let number = location.objectid;
        if location.item_type != KeyType::INODE_ITEM
            || self.is_logged_name(number, directory, entry.name)?
            || self.inode_item(number)?.is_none()
        {
            return Ok(());
        }
        let form = self.directories.new_name_form(self.place(directory, entry.name), number, None)?;
        self.give(number, (directory, index, entry.name), form)
    }

    /// Returns true if the log has a name by its inode.
    fn is_logged_name(&self, number: ObjectId, parent: ObjectId, name: &[u8]) -> Result<bool, FsError> {
        let pool = self.core.pool();
        let key = Key::new(number, KeyType::INODE_REF, parent.get());
        let is_there = pool.with_item(&self.log.tree, &key, |data| {
            find::<InodeRefHeader>(data, |_, logged| logged == name).is_some()
        })?;
        if is_there == Some(true) {
            return Ok(true);
        }
        let key = Key::new(number, KeyType::INODE_EXTREF, extref_hash(parent, name));
        let is_there = pool.with_item(&self.log.tree, &key, |data| {
            let is_wanted = |header: &InodeExtrefHeader, logged: &[u8]| {
                header.parent_objectid == parent && logged == name
            };
            find(data, is_wanted).is_some()
        })?;
        Ok(is_there == Some(true))
    }

    /// All names of one item of an inode: it has these, and of those that the item had before no others.
    pub(super) fn replay_names(&mut self, key: &Key, names: &[Name<'_>]) -> Result<(), FsError> {
        let number = key.objectid;
        // A subvolume's root says that it is its own parent, which is no name.
        if number == InodeId::root_of(self.tree.id()).number || self.inode_item(number)?.is_none() {
            return Ok(());
        }
        for (parent, index, name) in self.names_in(key)? {
            if !self.is_logged_name(number, parent, &name)? {
                self.remove(self.place(parent, &name), index, number)?;
            }
        }
        let form = if key.item_type == KeyType::INODE_REF { NameForm::Ref } else { NameForm::Extref };
        for name in names.iter().copied() {
            // A directory that is neither in the log nor in the subvolume has gone.
            if self.inode_item(name.0)?.is_some_and(|item| item.is_directory()) {
                self.give(number, name, form)?;
            }
        }
        Ok(())
    }

    /// The names that an inode has in one item.
    fn names_in(&self, key: &Key) -> Result<Vec<(ObjectId, u64, Vec<u8>)>, FsError> {
        let mut found = Vec::new();
        self.core.pool().with_item(self.tree, key, |data| match Item::parse(key, data) {
            Ok(Item::InodeRef(names)) => {
                let parent = ObjectId::new(key.offset());
                found.extend(names.flatten().map(|name| (parent, name.index, name.name.to_vec())));
            }
            Ok(Item::InodeExtref(names)) => {
                found.extend(names.flatten().map(|name| (name.parent, name.index, name.name.to_vec())));
            }
            _ => {}
        })?;
        Ok(found)
    }

    /// Gives an inode a name. The owner of the name, or of its index, loses it.
    fn give(&mut self, number: ObjectId, name: Name<'_>, form: NameForm) -> Result<(), FsError> {
        let (parent, index, bytes) = name;
        let place = self.place(parent, bytes);
        let location = Key::new(number, KeyType::INODE_ITEM, 0);
        if let Some(entry) = self.directories.slot(place)?.entry {
            if entry.location.item_type != KeyType::INODE_ITEM {
                tracing::warn!("log: a name in {} is that of a subvolume, and stays", place.directory);
                return Ok(());
            }
            let before = self.directories.name_place(place, entry.location.objectid)?;
            if entry.location == location && before == (NamePlace { index, form }) {
                return Ok(());
            }
            self.remove(place, before.index, entry.location.objectid)?;
        }
        for (index, other, location) in self.entries(parent, index..=index)? {
            self.remove(self.place(parent, &other), index, location.objectid)?;
        }
        let Some(item) = self.inode_item(number)? else { return Ok(()) };
        let kind = FileType::from_mode(item.mode.get()).unwrap_or(FileType::Regular);
        self.edit.add_entry(place, index, Entry { location, kind })?;
        self.edit.add_name(place, number, index, form)?;
        self.resize(parent, directory_bytes(bytes))?;
        self.touched.insert(number);
        Ok(())
    }

    /// Takes a name from an inode.
    fn remove(&mut self, place: Place<'_>, index: u64, number: ObjectId) -> Result<(), FsError> {
        let form = self.directories.name_place(place, number)?.form;
        self.edit.remove_entry(place, index)?;
        self.edit.remove_name(place, number, form)?;
        self.resize(place.directory.number, -directory_bytes(place.name))?;
        self.touched.insert(number);
        Ok(())
    }

    /// A directory's size follows its names; its times are those that were logged.
    fn resize(&self, directory: ObjectId, by: i64) -> Result<(), FsError> {
        self.change_inode(directory, |item| item.size.set(item.size.get().saturating_add_signed(by)))
    }

    fn change_inode(&self, number: ObjectId, change: impl FnOnce(&mut InodeItem)) -> Result<(), FsError> {
        let key = Key::new(number, KeyType::INODE_ITEM, 0);
        self.edit
            .editor
            .update(self.tree, &key, |data| InodeItem::mut_from_bytes(data).map(change).is_ok())?;
        Ok(())
    }

    /// Gives every inode whose names have changed the number of links that it has now. A directory that has no name left
    /// takes the names in it along.
    pub(super) fn settle_links(&mut self) -> Result<(), FsError> {
        while let Some(number) = self.touched.pop_first() {
            let Some(item) = self.inode_item(number)? else { continue };
            let names = self.count_names(number)?;
            if names == 0 && item.is_directory() {
                for (index, name, location) in self.entries(number, 0..=u64::MAX)? {
                    if location.item_type == KeyType::INODE_ITEM {
                        self.remove(self.place(number, &name), index, location.objectid)?;
                    }
                }
            }
            let nlink = if item.is_directory() { names.min(1) } else { names };
            if item.nlink.get() != nlink {
                self.change_inode(number, |item| item.nlink = U32::new(nlink))?;
            }
            let has_mark = |key| self.core.pool().with_item(self.tree, key, |_| ());
            if nlink == 0 && has_mark(&orphan_key(number))?.is_none() {
                self.edit.add_orphan(self.tree, number)?;
            }
        }
        Ok(())
    }

    fn count_names(&self, number: ObjectId) -> Result<u32, FsError> {
        let mut cursor = self.core.pool().cursor(self.tree, Readahead::None);
        cursor.seek(&Key::first_of(number, KeyType::INODE_REF))?;
        let mut count = 0;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == number) {
            count += match Item::parse(&key, data) {
                Ok(Item::InodeRef(names)) => names.flatten().count(),
                Ok(Item::InodeExtref(names)) => names.flatten().count(),
                _ => break,
            };
            cursor.next()?;
        }
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
