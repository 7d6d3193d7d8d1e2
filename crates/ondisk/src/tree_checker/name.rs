//! Names and inode numbers, wherever they stand.

use super::ItemPlace;
use crate::{Defect, Key, ObjectId, RootId, to_u64};

/// The greatest length of a name in bytes (`BTRFS_NAME_LEN`, `XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;

/// Checks a name of a directory entry. Programs that walk an extracted tree trust that no name leads out of it.
pub(super) fn check_name(name: &[u8]) -> Result<(), Defect> {
    check_length(name)?;
    if let Some(byte) = name.iter().find(|byte| matches!(byte, b'/' | 0)) {
        return Err(Defect::new("byte of a name", (*byte).into()));
    }
    if matches!(name, b"." | b"..") {
        return Err(Defect::new("name is . or .. (its length shown)", to_u64(name.len())));
    }
    Ok(())
}

/// A name of an extended attribute: a string, and a slash is a letter like any other.
pub(super) fn check_xattr_name(name: &[u8]) -> Result<(), Defect> {
    check_length(name)?;
    if name.contains(&0) {
        return Err(Defect::new("zero byte in the name of an xattr", 0));
    }
    Ok(())
}

fn check_length(name: &[u8]) -> Result<(), Defect> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Defect::new("length of a name", to_u64(name.len())));
    }
    Ok(())
}

/// Returns true if an inode can have this number: files, the directory of the root tree, the old inode number cache.
pub(super) fn is_inode_number(objectid: ObjectId) -> bool {
    (ObjectId::FIRST_FREE..=ObjectId::LAST_FREE).contains(&objectid)
        || objectid == ObjectId::ROOT_TREE_DIR
        || objectid == ObjectId::FREE_INO
}

/// The key of an item that belongs to an inode.
pub(super) fn check_inode_of(place: ItemPlace<'_>, key: &Key) -> Result<(), Defect> {
    let owner = place.node.header().owner;
    // The root tree has the top-level subvolume in a directory, under the tree's own number.
    let is_root = owner == RootId::ROOT_TREE && key.objectid == RootId::FS_TREE.object_id();
    if !is_inode_number(key.objectid) && !is_root {
        return Err(Defect::new("objectid of an inode's item is no inode number", key.objectid.get()));
    }
    // In a subvolume an inode item begins everything that belongs to the inode; log trees may lack it.
    let is_subvolume = owner == RootId::FS_TREE || owner.is_subvolume();
    match place.previous() {
        Some((previous, _)) if is_subvolume && previous.objectid != key.objectid => Err(Defect::new(
            "no inode item before an inode's items (previous objectid shown)",
            previous.objectid.get(),
        )),
        _ => Ok(()),
    }
}
