//! Names and directories that go, and inodes with them.

use crate::attributes::{Attributes, InodeId};
use crate::core::Core;
use crate::core::edit::{Edit, Place, directory_bytes};
use crate::core::inodes::Inode;
use crate::directory::entry::{Child, NamePlace, Target, frozen_flags};
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::error_kind::ErrorKind;
use crate::namespace::Namespace;
use brindle_ondisk::item::{ExtentDataRef, FileExtent, FileType};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use brindle_sync::RwLockWriteGuard;
use brindle_tree::{DataRange, RESCUE_ITEMS, Readahead, Tree, TreeError, Verdict};
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};

/// Upper bound on the items of an inode that goes as a whole, with its last name.
const ITEMS_AT_ONCE: usize = 32;

/// Effect of losing a name on an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The inode has other names.
    Stays,
    /// The inode goes at once, with this number of items.
    Goes(usize),
    /// The inode is marked, and goes later.
    Waits,
}

/// An inode that is to lose a name.
#[derive(Debug)]
pub(crate) struct Leaving<'i> {
    number: ObjectId,
    place: NamePlace,
    nlink: u32,
    fate: Fate,
    /// The inode's gate, if it goes at once: its contents are not in use meanwhile, nor found afterwards.
    _alone: Option<RwLockWriteGuard<'i, ()>>,
}

/// The second step of `remove_directory`, without the locks of the first.
enum Left {
    Nothing,
    /// An inode that bears the mark and is not open.
    Inode(Arc<Inode>),
    /// An empty subvolume, which still has its name.
    Subvolume(RootId),
}

impl Leaving<'_> {
    /// Upper bound on the changed items, the directory not counted.
    pub(crate) fn items(&self) -> usize {
        match self.fate {
            Fate::Goes(items) => 4 + items,
            Fate::Stays | Fate::Waits => 5,
        }
    }

    /// Returns true if it has to be removed as soon as it has no openers.
    pub(crate) fn has_to_go(&self) -> bool {
        self.fate == Fate::Waits
    }

    /// The index of the name in its directory.
    pub(crate) fn index(&self) -> u64 {
        self.place.index
    }

    pub(crate) fn is_last(&self) -> bool {
        self.fate != Fate::Stays
    }
}

impl Namespace {
    pub(crate) fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        check_name(name)?;
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let access = subvolume.begin_write()?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        let left = self.directories.with_child(&self.core.directory(parent), place, |child, locks| {
            self.directories.changeable_directory(parent, true)?;
            if child.entry.kind == FileType::Directory {
                return Err(FsError::IsADirectory(child.inode.id()));
            }
            let before = self.items.attributes(child.inode.id())?;
            let leaving = self.leaving(place, &before, &child.inode, locks.of(before.id).opens)?;
            let leaving = self.part_with(place, leaving)?;
            locks.of(before.id).is_unnamed = leaving.is_last();
            let has_to_go = leaving.has_to_go() && locks.of(before.id).opens == 0;
            Ok(has_to_go.then(|| Arc::clone(&child.inode)))
        })?;
        drop(access);
        left.map_or(Ok(()), |inode| self.orphans.remove_unnamed(&inode))
    }

    pub(crate) fn remove_directory(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        check_name(name)?;
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let access = subvolume.begin_write()?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        let left = self.directories.with_child(&self.core.directory(parent), place, |child, locks| {
            self.directories.changeable_directory(parent, true)?;
            let id = child.inode.id();
            if child.entry.kind != FileType::Directory {
                return Err(FsError::NotADirectory(id));
            }
            if child.target == Target::Nothing {
                self.remove_empty_place(place)?;
                return Ok(Left::Nothing);
            }
            if !self.directories.is_empty_directory(id)? {
                return Err(FsError::NotEmpty(id));
            }
            if let Target::Subvolume(below) = child.target {
                return Ok(Left::Subvolume(below));
            }
            let before = self.items.attributes(id)?;
            let leaving = self.leaving(place, &before, &child.inode, locks.of(id).opens)?;
            let leaving = self.part_with(place, leaving)?;
            locks.of(id).is_unnamed = true;
            let has_to_go = leaving.has_to_go() && locks.of(id).opens == 0;
            Ok(if has_to_go { Left::Inode(Arc::clone(&child.inode)) } else { Left::Nothing })
        })?;
        drop(access);
        match left {
            Left::Nothing => Ok(()),
            Left::Inode(inode) => self.orphans.remove_unnamed(&inode),
            // It goes by rules of its own, and by locks that come before those held here.
            Left::Subvolume(below) => self.subvolumes.delete_subvolume_if_empty(below),
        }
    }

    /// Takes a name out of its directory. An inode with many items, for which there is no room to go at once, is marked, and goes in
    /// pieces.
    fn part_with<'i>(&self, place: Place<'_>, mut leaving: Leaving<'i>) -> Result<Leaving<'i>, FsError> {
        loop {
            let items = leaving.items() + 1;
            let done = self.core.change(Core::removal(place.tree, items), |edit| {
                edit.lose_name(place, &leaving)?;
                edit.directory(place.tree, place.directory.number, -directory_bytes(place.name))
            });
            match done {
                Err(error) if error.kind() == ErrorKind::NoSpace && items > RESCUE_ITEMS => {
                    leaving.fate = Fate::Waits;
                }
                done => return done.map(|()| leaving),
            }
        }
    }

    /// Removes the place of a subvolume that a snapshot did not take along: a name, and nothing else.
    fn remove_empty_place(&self, place: Place<'_>) -> Result<(), FsError> {
        let mut after = 0;
        let index = loop {
            let entries = self.directories.entries_after(place.directory, after, 1024)?;
            let last = entries.last().ok_or_else(|| FsError::NotFound(place.name.to_vec()))?.index;
            if let Some(found) = entries.iter().find(|entry| entry.name == place.name) {
                break found.index;
            }
            after = last;
        };
        self.core.change(Core::removal(place.tree, 3), |edit| {
            edit.note_subvolume();
            edit.remove_entry(place, index)?;
            edit.directory(place.tree, place.directory.number, -directory_bytes(place.name))
        })
    }

    /// Effect of losing this name on an inode whose names are locked.
    pub(crate) fn leaving<'i>(
        &self,
        place: Place<'_>,
        before: &Attributes,
        inode: &'i Inode,
        opens: u32,
    ) -> Result<Leaving<'i>, FsError> {
        frozen_flags(before)?;
        let number = before.id.number;
        let (mut found, mut alone) = (None, None);
        let fate = if before.nlink > 1 {
            Fate::Stays
        } else {
            alone = inode.data.try_exclusive().filter(|_| opens == 0 && inode.data.is_clean());
            let items = match alone {
                Some(_) => self.look_through(place, number, &mut found)?,
                None => None,
            };
            items.map_or(Fate::Waits, Fate::Goes)
        };
        let place = found.map_or_else(|| self.directories.name_place(place, number), Ok)?;
        Ok(Leaving { number, place, nlink: before.nlink, fate, _alone: alone })
    }

    /// Number of an inode's items; `None` if they are too many to go at once. The record of the name is found on the
    /// way, if it is in its usual place.
    fn look_through(
        &self,
        place: Place<'_>,
        number: ObjectId,
        name: &mut Option<NamePlace>,
    ) -> Result<Option<usize>, FsError> {
        let mut cursor = self.core.pool().cursor(place.tree, Readahead::None);
        cursor.seek(&Key::new(number, KeyType::INODE_ITEM, 0))?;
        for count in 0..=ITEMS_AT_ONCE {
            let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == number) else {
                return Ok(Some(count));
            };
            *name = name.or_else(|| NamePlace::in_item(place, &key, data));
            cursor.next()?;
        }
        Ok(None)
    }
}

/// The lock of a child's names is held, and so are its parent's.
impl Edit<'_> {
    /// Takes a name away, and the inode with it if it is the last one and nothing is in the way.
    pub(crate) fn lose_name(&self, place: Place<'_>, leaving: &Leaving<'_>) -> Result<(), TreeError> {
        self.remove_entry(place, leaving.place.index)?;
        self.lose_inode_name(place, leaving)
    }

    /// The same, where the directory's entry stands for something else by now.
    pub(crate) fn lose_inode_name(&self, place: Place<'_>, leaving: &Leaving<'_>) -> Result<(), TreeError> {
        self.note_name(place.directory, place.name, leaving.number);
        if leaving.is_last() {
            self.note_gone(place.directory.tree, leaving.number);
        }
        if let Fate::Goes(_) = leaving.fate {
            return self.remove_inode(place.tree, leaving.number);
        }
        self.remove_name(place, leaving.number, leaving.place.form)?;
        if leaving.fate == Fate::Waits {
            self.add_orphan(place.tree, leaving.number)?;
        }
        self.inode(place.tree, leaving.number, |item| {
            item.nlink.set(leaving.nlink.saturating_sub(1));
            item.ctime = self.now;
        })
    }

    /// Removes all items of an inode, and what they refer to.
    pub(crate) fn remove_inode(&self, tree: &Tree, number: ObjectId) -> Result<(), TreeError> {
        let first = Key::new(number, KeyType(0), 0);
        let last = Key::new(number, KeyType(u8::MAX), u64::MAX);
        self.remove_inode_items(tree, &first, &last)
    }

    /// Removes items of an inode, the first and the last key included, and what they refer to.
    pub(crate) fn remove_inode_items(&self, tree: &Tree, first: &Key, last: &Key) -> Result<(), TreeError> {
        let mut dropped = Vec::new();
        self.editor.remove_range(tree, first, last, |key, data| {
            dropped.extend(reference(tree.id(), key, data));
            Verdict::Remove
        })?;
        for (range, reference) in dropped {
            self.editor.references().drop_data(range, &reference);
        }
        Ok(())
    }
}

/// The extent on disk that an item refers to, and how.
fn reference(tree: RootId, key: &Key, data: &[u8]) -> Option<(DataRange, ExtentDataRef)> {
    let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) = Item::parse(key, data) else {
        return None;
    };
    if extent.disk_bytenr.get() == 0 {
        return None;
    }
    let range = DataRange { start: extent.disk_bytenr, length: extent.disk_num_bytes.get() };
    let offset = key.offset().wrapping_sub(extent.offset.get());
    let reference =
        ExtentDataRef { root: tree, objectid: key.objectid, offset: U64::new(offset), count: U32::new(1) };
    Some((range, reference))
}

impl Child {
    /// The subvolume that it is, if it is one.
    pub(crate) fn subvolume(&self) -> Option<RootId> {
        match self.target {
            Target::Subvolume(id) => Some(id),
            Target::Inode | Target::Nothing => None,
        }
    }
}
