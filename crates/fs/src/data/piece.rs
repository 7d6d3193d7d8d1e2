//! One extent of a file, as an item that can be cut, moved and written.

use crate::InodeId;
use brindle_ondisk::item::{
    Compression, ExtentDataRef, FileExtent, FileExtentHeader, FileExtentRef, FileExtentType,
};
use brindle_ondisk::{Generation, Key, KeyType, Logical, to_u64};
use brindle_tree::DataRange;
use zerocopy::IntoBytes;

/// One extent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset in the file, in bytes.
    pub(crate) start: u64,
    /// The transaction that made it.
    pub(crate) generation: Generation,
    /// Size of the whole extent when decompressed, in bytes.
    pub(crate) ram_bytes: u64,
    /// Compression.
    pub(crate) compression: Compression,
    /// Location of its contents.
    pub(crate) place: Place,
}

/// Location of the contents of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Inline contents.
    Inline(Vec<u8>),
    /// On disk, or nowhere.
    OnDisk(Span),
}

/// Part of an extent on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// True if it reads as zeros.
    pub(crate) is_prealloc: bool,
    /// Address of the extent; 0 for a hole.
    pub(crate) disk: Logical,
    /// Size of the whole extent on disk, in bytes; 0 for a hole.
    pub(crate) disk_length: u64,
    /// Offset of this piece in the (decompressed) extent, in bytes.
    pub(crate) offset: u64,
    /// The length of this piece, in bytes.
    pub(crate) length: u64,
}

impl Span {
    /// Returns true for a hole.
    pub(crate) fn is_hole(&self) -> bool {
        self.disk.get() == 0
    }

    /// The whole extent.
    pub(crate) fn extent(&self) -> DataRange {
        DataRange { start: self.disk, length: self.disk_length }
    }
}

impl Piece {
    /// Piece in an item.
    pub(crate) fn from_item(start: u64, extent: &FileExtent<'_>) -> Self {
        let header = extent.header();
        let (compression, place) = match *extent {
            FileExtent::Inline { compression, data, .. } => (compression, Place::Inline(data.to_vec())),
            FileExtent::OnDisk { compression, is_prealloc, extent, .. } => {
                let span = Span {
                    is_prealloc,
                    disk: extent.disk_bytenr,
                    disk_length: extent.disk_num_bytes.get(),
                    offset: extent.offset.get(),
                    length: extent.num_bytes.get(),
                };
                (compression, Place::OnDisk(span))
            }
        };
        let (generation, ram_bytes) = (header.generation, header.ram_bytes.get());
        Self { start, generation, ram_bytes, compression, place }
    }

    /// A hole, for pools that want them told.
    pub(crate) fn hole(start: u64, length: u64, generation: Generation) -> Self {
        let nowhere = Logical::new(0);
        let span = Span { is_prealloc: false, disk: nowhere, disk_length: 0, offset: 0, length };
        let (compression, place) = (Compression::None, Place::OnDisk(span));
        Self { start, generation, ram_bytes: length, compression, place }
    }

    /// The item's key.
    pub(crate) fn key(&self, file: InodeId) -> Key {
        file.key(KeyType::EXTENT_DATA, self.start)
    }

    /// The item.
    pub(crate) fn to_item(&self) -> Vec<u8> {
        let extent_type = match &self.place {
            Place::Inline(_) => FileExtentType::Inline,
            Place::OnDisk(span) if span.is_prealloc => FileExtentType::Prealloc,
            Place::OnDisk(_) => FileExtentType::Regular,
        };
        let header = FileExtentHeader {
            generation: self.generation,
            ram_bytes: self.ram_bytes.into(),
            compression: self.compression as u8,
            encryption: 0,
            other_encoding: 0.into(),
            extent_type: extent_type as u8,
        };
        let mut item = header.as_bytes().to_vec();
        match &self.place {
            Place::Inline(data) => item.extend_from_slice(data),
            Place::OnDisk(span) => {
                let extent = FileExtentRef {
                    disk_bytenr: span.disk,
                    disk_num_bytes: span.disk_length.into(),
                    offset: span.offset.into(),
                    num_bytes: span.length.into(),
                };
                item.extend_from_slice(extent.as_bytes());
            }
        }
        item
    }

    /// End in the file, in bytes; of inline contents, the end of their sector.
    pub(crate) fn end(&self, sector: u64) -> u64 {
        match &self.place {
            Place::Inline(_) => self.start.saturating_add(self.ram_bytes.max(1).next_multiple_of(sector)),
            Place::OnDisk(span) => self.start.saturating_add(span.length),
        }
    }

    /// Bytes that it adds to the inode's `nbytes`.
    pub(crate) fn counted_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline(data) if self.compression == Compression::None => to_u64(data.len()),
            Place::Inline(_) => self.ram_bytes,
            Place::OnDisk(span) if span.is_hole() => 0,
            Place::OnDisk(span) => span.length,
        }
    }

    /// The extent on disk, if there is one.
    pub(crate) fn span(&self) -> Option<&Span> {
        match &self.place {
            Place::OnDisk(span) if !span.is_hole() => Some(span),
            _ => None,
        }
    }

    /// Returns true if it reads as zeros.
    pub(crate) fn is_zeros(&self) -> bool {
        matches!(&self.place, Place::OnDisk(span) if span.is_hole() || span.is_prealloc)
    }

    /// The part from `from` to `to`, which lie within it. What is in the item can't be cut.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        let mut part = self.clone();
        if let Place::OnDisk(span) = &mut part.place {
            let skipped = from - self.start;
            span.length = to - from;
            part.start = from;
            if span.is_hole() {
                // The kernel's own may have an offset, from when it was cut.
                (part.ram_bytes, span.offset) = (span.length, 0);
            } else {
                span.offset += skipped;
            }
        }
        part
    }

    /// Returns true if another piece holds the data that comes next in the same extent, and comes next in the file.
    pub(crate) fn goes_on_in(&self, next: &Self) -> bool {
        let (Some(span), Some(next_span)) = (self.span(), next.span()) else {
            return false;
        };
        let is_plain = |piece: &Self| piece.compression == Compression::None && !piece.is_zeros();
        is_plain(self)
            && is_plain(next)
            && (span.extent(), self.ram_bytes) == (next_span.extent(), next.ram_bytes)
            && self.start.checked_add(span.length) == Some(next.start)
            && span.offset.checked_add(span.length) == Some(next_span.offset)
    }

    /// Key of this piece's reference in the extent tree: it has the offset at which the extent would begin in the
    /// file.
    pub(crate) fn reference(&self, file: InodeId) -> Option<ExtentDataRef> {
        let span = self.span()?;
        Some(ExtentDataRef {
            root: file.tree,
            objectid: file.number,
            offset: self.start.wrapping_sub(span.offset).into(),
            count: 1.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_goes_on_where_it_does_in_the_file_and_on_disk() {
        let piece = |start, offset, length, is_prealloc| Piece {
            start,
            generation: Generation::new(7),
            ram_bytes: 100,
            compression: Compression::None,
            place: Place::OnDisk(Span {
                is_prealloc,
                disk: Logical::new(1000),
                disk_length: 100,
                offset,
                length,
            }),
        };
        let first = piece(40, 10, 20, false);
        assert!(first.goes_on_in(&piece(60, 30, 5, false)));
        assert!(!first.goes_on_in(&piece(61, 30, 5, false)), "there is a hole");
        assert!(!first.goes_on_in(&piece(60, 31, 5, false)), "it lies elsewhere");
        assert!(!first.goes_on_in(&piece(60, 30, 5, true)), "that is preallocated");
        assert!(!piece(40, 10, 20, true).goes_on_in(&piece(60, 30, 5, false)));
        let of = |change: fn(&mut Piece)| {
            let mut other = piece(60, 30, 5, false);
            change(&mut other);
            first.goes_on_in(&other)
        };
        assert!(!of(|other| other.ram_bytes = 99) && !of(|other| other.compression = Compression::Zstd));
        assert!(!of(|other| other.place = Place::Inline(vec![1])));
        let elsewhere = |other: &mut Piece| {
            if let Place::OnDisk(span) = &mut other.place {
                span.disk = Logical::new(2000);
            }
        };
        assert!(!of(elsewhere));
    }

    #[test]
    fn a_part_of_a_hole_lies_within_what_it_says_it_is_part_of() {
        let mut hole = Piece::hole(0, 100, Generation::new(7));
        hole.ram_bytes = 150;
        if let Place::OnDisk(span) = &mut hole.place {
            span.offset = 50;
        }
        let part = hole.part(40, 70);
        let Place::OnDisk(span) = part.place else { panic!("it is not in the item") };
        assert_eq!((part.start, span.length, span.offset, part.ram_bytes), (40, 30, 0, 30));
    }
}
