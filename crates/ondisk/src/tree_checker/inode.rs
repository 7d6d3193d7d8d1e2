//! Inodes and their names.

use super::ItemPlace;
use super::name::{check_inode_of, check_name, is_inode_number};
use crate::item::{FileType, InodeExtrefs, InodeItem, InodeRefs};
use crate::{Defect, Key, ObjectId, extref_hash};

/// The greatest size of a file, as signed file offsets have it.
const FILE_SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// Nanoseconds are not looked at: the kernel passes on what it finds, and old pools hold odd values.
pub(super) fn check_inode(place: ItemPlace<'_>, key: &Key, inode: &InodeItem) -> Result<(), Defect> {
    if !is_inode_number(key.objectid) {
        return Err(Defect::new("inode number", key.objectid.get()));
    }
    if key.offset() != 0 {
        return Err(Defect::expected("key offset of inode item", 0, key.offset()));
    }
    for (why, generation) in [
        ("generation of inode lies in the future", inode.generation),
        ("transid of inode lies in the future", inode.transid),
    ] {
        if place.is_future(generation) {
            return Err(Defect::expected(why, place.context.max_generation.get(), generation.get()));
        }
    }
    let mode = inode.mode.get();
    if FileType::from_mode(mode).is_none() || mode > 0o177_777 {
        return Err(Defect::new("mode of inode", mode.into()));
    }
    if inode.is_directory() && inode.nlink.get() > 1 {
        return Err(Defect::expected("nlink of a directory", 1, inode.nlink.get().into()));
    }
    if inode.size.get() > FILE_SIZE_MAX {
        return Err(Defect::expected("size of inode", FILE_SIZE_MAX, inode.size.get()));
    }
    Ok(())
}

pub(super) fn check_refs(place: ItemPlace<'_>, key: &Key, names: InodeRefs<'_>) -> Result<(), Defect> {
    check_inode_of(place, key)?;
    let parent = ObjectId::new(key.offset());
    if !is_inode_number(parent) {
        return Err(Defect::new("parent of inode ref is no inode number", parent.get()));
    }
    let mut count = 0;
    for name in names {
        let name = name?.name;
        // The directory that has no parent is its own, by this name.
        if parent != key.objectid || name != b".." {
            check_name(name)?;
        }
        count += 1;
    }
    if count == 0 { Err(Defect::new("inode ref without a name", 0)) } else { Ok(()) }
}

pub(super) fn check_extrefs(place: ItemPlace<'_>, key: &Key, names: InodeExtrefs<'_>) -> Result<(), Defect> {
    check_inode_of(place, key)?;
    let mut count = 0;
    for name in names {
        let name = name?;
        if !is_inode_number(name.parent) {
            return Err(Defect::new("parent of inode extref is no inode number", name.parent.get()));
        }
        check_name(name.name)?;
        let hash = extref_hash(name.parent, name.name);
        if hash != key.offset() {
            return Err(Defect::expected("key offset of inode extref is not its hash", hash, key.offset()));
        }
        count += 1;
    }
    if count == 0 { Err(Defect::new("inode extref without a name", 0)) } else { Ok(()) }
}

/// Checks an orphan item's key. Its offset is the orphan: an inode or, in the root tree, a root.
pub(super) fn check_orphan(key: &Key) -> Result<(), Defect> {
    if key.objectid != ObjectId::ORPHAN {
        return Err(Defect::new("objectid of orphan item", key.objectid.get()));
    }
    Ok(())
}
