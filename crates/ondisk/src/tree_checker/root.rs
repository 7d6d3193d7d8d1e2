//! Tree roots and the links between subvolumes.

use super::ItemPlace;
use super::name::{check_name, is_inode_number};
use crate::item::{RootItem, RootRef};
use crate::{Defect, Key, KeyType, MAX_LEVEL, ObjectId, RootId};

pub(super) fn check_root(place: ItemPlace<'_>, key: &Key, root: &RootItem) -> Result<(), Defect> {
    if key.objectid == ObjectId::new(0) {
        return Err(Defect::new("objectid of root item", 0));
    }
    // Elsewhere the key's offset is 0 or the transid of a snapshot; here it names the tree.
    if key.objectid == ObjectId::TREE_RELOC && key.offset() == 0 {
        return Err(Defect::new("relocation root of no tree", 0));
    }
    // A `generation_v2` that differs marks what follows it as stale, and parsing has blanked that.
    for (why, generation) in [
        ("generation of root lies in the future", root.generation),
        ("last_snapshot of root lies in the future", root.last_snapshot),
    ] {
        if place.is_future(generation) {
            return Err(Defect::expected(why, place.context.max_generation.get(), generation.get()));
        }
    }
    if !place.is_aligned(root.bytenr.get()) {
        return Err(Defect::new("bytenr of root is not aligned", root.bytenr.get()));
    }
    if root.level > MAX_LEVEL {
        return Err(Defect::expected("level of root", MAX_LEVEL.into(), root.level.into()));
    }
    if root.drop_level > MAX_LEVEL {
        return Err(Defect::expected("drop_level of root", MAX_LEVEL.into(), root.drop_level.into()));
    }
    let is_dropping = root.drop_progress != Key::MIN;
    if is_dropping && root.drop_level > root.level {
        let (level, found) = (root.level.into(), root.drop_level.into());
        return Err(Defect::expected("dropping a root has come to a level that it lacks", level, found));
    }
    Ok(())
}

pub(super) fn check_root_ref(key: &Key, link: &RootRef<'_>) -> Result<(), Defect> {
    let (objectid, offset) = (RootId::new(key.objectid.get()), RootId::new(key.offset()));
    let (parent, child) =
        if key.item_type == KeyType::ROOT_REF { (objectid, offset) } else { (offset, objectid) };
    if parent != RootId::FS_TREE && !parent.is_subvolume() {
        return Err(Defect::new("parent of a subvolume", parent.get()));
    }
    if !child.is_subvolume() {
        return Err(Defect::new("child of a subvolume", child.get()));
    }
    if !is_inode_number(link.dirid) {
        return Err(Defect::new("directory of a subvolume is no inode number", link.dirid.get()));
    }
    check_name(link.name)
}
