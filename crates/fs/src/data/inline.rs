//! Contents that are kept in the item; and how the contents of a file are kept at all.

use super::output::Manner;
use crate::attributes::InodeId;
use crate::compression::choice::CompressionChoice;
use crate::compression::compress;
use crate::data::FileData;
use crate::data::output::Cause;
use crate::error::FsError;
use crate::extent::file_extent::{Contents, FileExtent};
use brindle_ondisk::item::{Compression, FileExtentHeader, InodeFlags};
use brindle_ondisk::{Generation, to_u64, to_usize};
use brindle_policy::writeback::DataPlace;
use brindle_tree::FastTier;

/// Header of a leaf, and of its items.
const LEAF_HEADER_BYTES: u64 = 101;
const ITEM_HEADER_BYTES: u64 = 25;
/// The property that says how a file is compressed.
const COMPRESSION_XATTR: &[u8] = b"btrfs.compression";

/// Bounds on inline contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineRoom {
    /// The most bytes, compressed or not.
    pub(super) bytes: u64,
    /// The sector size, which is the most that they may be decompressed.
    pub(super) sector: u64,
}

impl FileData {
    /// Bounds on inline contents.
    pub(super) fn inline_room(&self) -> InlineRoom {
        let nodesize = u64::from(self.core.pool().volume().tree_context().nodesize);
        let headers = LEAF_HEADER_BYTES + ITEM_HEADER_BYTES + to_u64(size_of::<FileExtentHeader>());
        let bytes = nodesize.saturating_sub(headers).min(self.context.settings.max_inline_bytes.into());
        InlineRoom { bytes, sector: self.core.sector() }
    }

    /// Parameters for writing the contents of a file of this size.
    pub(super) fn manner(
        &self,
        file: InodeId,
        flags: InodeFlags,
        size: u64,
        cause: Cause,
    ) -> Result<Manner, FsError> {
        let checksums = !flags.contains(InodeFlags::NODATASUM);
        let may_compress = !flags.intersects(InodeFlags::NODATASUM | InodeFlags::NODATACOW);
        let compression = if may_compress { self.compression_of(file, flags)? } else { None };
        let tier = self.tiers.tier_wish(file, size)?;
        // What is written in place stays where it is, so it lies in its last place from the first.
        let may_wait = !flags.contains(InodeFlags::NODATACOW) && tier.may_wait();
        let waits = may_wait && self.core.pool().takes_write_back(cause == Cause::Sync);
        Ok(Manner { compression, checksums, tier, waits, wakes: true })
    }

    /// Place that data of a file is destaged to. Where the fast tier is split, a sync of small and marked files waits for bulk devices
    /// there, so that their data may wait before. One that is gone has no wish.
    pub(crate) fn last_place(&self, file: InodeId) -> DataPlace {
        if self.core.pool().fast_tier() != FastTier::Split {
            return DataPlace::Bulk;
        }
        let wish = self.items.quick_attributes(file).and_then(|found| {
            let size = found.size;
            Ok(self.tiers.tier_wish(file, size)?.tier(size, size))
        });
        wish.map_or(DataPlace::Bulk, DataPlace::from)
    }

    fn compression_of(&self, file: InodeId, flags: InodeFlags) -> Result<Option<CompressionChoice>, FsError> {
        let general =
            self.context.settings.compression.filter(|choice| choice.algorithm != Compression::None);
        if general.is_some_and(|choice| choice.force) {
            return Ok(general);
        }
        if flags.contains(InodeFlags::NOCOMPRESS) {
            return Ok(None);
        }
        if !flags.contains(InodeFlags::COMPRESS) {
            return Ok(general);
        }
        let property = self.items.xattr(file, COMPRESSION_XATTR)?;
        let own = property.and_then(|value| choice_of(&value));
        let default = CompressionChoice { algorithm: Compression::Zlib, level: None, force: false };
        Ok(own.or(general).or(Some(default)))
    }
}

/// The whole contents of a file as one item: compressed if that is asked for and helps; `None` if they are too many.
/// `contents` are of whole sectors, `size` how much of them counts.
pub(super) fn inline_piece(
    contents: &[u8],
    size: u64,
    compression: Option<CompressionChoice>,
    room: &InlineRoom,
) -> Option<FileExtent> {
    if size == 0 || size > room.sector || to_u64(contents.len()) != room.sector || room.bytes == 0 {
        return None;
    }
    let contents = &contents[..to_usize(size)];
    let most = room.bytes.min(size - 1);
    let compressed = compression.and_then(|choice| {
        let (most, sector) = (to_usize(most), to_usize(room.sector));
        compress(choice.algorithm, choice.level, contents, most, sector).map(|data| (choice.algorithm, data))
    });
    let (compression, data) = match compressed {
        Some(compressed) => compressed,
        None if size <= room.bytes && size < room.sector => (Compression::None, contents.to_vec()),
        None => return None,
    };
    let generation = Generation::new(0);
    Some(FileExtent { start: 0, generation, ram_bytes: size, compression, contents: Contents::Inline(data) })
}

/// The choice of a property: an algorithm, perhaps with a level.
fn choice_of(value: &[u8]) -> Option<CompressionChoice> {
    CompressionChoice::parse(std::str::from_utf8(value).ok()?).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: InlineRoom = InlineRoom { bytes: 2048, sector: 4096 };

    fn kind(contents: &[u8], size: u64, compression: Option<Compression>) -> Option<(Compression, usize)> {
        let choice = compression.map(|algorithm| CompressionChoice { algorithm, level: None, force: false });
        let piece = inline_piece(contents, size, choice, &ROOM)?;
        assert_eq!(piece.ram_bytes, size);
        match piece.contents {
            Contents::Inline(data) => Some((piece.compression, data.len())),
            Contents::OnDisk(_) => None,
        }
    }

    #[test]
    fn little_is_kept_in_the_item() {
        let sector = [7; 4096];
        assert_eq!(kind(&sector, 1, None), Some((Compression::None, 1)));
        assert_eq!(kind(&sector, 2048, None), Some((Compression::None, 2048)));
        assert_eq!(kind(&sector, 2049, None), None);
        assert_eq!(kind(&sector, 0, None), None);
        assert_eq!(kind(&[7; 8192], 100, None), None, "more than the sector is dirty");
    }

    #[test]
    fn inline_contents_may_be_longer_if_they_compress() {
        let sector = [7; 4096];
        for algorithm in [Compression::Zlib, Compression::Lzo, Compression::Zstd] {
            let (compression, length) = kind(&sector, 4096, Some(algorithm)).expect("it is small");
            assert!(compression == algorithm && length < 200);
            assert_eq!(kind(&sector, 1, Some(algorithm)), Some((Compression::None, 1)), "it would grow");
        }
    }

    #[test]
    fn properties_name_an_algorithm() {
        let zstd = choice_of(b"zstd:7").expect("known");
        assert_eq!((zstd.algorithm, zstd.level), (Compression::Zstd, Some(7)));
        assert_eq!(choice_of(b"lzo").map(|choice| choice.algorithm), Some(Compression::Lzo));
        assert!(choice_of(b"none").is_none() && choice_of(&[0xff]).is_none());
    }
}
