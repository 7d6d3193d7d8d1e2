//! Files below a directory, by the trees of a pool in all its guises: what a mount shows, subvolumes below included.

use crate::control::{ControlError, Mounted};
use crate::extents::Inode;
use crate::pool::AdminError;
use crate::trees::{Trees, joined};
use brindle_ondisk::item::{FileType, InodeItem};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use brindle_policy::tier::files::{MARK, SMALL_FILES, limit_of};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// A file or directory that was met.
#[derive(Debug)]
pub struct Met<'w> {
    /// Its path from the start; empty for the start itself.
    pub path: &'w [u8],
    /// The file or directory.
    pub inode: Inode,
    /// Its type.
    pub kind: FileType,
    /// Directories are met before and after what they hold; true after it.
    pub is_after: bool,
}

/// Receiver of what is met.
pub type Visit<'v, E> = &'v mut dyn FnMut(&Met<'_>) -> Result<(), E>;

/// Goes through what lies below an inode, and the inode itself, each once, whatever names it has. Directories are met after what they hold as well.
///
/// # Errors
/// Trees that can't be read, and those of the receiver.
pub fn walk<E: From<AdminError>>(trees: &dyn Trees, start: Inode, visit: Visit<'_, E>) -> Result<(), E> {
    let mut seen = HashSet::new();
    let kind = kind_of(trees, start)?;
    // What is still to be met, the next one last.
    let mut pending = vec![(Vec::new(), start, kind, false)];
    while let Some((path, inode, kind, is_after)) = pending.pop() {
        // A file may have several names, and in a damaged pool a directory may be below itself.
        if !is_after && inode.number != EMPTY_DIRECTORY && !seen.insert(inode) {
            continue;
        }
        visit(&Met { path: &path, inode, kind, is_after })?;
        if is_after || kind != FileType::Directory {
            continue;
        }
        let mut entries = entries(trees, inode)?;
        entries.reverse();
        pending.push((path.clone(), inode, kind, true));
        pending.extend(
            entries.into_iter().map(|(name, inode, kind)| (joined(&path, &name), inode, kind, false)),
        );
    }
    Ok(())
}

/// Inode of the directory that stands for a subvolume which is not there (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`).
const EMPTY_DIRECTORY: ObjectId = ObjectId::new(2);

/// Entries of a directory, in the order in which a mount lists them.
fn entries(trees: &dyn Trees, directory: Inode) -> Result<Vec<(Vec<u8>, Inode, FileType)>, AdminError> {
    let mut found = Vec::new();
    for (key, data) in trees.items(directory.tree, directory.number, KeyType::DIR_INDEX)? {
        let Ok(Item::DirIndex(names)) = Item::parse(&key, &data) else { continue };
        for entry in names.flatten() {
            let location = entry.header.location;
            let inode = match location.item_type {
                // A snapshot has the names of subvolumes that it does not hold: mounts show an empty directory.
                KeyType::ROOT_ITEM if !is_linked(trees, location.objectid, directory.tree)? => {
                    Inode { number: EMPTY_DIRECTORY, ..directory }
                }
                KeyType::ROOT_ITEM => {
                    Inode { tree: RootId::new(location.objectid.get()), number: ObjectId::FIRST_FREE }
                }
                _ => Inode { number: location.objectid, ..directory },
            };
            let kind = entry.file_type().unwrap_or(FileType::Regular);
            found.push((entry.name.to_vec(), inode, kind));
        }
    }
    Ok(found)
}

/// Returns true if a subvolume has its name in this tree.
fn is_linked(trees: &dyn Trees, subvolume: ObjectId, tree: RootId) -> Result<bool, AdminError> {
    let key = Key::new(subvolume, KeyType::ROOT_BACKREF, tree.get());
    let mut is_linked = false;
    trees.each(RootId::ROOT_TREE, key..=key, 0, &mut |_, _| {
        is_linked = true;
        ControlFlow::Break(())
    })?;
    Ok(is_linked)
}

fn kind_of(trees: &dyn Trees, inode: Inode) -> Result<FileType, AdminError> {
    let item = inode_item(trees, inode)?;
    Ok(item.and_then(|item| FileType::from_mode(item.mode.get())).unwrap_or(FileType::Regular))
}

/// The item of an inode.
///
/// # Errors
/// A tree that can't be read.
pub fn inode_item(trees: &dyn Trees, inode: Inode) -> Result<Option<InodeItem>, AdminError> {
    let items = trees.items(inode.tree, inode.number, KeyType::INODE_ITEM)?;
    Ok(items.iter().find_map(|(key, data)| match Item::parse(key, data) {
        Ok(Item::Inode(item)) => Some(*item),
        _ => None,
    }))
}

/// The mark of a file or directory (`user.brindle.tier`).
///
/// # Errors
/// A tree that can't be read.
pub fn mark_of(trees: &dyn Trees, inode: Inode) -> Result<Option<Vec<u8>>, AdminError> {
    attribute_of(trees, inode, MARK)
}

/// Its own limit for small files, in bytes.
///
/// # Errors
/// A tree that can't be read.
pub fn limit_of_small_files(trees: &dyn Trees, inode: Inode) -> Result<Option<u64>, AdminError> {
    Ok(attribute_of(trees, inode, SMALL_FILES)?.and_then(|value| limit_of(&value)))
}

fn attribute_of(trees: &dyn Trees, inode: Inode, name: &[u8]) -> Result<Option<Vec<u8>>, AdminError> {
    for (key, data) in trees.items(inode.tree, inode.number, KeyType::XATTR_ITEM)? {
        let Ok(Item::Xattr(entries)) = Item::parse(&key, &data) else { continue };
        if let Some(entry) = entries.flatten().find(|entry| entry.name == name) {
            return Ok(Some(entry.value.to_vec()));
        }
    }
    Ok(None)
}

impl Mounted {
    /// The inode that was opened, in its subvolume.
    ///
    /// # Errors
    /// A number that a mount of brindle gives to inodes with numbers too large for it.
    pub fn inode(&self) -> Result<Inode, ControlError> {
        let number = self.inode_number()?;
        Ok(Inode { tree: RootId::new(self.subvolume()?.id), number: ObjectId::new(number) })
    }
}
