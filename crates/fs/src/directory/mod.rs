//! Directories: lookup by the hash of a name, listing by index.

pub(crate) mod damaged;
pub(crate) mod entry;
pub(crate) mod location;
pub(crate) mod name;

use crate::attributes::InodeId;
use crate::core::Core;
use crate::directory::name::NAME_BYTES_MAX;
use crate::error::FsError;
use crate::items::InodeItems;
use brindle_ondisk::item::{DirEntry, FileType};
use brindle_ondisk::{Defect, Item, Key, KeyType, RootId, name_hash};
use brindle_tree::{Readahead, Tree};
use std::sync::Arc;

/// The index of a directory's first entry (`BTRFS_DIR_START_INDEX`).
pub(crate) const FIRST_INDEX: u64 = 2;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Target.
    pub inode: InodeId,
    /// Type of the target.
    pub kind: FileType,
    /// The place in the directory: entries are listed in ascending order of it, and it is never used twice.
    pub index: u64,
}

/// Names, as the items of directories, inodes and subvolumes tell them.
#[derive(Debug)]
pub(crate) struct Directories {
    core: Arc<Core>,
    items: Arc<InodeItems>,
}

impl Directories {
    pub(crate) fn new(core: Arc<Core>, items: Arc<InodeItems>) -> Self {
        Self { core, items }
    }

    pub(crate) fn lookup(&self, directory: InodeId, name: &[u8]) -> Result<Option<DirectoryEntry>, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong(name.to_vec()));
        }
        if directory.is_empty_subvolume() || name.is_empty() {
            return Ok(None);
        }
        let tree = self.core.tree(directory.tree)?;
        let key = directory.key(KeyType::DIR_ITEM, name_hash(name));
        let find = |data: &[u8]| find_entry(directory, &key, data, name);
        let Some(found) = self.core.pool().with_item(&tree, &key, find)?.transpose()?.flatten() else {
            return Ok(None);
        };
        let inode = self.target(directory, &found.location, name)?;
        Ok(Some(DirectoryEntry { name: name.to_vec(), inode, kind: found.kind, index: 0 }))
    }

    pub(crate) fn read_directory(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        if directory.is_empty_subvolume() {
            return Ok(Vec::new());
        }
        let inode = self.core.inode(directory);
        let _names = inode.names();
        self.entries_after(directory, after, limit)
    }

    /// Entries as [`read_directory`](Self::read_directory) has them, for callers that hold the lock of the directory's names
    /// or don't need it: without the lock, what moves may be seen by both of its names.
    pub(crate) fn entries_after(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FsError> {
        let mut entries = Vec::new();
        let Some(first) = after.checked_add(1).filter(|_| !directory.is_empty_subvolume()) else {
            return Ok(entries);
        };
        let tree = self.core.tree(directory.tree)?;
        let mut cursor = self.core.pool().cursor(&tree, Readahead::Forward);
        cursor.seek(&directory.key(KeyType::DIR_INDEX, first))?;
        while entries.len() < limit {
            let Some((key, data)) = cursor.item() else {
                break;
            };
            if (key.objectid, key.item_type) != (directory.number, KeyType::DIR_INDEX) {
                break;
            }
            entries.extend(self.index_entry(directory, key, data)?);
            cursor.next()?;
        }
        Ok(entries)
    }

    /// The entry of an item.
    fn index_entry(
        &self,
        directory: InodeId,
        key: Key,
        data: &[u8],
    ) -> Result<Option<DirectoryEntry>, FsError> {
        let refuse = |defect| FsError::Item { file: directory, key, defect };
        let Item::DirIndex(mut packed) = Item::parse(&key, data).map_err(refuse)? else {
            return Ok(None);
        };
        let Some(entry) = packed.next() else { return Ok(None) };
        let entry = entry.map_err(refuse)?;
        let inode = self.target(directory, &entry.header.location, entry.name)?;
        let kind = kind_of(&entry).map_err(refuse)?;
        Ok(Some(DirectoryEntry { name: entry.name.to_vec(), inode, kind, index: key.offset() }))
    }

    pub(crate) fn last_index(&self, directory: InodeId) -> Result<u64, FsError> {
        let last = match directory.is_empty_subvolume() {
            true => None,
            false => self.last_used_index(&self.core.tree(directory.tree)?, directory)?,
        };
        Ok(last.unwrap_or(FIRST_INDEX - 1))
    }

    /// The greatest index of a directory's entries in the tree that it is in, if it has any.
    pub(crate) fn last_used_index(
        &self,
        tree: &Arc<Tree>,
        directory: InodeId,
    ) -> Result<Option<u64>, FsError> {
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek_last(&directory.key(KeyType::DIR_INDEX, u64::MAX))?;
        let is_index = |key: &Key| (key.objectid, key.item_type) == (directory.number, KeyType::DIR_INDEX);
        Ok(cursor.key().filter(is_index).map(|last| last.offset()))
    }

    pub(crate) fn resolve(&self, start: InodeId, path: &[u8]) -> Result<InodeId, FsError> {
        let mut at = start;
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        for part in parts {
            at = match self.lookup(at, part)? {
                Some(entry) => entry.inode,
                None => return Err(FsError::NotFound(path.to_vec())),
            };
        }
        Ok(at)
    }

    /// Target of a location: an inode of the same tree, the root of a subvolume, or the empty place of a subvolume
    /// that belongs to another parent (this tree is then a snapshot of that one).
    pub(crate) fn target(&self, directory: InodeId, location: &Key, name: &[u8]) -> Result<InodeId, FsError> {
        if location.item_type != KeyType::ROOT_ITEM {
            return Ok(InodeId { tree: directory.tree, number: location.objectid });
        }
        let subvolume = RootId::new(location.objectid.get());
        let key = Key::new(directory.tree.object_id(), KeyType::ROOT_REF, subvolume.get());
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let is_child =
            self.core.pool().with_item(&root_tree, &key, |data| match Item::parse(&key, data) {
                Ok(Item::RootRef(reference)) => reference.dirid == directory.number && reference.name == name,
                _ => false,
            })?;
        if is_child == Some(true) {
            Ok(InodeId::root_of(subvolume))
        } else {
            Ok(InodeId::empty_subvolume(directory.tree))
        }
    }
}

struct Found {
    location: Key,
    kind: FileType,
}

/// The entry of this name among those of its hash.
fn find_entry(directory: InodeId, key: &Key, data: &[u8], name: &[u8]) -> Result<Option<Found>, FsError> {
    let refuse = |defect| FsError::Item { file: directory, key: *key, defect };
    let Item::DirItem(mut entries) = Item::parse(key, data).map_err(refuse)? else {
        return Ok(None);
    };
    let entry = entries.find(|entry| entry.as_ref().map_or(true, |entry| entry.name == name));
    let Some(entry) = entry.transpose().map_err(refuse)? else {
        return Ok(None);
    };
    let kind = kind_of(&entry).map_err(refuse)?;
    Ok(Some(Found { location: entry.header.location, kind }))
}

fn kind_of(entry: &DirEntry<'_>) -> Result<FileType, Defect> {
    entry.file_type().ok_or(Defect::new("unknown type of directory entry", entry.header.file_type.into()))
}
