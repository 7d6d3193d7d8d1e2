//! The extent tree.

use super::ItemPlace;
use crate::item::{BackRef, ExtentFlags, ExtentItem};
use crate::{Defect, Key, KeyType, MAX_LEVEL};

pub(super) fn check_extent(place: ItemPlace<'_>, key: &Key, extent: &ExtentItem<'_>) -> Result<(), Defect> {
    let flags = extent.flags();
    let kinds = flags & (ExtentFlags::DATA | ExtentFlags::TREE_BLOCK);
    if kinds != ExtentFlags::DATA && kinds != ExtentFlags::TREE_BLOCK {
        return Err(Defect::new("extent is not either data or tree block", flags.bits()));
    }
    let is_data = kinds == ExtentFlags::DATA;
    if is_data && flags.contains(ExtentFlags::FULL_BACKREF) {
        return Err(Defect::new("data extent has the flag of a shared tree block", flags.bits()));
    }
    if place.is_future(extent.header.generation) {
        let found = extent.header.generation.get();
        let bound = place.context.max_generation.get();
        return Err(Defect::expected("generation of extent lies in the future", bound, found));
    }
    check_range(place, key, is_data)?;
    if let Some(info) = extent.tree_block {
        check_level(info.level.into())?;
    }
    check_inline_refs(place, extent, is_data)
}

fn check_range(place: ItemPlace<'_>, key: &Key, is_data: bool) -> Result<(), Defect> {
    let start = key.objectid.get();
    if key.item_type == KeyType::METADATA_ITEM {
        if is_data {
            return Err(Defect::new("metadata item of a data extent", start));
        }
        check_level(key.offset())?;
    }
    let length = length_of(place, key);
    if !is_data && length != u64::from(place.context.nodesize) {
        return Err(Defect::expected("length of a tree block", place.context.nodesize.into(), length));
    }
    if place.sectors_end(start, length).is_none() {
        return Err(Defect::new("range of extent", length));
    }
    let is_extent = |key: &Key| matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM);
    if let Some((previous, _)) = place.previous().filter(|(previous, _)| is_extent(previous)) {
        let end = previous.objectid.get().saturating_add(length_of(place, &previous));
        if end > start {
            return Err(Defect::expected("extent lies over the one before", end, start));
        }
    }
    Ok(())
}

fn length_of(place: ItemPlace<'_>, key: &Key) -> u64 {
    if key.item_type == KeyType::METADATA_ITEM { place.context.nodesize.into() } else { key.offset() }
}

fn check_level(level: u64) -> Result<(), Defect> {
    if level > MAX_LEVEL.into() {
        return Err(Defect::expected("level of a tree block", MAX_LEVEL.into(), level));
    }
    Ok(())
}

/// Inline references are sorted, so that a search can end early: by type, ascending, and within a type by what
/// they name, descending.
fn check_inline_refs(place: ItemPlace<'_>, extent: &ExtentItem<'_>, is_data: bool) -> Result<(), Defect> {
    let refs = extent.header.refs.get();
    let mut count = 0u64;
    let mut previous = None;
    for reference in extent.inline_refs {
        let reference = reference?;
        check_ref(place, &reference)?;
        if is_data == is_of_tree_block(&reference) {
            let found = reference.key_type().0.into();
            return Err(Defect::new("inline ref of the other kind of extent", found));
        }
        let rank = reference.inline_rank();
        if previous.is_some_and(|previous| previous > rank) {
            return Err(Defect::new("inline refs are not sorted (type shown)", rank.0.0.into()));
        }
        previous = Some(rank);
        count = count.saturating_add(reference.count());
    }
    if refs == 0 {
        return Err(Defect::new("extent without references", 0));
    }
    if count > refs {
        return Err(Defect::expected("more inline refs than references", refs, count));
    }
    Ok(())
}

/// A reference as an item of its own.
pub(super) fn check_keyed_ref(place: ItemPlace<'_>, key: &Key, reference: &BackRef) -> Result<(), Defect> {
    if !place.is_aligned(key.objectid.get()) {
        return Err(Defect::new("extent of a reference is not aligned", key.objectid.get()));
    }
    check_ref(place, reference)
}

/// Checks a backref. The offset of a data reference may lie before the file's start, as a piece of an extent can be
/// cloned there: it wraps, and is aligned all the same.
fn check_ref(place: ItemPlace<'_>, reference: &BackRef) -> Result<(), Defect> {
    match reference {
        BackRef::SharedTree(parent) | BackRef::SharedData { parent, .. }
            if !place.is_aligned(parent.get()) =>
        {
            return Err(Defect::new("parent of a shared reference is not aligned", parent.get()));
        }
        BackRef::Data(data) if !place.is_aligned(data.offset.get()) => {
            return Err(Defect::new("offset of a data reference is not aligned", data.offset.get()));
        }
        _ => {}
    }
    if reference.count() == 0 && !matches!(reference, BackRef::Owner(_)) {
        return Err(Defect::new("reference that counts nothing", 0));
    }
    Ok(())
}

fn is_of_tree_block(reference: &BackRef) -> bool {
    matches!(reference, BackRef::Tree(_) | BackRef::SharedTree(_))
}
