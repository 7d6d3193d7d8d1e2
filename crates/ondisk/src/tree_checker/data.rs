//! Facts about data and free space by address: checksums, and the free space tree.

use super::ItemPlace;
use crate::item::FreeSpaceInfo;
use crate::{Defect, Key, KeyType, ObjectId, to_u64, to_usize};

pub(super) fn check_csums(place: ItemPlace<'_>, key: &Key, sums: &[u8]) -> Result<(), Defect> {
    if key.objectid != ObjectId::EXTENT_CSUM {
        return Err(Defect::new("objectid of checksums", key.objectid.get()));
    }
    let size = place.context.checksum_type.size();
    if sums.is_empty() || sums.len() % size != 0 {
        return Err(Defect::new("size of checksum item is not of whole checksums", to_u64(sums.len())));
    }
    let length = |sums: &[u8]| to_u64(sums.len() / size) * place.sectorsize();
    if place.sectors_end(key.offset(), length(sums)).is_none() {
        return Err(Defect::new("address of checksums", key.offset()));
    }
    if let Some((previous, before)) = place.previous_of_type(KeyType::EXTENT_CSUM) {
        let end = previous.offset().saturating_add(length(before));
        if end > key.offset() {
            return Err(Defect::expected("checksums lie over those before", end, key.offset()));
        }
    }
    Ok(())
}

/// The block group of a free space tree's items.
pub(super) fn check_free_space_info(
    place: ItemPlace<'_>,
    key: &Key,
    info: &FreeSpaceInfo,
) -> Result<(), Defect> {
    if place.sectors_end(key.objectid.get(), key.offset()).is_none() {
        return Err(Defect::new("range of free space info", key.offset()));
    }
    let most = key.offset() / place.sectorsize();
    if u64::from(info.extent_count.get()) > most {
        let found = info.extent_count.get().into();
        return Err(Defect::expected("extent_count of free space info", most, found));
    }
    Ok(())
}

/// A free range, or the range of a bitmap.
pub(super) fn check_free_range(place: ItemPlace<'_>, key: &Key) -> Result<(), Defect> {
    let start = key.objectid.get();
    if place.sectors_end(start, key.offset()).is_none() {
        return Err(Defect::new("range of free space", key.offset()));
    }
    let is_range = |item_type| matches!(item_type, KeyType::FREE_SPACE_EXTENT | KeyType::FREE_SPACE_BITMAP);
    if let Some((previous, _)) = place.previous().filter(|(previous, _)| is_range(previous.item_type)) {
        let end = previous.objectid.get().saturating_add(previous.offset());
        if end > start {
            return Err(Defect::expected("free space lies over the range before", end, start));
        }
    }
    Ok(())
}

/// One bit a sector.
pub(super) fn check_bitmap(place: ItemPlace<'_>, key: &Key, bitmap: &[u8]) -> Result<(), Defect> {
    check_free_range(place, key)?;
    let expected = (key.offset() / place.sectorsize()).div_ceil(8);
    if bitmap.len() != to_usize(expected) {
        return Err(Defect::expected("size of free space bitmap", expected, to_u64(bitmap.len())));
    }
    Ok(())
}
