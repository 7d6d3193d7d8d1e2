//! Checksums of data, from the checksum tree.

use crate::error::FsError;
use crate::extent::Extents;
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId, to_u64, to_usize};
use brindle_tree::Readahead;
use brindle_volume::Witness;

/// The checksums of consecutive sectors.
#[derive(Debug, Default)]
pub(crate) struct SectorChecksums {
    /// One checksum a sector; zeros where there is none.
    pub(crate) bytes: Vec<u8>,
    /// Number of sectors with a checksum.
    pub(crate) found: usize,
}

impl Extents {
    /// The checksums of the sectors of a range of the logical space.
    pub(crate) fn checksums(&self, start: Logical, length: u64) -> Result<SectorChecksums, FsError> {
        let context = self.core.pool().volume().tree_context();
        let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
        let sectors = to_usize(length / sector);
        let mut found = SectorChecksums { bytes: vec![0; sectors * size], found: 0 };
        let end = start + length;
        let mut cursor = self.core.pool().cursor(&self.core.pool().tree(RootId::CSUM_TREE)?, Readahead::None);
        // Items may be divided meanwhile: what is known is not counted again.
        let mut known = start;
        // The item that holds the first checksum may begin well before it.
        let key = |at: Logical| Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
        cursor.seek_last(&key(start))?;
        if cursor.key().is_none() {
            cursor.seek(&key(start))?;
        }
        while let Some((key, data)) = cursor.item() {
            let item_start = Logical::new(key.offset());
            if key.objectid > ObjectId::EXTENT_CSUM || item_start >= end {
                break;
            }
            if let Ok(Item::Csums(checksums)) = Item::parse(&key, data) {
                // All begins count from the same origin, so every difference is whole sectors.
                let from = known.max(item_start);
                let skip_item = from.distance_from(item_start).unwrap_or(0) / sector;
                let skip_range = from.distance_from(start).unwrap_or(0) / sector;
                let source = checksums.get(to_usize(skip_item) * size..).unwrap_or_default();
                let target = found.bytes.get_mut(to_usize(skip_range) * size..).unwrap_or_default();
                let shared = source.len().min(target.len()) / size * size;
                target[..shared].copy_from_slice(&source[..shared]);
                found.found += shared / size;
                known = from + to_u64(shared / size) * sector;
            }
            if known >= end {
                // What follows may be damaged, and is not asked for.
                break;
            }
            cursor.next()?;
        }
        debug_assert!(found.found <= sectors, "checksum items do not overlap");
        debug_assert_eq!(to_u64(found.bytes.len()), length / sector * to_u64(size));
        Ok(found)
    }
}

impl Witness for Extents {
    fn checksums(&self, start: Logical, length: u64) -> Option<Vec<u8>> {
        let found = Self::checksums(self, start, length);
        let found = found.inspect_err(|error| tracing::warn!("checksums at logical {start}: {error}"));
        Some(found.ok()?.bytes)
    }
}
