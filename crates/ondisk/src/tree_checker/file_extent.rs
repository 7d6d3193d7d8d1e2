//! Extents of files.

use super::ItemPlace;
use super::name::check_inode_of;
use crate::item::{Compression, FileExtent, FileExtentHeader, FileExtentRef};
use crate::{Defect, Item, Key, KeyType, to_u64};

/// The greatest size of a compressed extent, on disk and in memory (`BTRFS_MAX_COMPRESSED`,
/// `BTRFS_MAX_UNCOMPRESSED`): the bound of a decompressor's buffer.
const COMPRESSED_MAX: u64 = 128 << 10;

pub(super) fn check_file_extent(
    place: ItemPlace<'_>,
    key: &Key,
    extent: &FileExtent<'_>,
) -> Result<(), Defect> {
    check_inode_of(place, key)?;
    if !place.is_aligned(key.offset()) {
        return Err(Defect::new("file extent begins between sectors", key.offset()));
    }
    match extent {
        FileExtent::Inline { header, compression, data } => {
            check_inline(place, key, header, *compression, data)?;
        }
        FileExtent::OnDisk { header, compression, is_prealloc: _, extent } => {
            check_numbers(place, key, extent)?;
            if extent.disk_bytenr.get() != 0 {
                check_allocated(place, header, *compression, extent)?;
            }
        }
    }
    check_overlap(place, key)
}

/// Contents in the item stand for the first sector of a file. Some old makers of filesystems stored more than
/// a sector uncompressed, so what bounds these is the leaf.
fn check_inline(
    place: ItemPlace<'_>,
    key: &Key,
    header: &FileExtentHeader,
    compression: Compression,
    data: &[u8],
) -> Result<(), Defect> {
    if key.offset() != 0 {
        return Err(Defect::expected("offset in the file of an inline extent", 0, key.offset()));
    }
    let (ram_bytes, size) = (header.ram_bytes.get(), to_u64(data.len()));
    if compression == Compression::None && ram_bytes != size {
        return Err(Defect::expected("ram_bytes of an inline extent", size, ram_bytes));
    }
    if compression != Compression::None && ram_bytes > place.sectorsize() {
        let bound = place.sectorsize();
        return Err(Defect::expected("ram_bytes of a compressed inline extent", bound, ram_bytes));
    }
    Ok(())
}

/// Checks the numbers that even a hole has.
fn check_numbers(place: ItemPlace<'_>, key: &Key, extent: &FileExtentRef) -> Result<(), Defect> {
    if place.sectors_end(key.offset(), extent.num_bytes.get()).is_none() {
        return Err(Defect::new("num_bytes of file extent", extent.num_bytes.get()));
    }
    if !place.is_aligned(extent.offset.get()) {
        return Err(Defect::new("offset of file extent is not aligned", extent.offset.get()));
    }
    Ok(())
}

/// Checks the extent on disk. Of an uncompressed extent `ram_bytes` says nothing: some kernels left it stale.
fn check_allocated(
    place: ItemPlace<'_>,
    header: &FileExtentHeader,
    compression: Compression,
    extent: &FileExtentRef,
) -> Result<(), Defect> {
    let (disk_bytenr, disk_num_bytes) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
    let ram_bytes = header.ram_bytes.get();
    if !place.is_aligned(disk_bytenr) {
        return Err(Defect::new("disk_bytenr of file extent is not aligned", disk_bytenr));
    }
    if place.sectors_end(disk_bytenr, disk_num_bytes).is_none() {
        return Err(Defect::new("disk_num_bytes of file extent", disk_num_bytes));
    }
    if !place.is_aligned(ram_bytes) {
        return Err(Defect::new("ram_bytes of file extent is not aligned", ram_bytes));
    }
    let bound = if compression == Compression::None {
        disk_num_bytes
    } else {
        if disk_num_bytes > COMPRESSED_MAX {
            let why = "disk_num_bytes of a compressed extent";
            return Err(Defect::expected(why, COMPRESSED_MAX, disk_num_bytes));
        }
        if ram_bytes > COMPRESSED_MAX {
            return Err(Defect::expected("ram_bytes of a compressed extent", COMPRESSED_MAX, ram_bytes));
        }
        ram_bytes
    };
    match extent.offset.get().checked_add(extent.num_bytes.get()) {
        Some(end) if end <= bound => Ok(()),
        _ => {
            Err(Defect::expected("piece of a file passes the end of its extent", bound, extent.offset.get()))
        }
    }
}

/// Extents of a file follow each other; an inline one takes whole sectors.
fn check_overlap(place: ItemPlace<'_>, key: &Key) -> Result<(), Defect> {
    let previous = place.previous_of_type(KeyType::EXTENT_DATA);
    let Some((previous, data)) = previous.filter(|(previous, _)| previous.objectid == key.objectid) else {
        return Ok(());
    };
    let Item::FileExtent(extent) = Item::parse(&previous, data)? else { return Ok(()) };
    let end = previous.offset().saturating_add(extent.length());
    if end > key.offset() {
        return Err(Defect::expected("file extent lies over the one before", end, key.offset()));
    }
    Ok(())
}
