//! One extent of a file: what its item means to a reader, and how it is cut, moved and written as an item.

use super::COMPRESSED_MAX_BYTES;
use crate::attributes::InodeId;
use brindle_interval::Interval;
use brindle_ondisk::item::{
    self, Compression, ExtentDataRef, FileExtentHeader, FileExtentRef, FileExtentType,
};
use brindle_ondisk::{Defect, Generation, Key, KeyType, Logical, to_u64};
use brindle_tree::DataRange;
use zerocopy::IntoBytes;

/// One extent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileExtent {
    /// Offset in the file, in bytes.
    pub(crate) start: u64,
    /// The transaction that made it.
    pub(crate) generation: Generation,
    /// Size of the whole extent when decompressed, in bytes.
    pub(crate) ram_bytes: u64,
    /// Compression.
    pub(crate) compression: Compression,
    /// Location of its contents.
    pub(crate) contents: Contents,
}

/// Location of the contents of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Inline contents.
    Inline(Vec<u8>),
    /// On disk, or nowhere.
    OnDisk(DiskPart),
}

/// Part of an extent on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskPart {
    /// True if it reads as zeros.
    pub(crate) is_prealloc: bool,
    /// Address of the extent; 0 for a hole.
    pub(crate) disk: Logical,
    /// Size of the whole extent on disk, in bytes; 0 for a hole.
    pub(crate) disk_length: u64,
    /// Offset of this part in the (decompressed) extent, in bytes.
    pub(crate) offset: u64,
    /// The length of this part, in bytes.
    pub(crate) length: u64,
}

/// Meaning of an extent for a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'e> {
    /// Zeros: a hole, or preallocated space.
    Zeros,
    /// Contents in the item.
    Inline {
        /// The bytes in the item.
        data: &'e [u8],
        /// Their compression.
        compression: Compression,
    },
    /// On disk, from this address on.
    Plain {
        /// Address of the first byte.
        address: Logical,
    },
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
    /// Offset of this part of the file in the decompressed bytes.
    pub(crate) offset: u64,
    /// Compression.
    pub(crate) compression: Compression,
}

impl DiskPart {
    /// Address of the first byte of an extent that is not compressed.
    pub(crate) fn address(&self) -> Logical {
        self.disk + self.offset
    }

    /// Returns true for a hole.
    pub(crate) fn is_hole(&self) -> bool {
        self.disk.get() == 0
    }

    /// The whole extent.
    pub(crate) fn extent(&self) -> DataRange {
        DataRange { start: self.disk, length: self.disk_length }
    }
}

impl FileExtent {
    /// Extent in an item.
    pub(crate) fn from_item(start: u64, extent: &item::FileExtent<'_>) -> Self {
        let header = extent.header();
        let (compression, contents) = match *extent {
            item::FileExtent::Inline { compression, data, .. } => {
                (compression, Contents::Inline(data.to_vec()))
            }
            item::FileExtent::OnDisk { compression, is_prealloc, extent, .. } => {
                let span = DiskPart {
                    is_prealloc,
                    disk: extent.disk_bytenr,
                    disk_length: extent.disk_num_bytes.get(),
                    offset: extent.offset.get(),
                    length: extent.num_bytes.get(),
                };
                (compression, Contents::OnDisk(span))
            }
        };
        let (generation, ram_bytes) = (header.generation, header.ram_bytes.get());
        Self { start, generation, ram_bytes, compression, contents }
    }

    /// A hole, for pools that want them told.
    pub(crate) fn hole(start: u64, length: u64, generation: Generation) -> Self {
        let nowhere = Logical::new(0);
        let span = DiskPart { is_prealloc: false, disk: nowhere, disk_length: 0, offset: 0, length };
        let (compression, contents) = (Compression::None, Contents::OnDisk(span));
        Self { start, generation, ram_bytes: length, compression, contents }
    }

    /// The item's key.
    pub(crate) fn key(&self, file: InodeId) -> Key {
        file.key(KeyType::EXTENT_DATA, self.start)
    }

    /// The item.
    pub(crate) fn to_item(&self) -> Vec<u8> {
        let extent_type = match &self.contents {
            Contents::Inline(_) => FileExtentType::Inline,
            Contents::OnDisk(span) if span.is_prealloc => FileExtentType::Prealloc,
            Contents::OnDisk(_) => FileExtentType::Regular,
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
        match &self.contents {
            Contents::Inline(data) => item.extend_from_slice(data),
            Contents::OnDisk(span) => {
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
        match &self.contents {
            Contents::Inline(_) => self.start.saturating_add(self.ram_bytes.max(1).next_multiple_of(sector)),
            Contents::OnDisk(span) => self.start.saturating_add(span.length),
        }
    }

    /// The sectors of the file that it takes.
    pub(crate) fn interval(&self, sector: u64) -> Interval {
        Interval { start: self.start, end: self.end(sector) }
    }

    /// Bytes of the file that it has contents for.
    pub(crate) fn length(&self) -> u64 {
        match &self.contents {
            Contents::Inline(data) if self.compression == Compression::None => {
                to_u64(data.len()).min(self.ram_bytes)
            }
            Contents::Inline(_) => self.ram_bytes,
            Contents::OnDisk(part) => part.length,
        }
    }

    /// End of the contents in the file, in bytes; of inline contents, often within a sector.
    pub(crate) fn contents_end(&self) -> u64 {
        self.start.saturating_add(self.length())
    }

    /// Meaning for a reader; of an extent that [`check`](Self::check) has passed.
    pub(crate) fn source(&self) -> Source<'_> {
        match &self.contents {
            Contents::Inline(data) => Source::Inline { data, compression: self.compression },
            Contents::OnDisk(part) if part.is_hole() || part.is_prealloc => Source::Zeros,
            Contents::OnDisk(part) if self.compression == Compression::None => {
                Source::Plain { address: part.address() }
            }
            Contents::OnDisk(part) => Source::Compressed(CompressedExtent {
                address: part.disk,
                disk_length: part.disk_length,
                ram_length: self.ram_bytes,
                offset: part.offset,
                compression: self.compression,
            }),
        }
    }

    /// Refuses an extent that can't be read: too large to be decompressed, or past the end of the logical space.
    pub(crate) fn check(&self) -> Result<(), Defect> {
        let bound = |length, why| {
            let is_within = length <= COMPRESSED_MAX_BYTES;
            if is_within { Ok(()) } else { Err(Defect::expected(why, COMPRESSED_MAX_BYTES, length)) }
        };
        match &self.contents {
            Contents::Inline(_) => bound(self.ram_bytes, "inline extent is too large"),
            Contents::OnDisk(part) if part.is_hole() || part.is_prealloc => Ok(()),
            Contents::OnDisk(part) if self.compression == Compression::None => {
                let address = part.disk.checked_add(part.offset);
                let end = address.and_then(|address| address.checked_add(part.length));
                let why = "file extent passes the end of the logical space";
                end.map(|_| ()).ok_or(Defect::new(why, part.disk.get()))
            }
            Contents::OnDisk(part) => {
                bound(part.disk_length.max(self.ram_bytes), "compressed extent is too large")
            }
        }
    }

    /// Returns true if another extent, which begins later, is within this one, and in the same place on disk.
    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        let (Source::Plain { address: own }, Source::Plain { address }) = (self.source(), other.source())
        else {
            return false;
        };
        let distance = other.start.checked_sub(self.start);
        other.contents_end() <= self.contents_end()
            && distance.and_then(|distance| own.checked_add(distance)) == Some(address)
    }

    /// Returns true for a hole that has an item.
    pub(crate) fn is_hole(&self) -> bool {
        matches!(&self.contents, Contents::OnDisk(part) if part.is_hole())
    }

    /// The data on disk that has checksums, where the file has any: of a compressed extent, all of it.
    pub(crate) fn checksummed(&self) -> Option<DataRange> {
        let part = self.disk_part().filter(|part| !part.is_prealloc)?;
        Some(match self.compression {
            Compression::None => DataRange { start: part.address(), length: part.length },
            _ => part.extent(),
        })
    }

    /// Bytes that it adds to the inode's `nbytes`.
    pub(crate) fn counted_bytes(&self) -> u64 {
        match &self.contents {
            Contents::Inline(data) if self.compression == Compression::None => to_u64(data.len()),
            Contents::Inline(_) => self.ram_bytes,
            Contents::OnDisk(span) if span.is_hole() => 0,
            Contents::OnDisk(span) => span.length,
        }
    }

    /// The extent on disk, if there is one.
    pub(crate) fn disk_part(&self) -> Option<&DiskPart> {
        match &self.contents {
            Contents::OnDisk(span) if !span.is_hole() => Some(span),
            _ => None,
        }
    }

    /// Returns true if it reads as zeros.
    pub(crate) fn is_zeros(&self) -> bool {
        matches!(&self.contents, Contents::OnDisk(span) if span.is_hole() || span.is_prealloc)
    }

    /// The part from `from` to `to`, which lie within it. What is in the item can't be cut.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        let mut part = self.clone();
        if let Contents::OnDisk(span) = &mut part.contents {
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
        let (Some(span), Some(next_span)) = (self.disk_part(), next.disk_part()) else {
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
        let span = self.disk_part()?;
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
        let piece = |start, offset, length, is_prealloc| FileExtent {
            start,
            generation: Generation::new(7),
            ram_bytes: 100,
            compression: Compression::None,
            contents: Contents::OnDisk(DiskPart {
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
        let of = |change: fn(&mut FileExtent)| {
            let mut other = piece(60, 30, 5, false);
            change(&mut other);
            first.goes_on_in(&other)
        };
        assert!(!of(|other| other.ram_bytes = 99) && !of(|other| other.compression = Compression::Zstd));
        assert!(!of(|other| other.contents = Contents::Inline(vec![1])));
        let elsewhere = |other: &mut FileExtent| {
            if let Contents::OnDisk(span) = &mut other.contents {
                span.disk = Logical::new(2000);
            }
        };
        assert!(!of(elsewhere));
    }

    #[test]
    fn a_part_of_a_hole_lies_within_what_it_says_it_is_part_of() {
        let mut hole = FileExtent::hole(0, 100, Generation::new(7));
        hole.ram_bytes = 150;
        if let Contents::OnDisk(span) = &mut hole.contents {
            span.offset = 50;
        }
        let part = hole.part(40, 70);
        let Contents::OnDisk(span) = part.contents else { panic!("it is not in the item") };
        assert_eq!((part.start, span.length, span.offset, part.ram_bytes), (40, 30, 0, 30));
    }
}
