//! The extents of a file, a window of them at a time.

use crate::{Filesystem, FsError, InodeId};
use brindle_ondisk::item::{Compression, FileExtent};
use brindle_ondisk::{Defect, Item, Key, KeyType, Logical, to_u64};
use brindle_tree::Readahead;

/// Upper bound on the extents in a window, so that a file of millions costs no more memory than any other.
const WINDOW_EXTENTS: usize = 512;
/// The most that one compressed extent holds, in bytes, on disk as well as decompressed
/// (`BTRFS_MAX_COMPRESSED`, `BTRFS_MAX_UNCOMPRESSED`).
pub(crate) const COMPRESSED_MAX_BYTES: u64 = 128 << 10;

/// One piece of a file that is neither a hole nor preallocated.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// Start in the file, in bytes.
    pub(crate) start: u64,
    /// Bytes of the file that it covers.
    pub(crate) length: u64,
    /// Location of the contents.
    pub(crate) source: Source,
}

/// Location of the contents of an extent.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Inline contents.
    Inline { data: Box<[u8]>, compression: Compression },
    /// On disk, from this address on.
    Plain { address: Logical },
    /// Compressed extent on disk.
    Compressed(CompressedExtent),
}

/// A compressed extent on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompressedExtent {
    /// Address.
    pub(crate) address: Logical,
    /// Its size on disk, in bytes.
    pub(crate) disk_length: u64,
    /// Its size when decompressed, in bytes.
    pub(crate) ram_length: u64,
    /// Offset of this piece of the file in the decompressed bytes.
    pub(crate) offset: u64,
    /// Compression.
    pub(crate) compression: Compression,
}

/// Extents of a file that touch a range. A part without an extent reads as zeros.
#[derive(Debug)]
pub(crate) struct ExtentWindow {
    /// The first byte of the range.
    start: u64,
    /// The first byte after it; `u64::MAX` if it reaches past the last extent.
    end: u64,
    /// Extents in order, and not overlapping.
    extents: Vec<Extent>,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// Returns true if another extent, which begins later, is within this one, and in the same place on disk.
    fn has_all_of(&self, other: &Self) -> bool {
        let (Source::Plain { address: own }, Source::Plain { address }) = (&self.source, &other.source)
        else {
            return false;
        };
        let distance = other.start.checked_sub(self.start);
        other.end() <= self.end() && distance.and_then(|distance| own.checked_add(distance)) == Some(*address)
    }
}

impl ExtentWindow {
    /// Returns true if the window covers `offset`.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        (self.start..self.end).contains(&offset)
    }

    /// The first byte that the window tells nothing of.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The extents that end behind `offset`, in order.
    pub(crate) fn from(&self, offset: u64) -> &[Extent] {
        let first = self.extents.partition_point(|extent| extent.end() <= offset);
        &self.extents[first..]
    }
}

impl Filesystem {
    /// The window of extents that begins at `offset`.
    pub(crate) fn extent_window(&self, file: InodeId, offset: u64) -> Result<ExtentWindow, FsError> {
        let mut window = ExtentWindow { start: offset, end: u64::MAX, extents: Vec::new() };
        let mut cursor = self.pool().cursor(&self.tree(file.tree)?, Readahead::None);
        cursor.seek_last(&file.key(KeyType::EXTENT_DATA, offset))?;
        let is_extent = |key: Key| (key.objectid, key.item_type) == (file.number, KeyType::EXTENT_DATA);
        if cursor.key().is_none_or(|key| !is_extent(key)) {
            cursor.seek(&file.key(KeyType::EXTENT_DATA, 0))?;
        }
        while let Some((key, data)) = cursor.item().filter(|(key, _)| is_extent(*key)) {
            if window.extents.len() == WINDOW_EXTENTS {
                window.end = key.offset();
                break;
            }
            let refuse = |defect| FsError::Item { file, key, defect };
            if let Item::FileExtent(extent) = Item::parse(&key, data).map_err(refuse)? {
                let extent = convert(key.offset(), &extent).map_err(refuse)?;
                let previous = window.extents.last();
                let previous_end = previous.map_or(0, Extent::end);
                // Data that is joined with what comes before it is in both for a moment.
                let is_repeated = previous.zip(extent.as_ref()).is_some_and(|(a, b)| a.has_all_of(b));
                if key.offset() < previous_end && !is_repeated {
                    let why = "file extent begins before the previous one ends";
                    return Err(refuse(Defect::expected(why, previous_end, key.offset())));
                }
                window.extents.extend(extent.filter(|extent| extent.end() > offset && !is_repeated));
            }
            cursor.next()?;
        }
        Ok(window)
    }
}

/// File extent as readers need it; `None` for one that reads as zeros.
fn convert(start: u64, extent: &FileExtent<'_>) -> Result<Option<Extent>, Defect> {
    let length = extent.length();
    let source = match *extent {
        FileExtent::Inline { compression, data, header } => {
            if header.ram_bytes.get() > COMPRESSED_MAX_BYTES {
                let why = "inline extent is too large";
                return Err(Defect::expected(why, COMPRESSED_MAX_BYTES, header.ram_bytes.get()));
            }
            Source::Inline { data: data.into(), compression }
        }
        FileExtent::OnDisk { is_prealloc, extent, .. } if is_prealloc || extent.disk_bytenr.get() == 0 => {
            return Ok(None);
        }
        FileExtent::OnDisk { compression: Compression::None, extent, .. } => {
            let address = extent.disk_bytenr.checked_add(extent.offset.get());
            let address = address.and_then(|address| address.checked_add(length).and(Some(address)));
            let why = "file extent passes the end of the logical space";
            Source::Plain { address: address.ok_or(Defect::new(why, extent.disk_bytenr.get()))? }
        }
        FileExtent::OnDisk { compression, extent, header, .. } => {
            let compressed = CompressedExtent {
                address: extent.disk_bytenr,
                disk_length: extent.disk_num_bytes.get(),
                ram_length: header.ram_bytes.get(),
                offset: extent.offset.get(),
                compression,
            };
            let largest = compressed.disk_length.max(compressed.ram_length);
            if largest > COMPRESSED_MAX_BYTES {
                let why = "compressed extent is too large";
                return Err(Defect::expected(why, COMPRESSED_MAX_BYTES, largest));
            }
            Source::Compressed(compressed)
        }
    };
    Ok(Some(Extent { start, length, source }))
}

/// Part of `[start, end)` that fits a buffer that begins at `offset`, as a range of the buffer.
pub(crate) fn overlap(offset: u64, length: usize, start: u64, end: u64) -> std::ops::Range<usize> {
    let buffer_end = offset.saturating_add(to_u64(length));
    let from = start.clamp(offset, buffer_end) - offset;
    let to = end.clamp(offset, buffer_end) - offset;
    brindle_ondisk::to_usize(from)..brindle_ondisk::to_usize(to.max(from))
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn overlap_is_what_both_ranges_share() {
        assert_eq!(overlap(100, 50, 0, 1000), 0..50);
        assert_eq!(overlap(100, 50, 110, 120), 10..20);
        assert_eq!(overlap(100, 50, 140, 1000), 40..50);
        assert!(overlap(100, 50, 200, 300).is_empty());
        assert!(overlap(100, 50, 0, 100).is_empty());
        assert_eq!(overlap(u64::MAX - 10, 50, 0, u64::MAX), 0..10);
    }
}
