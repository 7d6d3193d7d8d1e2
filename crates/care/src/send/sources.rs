//! Sources of clones: other places that have an extent, and that the receiver has already.
//!
//! The references of an extent name files by number and offset, in some subvolume. A snapshot shares leaves with others and is not
//! named itself, yet has the extent in the same file at the same offset. So each place that a reference names is looked up in each
//! subvolume that may be cloned from: what is found there is a source, whatever subvolume the reference was for.

use crate::send::error::SendError;
use crate::send::view::{ExtentPart, Inode, Piece, Source, View};
use brindle_ondisk::item::{BackRef, FileExtent, FileType, InodeFlags};
use brindle_ondisk::{Item, KeyType, Logical, ObjectId};
use brindle_tree::Committed;

/// Number of places of an extent that are looked at.
const PLACES_MAX: usize = 64;

/// A file, and the offset at which an extent would begin in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExtentPlace {
    pub(super) file: ObjectId,
    offset: u64,
}

/// A range that is wanted.
pub(super) struct Wanted {
    /// Offset in the file that is sent.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) extent: ExtentPart,
    /// Size of the file that is sent.
    pub(super) size: u64,
}

/// A range of a file that has the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Offset in the file that is sent.
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) file: ObjectId,
    pub(super) source_offset: u64,
}

/// Places of an extent, by the references that the commit has of it.
pub(super) fn places(committed: &Committed<'_>, address: Logical) -> Result<Vec<ExtentPlace>, SendError> {
    let mut places = Vec::new();
    let extent = committed.extent_at(address)?.filter(|extent| extent.start == address);
    for reference in extent.into_iter().flat_map(|extent| extent.references) {
        match reference {
            BackRef::Data(data) => {
                places.push(ExtentPlace { file: data.objectid, offset: data.offset.get() });
            }
            BackRef::SharedData { parent, .. } => {
                let leaf = committed.leaf(parent)?;
                for (key, data) in (0..leaf.len()).filter_map(|slot| leaf.item(slot)) {
                    if key.item_type == KeyType::EXTENT_DATA {
                        if let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) =
                            Item::parse(&key, data)
                        {
                            if extent.disk_bytenr == address {
                                let offset = key.offset().wrapping_sub(extent.offset.get());
                                places.push(ExtentPlace { file: key.objectid, offset });
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        if places.len() >= PLACES_MAX {
            break;
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Returns true if contents of a file can be shared with one that the receiver makes: those without checksums can't.
pub(super) fn is_cloneable(inode: &Inode) -> bool {
    inode.kind == FileType::Regular && !inode.item.inode_flags().contains(InodeFlags::NODATASUM)
}

/// The part of a wanted range that a place in a subvolume has.
pub(super) fn look(
    view: &View<'_>,
    place: &ExtentPlace,
    wanted: &Wanted,
) -> Result<Option<Found>, SendError> {
    let Some(inode) = view.inode(place.file)?.filter(is_cloneable) else { return Ok(None) };
    let is_before_file = i64::try_from(place.offset).is_err();
    let end = if is_before_file {
        place.offset.wrapping_add(wanted.extent.ram_bytes)
    } else {
        place.offset.saturating_add(wanted.extent.ram_bytes)
    };
    let start = if is_before_file { 0 } else { place.offset };
    if start >= end {
        return Ok(None);
    }
    let mut pieces = view.pieces(place.file, start..end)?;
    let mut best: Option<Found> = None;
    while let Some(piece) = pieces.next()? {
        let found = overlap(&piece, wanted, inode.item.size.get(), view.sector());
        if let Some(found) = found {
            if best.is_none_or(|best| found.start < best.start) {
                best = Some(Found { file: place.file, ..found });
            }
        }
    }
    Ok(best)
}

/// The part of a wanted range that a piece of a file has. It begins and ends at sectors, or ends where both files do.
fn overlap(piece: &Piece, wanted: &Wanted, size: u64, sector: u64) -> Option<Found> {
    let Source::Extent(extent) = &piece.source else { return None };
    let same = (extent.address, extent.compression, extent.ram_bytes)
        == (wanted.extent.address, wanted.extent.compression, wanted.extent.ram_bytes);
    let end = piece.end.min(size);
    if !same || piece.start >= end {
        return None;
    }
    let extent_end = |part: &ExtentPart, length: u64| part.offset + length;
    let from = extent.offset.max(wanted.extent.offset);
    let to = extent_end(extent, end - piece.start).min(extent_end(&wanted.extent, wanted.end - wanted.start));
    let mut length = to.checked_sub(from)?;
    let start = wanted.start + (from - wanted.extent.offset);
    let source_offset = piece.start + (from - extent.offset);
    if length % sector != 0 && (source_offset + length, start + length) != (size, wanted.size) {
        length -= length % sector;
    }
    let is_aligned = start % sector == 0 && source_offset % sector == 0;
    let file = ObjectId::new(0);
    (length > 0 && is_aligned).then_some(Found { start, length, file, source_offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::item::Compression;

    const SECTOR: u64 = 4096;

    fn part(offset: u64) -> ExtentPart {
        let (address, compression) = (Logical::new(1 << 20), Compression::None);
        ExtentPart { address, disk_length: 16 * SECTOR, compression, ram_bytes: 16 * SECTOR, offset }
    }

    fn piece(start: u64, end: u64, offset: u64) -> Piece {
        Piece { start, end, source: Source::Extent(part(offset)) }
    }

    #[test]
    fn the_part_that_both_have_is_found() {
        let wanted =
            Wanted { start: 10 * SECTOR, end: 14 * SECTOR, extent: part(4 * SECTOR), size: 20 * SECTOR };
        let found = |piece: &Piece, size| {
            overlap(piece, &wanted, size, SECTOR)
                .map(|found| (found.start / SECTOR, found.length / SECTOR, found.source_offset / SECTOR))
        };
        assert_eq!(found(&piece(0, 16 * SECTOR, 0), 16 * SECTOR), Some((10, 4, 4)));
        assert_eq!(found(&piece(SECTOR, 3 * SECTOR, 6 * SECTOR), 16 * SECTOR), Some((12, 2, 1)));
        assert_eq!(found(&piece(SECTOR, 3 * SECTOR, 8 * SECTOR), 16 * SECTOR), None, "it is behind");
        assert_eq!(found(&piece(0, 16 * SECTOR, 0), 5 * SECTOR + 7), Some((10, 1, 4)), "whole sectors");
    }

    #[test]
    fn an_end_within_a_sector_is_shared_where_both_files_end() {
        let size = 2 * SECTOR + 5;
        let wanted = Wanted { start: 0, end: size, extent: part(0), size };
        let length = |source_size| {
            overlap(&piece(0, 3 * SECTOR, 0), &wanted, source_size, SECTOR).map(|found| found.length)
        };
        assert_eq!(length(size), Some(size));
        assert_eq!(length(3 * SECTOR), Some(2 * SECTOR));
        assert_eq!(length(size - 1), Some(2 * SECTOR));
    }
}
