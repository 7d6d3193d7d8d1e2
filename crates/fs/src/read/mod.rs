//! Reading the contents of a file.
//!
//! A reader brings a buffer, which is filled from memory and from the devices ([`Reader::read`]), or takes the bytes in the memory
//! that they were fetched into ([`Reader::read_bytes`]).

pub(crate) mod bytes;
pub(crate) mod rescue;
pub(crate) mod seek;
pub(crate) mod stored;
mod sums;

use crate::compression::decompress;
use crate::core::Core;
use crate::error::FsError;
use crate::extent::Extents;
use crate::extent::cache::Version;
use crate::extent::file_extent::{CompressedExtent, FileExtent, Source};
use crate::extent::map::ExtentMap;
use crate::extent::open_file::OpenFile;
use crate::items::InodeItems;
use crate::neighbours::{Neighbours, SMALL_FILE_BYTES};
use brindle_ondisk::item::Compression;
use brindle_ondisk::{Logical, to_u64, to_usize};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Number of times a read that has met a writeback, or data that moved, begins anew, until it waits for the
/// writeback.
pub(crate) const READ_AGAIN_MAX: usize = 3;

/// A file that is read as of a version.
#[derive(Clone, Copy)]
struct Reading<'f> {
    file: &'f OpenFile,
    version: Version,
}

impl Deref for Reading<'_> {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        self.file
    }
}

/// Reads the contents of files.
#[derive(Debug)]
pub(crate) struct Reader {
    core: Arc<Core>,
    extents: Arc<Extents>,
    items: Arc<InodeItems>,
    /// Locations of small files read last.
    neighbours: Neighbours,
}

impl Reader {
    pub(crate) fn new(core: Arc<Core>, extents: Arc<Extents>, items: Arc<InodeItems>) -> Self {
        Self { core, extents, items, neighbours: Neighbours::default() }
    }

    pub(crate) fn read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let _entry = file.inode().data.shared();
        self.read_inside(file, offset, buffer)
    }

    /// Reads like [`read`](Self::read), behind the file's gate.
    pub(crate) fn read_inside(
        &self,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        file.inode().data.assert_entered();
        for _ in 0..READ_AGAIN_MAX {
            if let Some(length) = self.read_once(file, offset, buffer)? {
                return Ok(length);
            }
        }
        let _turn = file.inode().data.writeback_turn();
        self.read_in_turn(file, offset, buffer)
    }

    /// Reads like [`read`](Self::read), behind the file's gate and in its turn to write back.
    pub(crate) fn read_in_turn(
        &self,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        // Only writeback changes the items of a file that is read, and it is not its turn; data that moves does not
        // move again before the next commit.
        loop {
            if let Some(length) = self.read_once(file, offset, buffer)? {
                return Ok(length);
            }
        }
    }

    /// Reads from memory, then what is not there from the devices; `None` if the file's items have changed meanwhile.
    fn read_once(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>, FsError> {
        // Before anything is looked up: what is freed from here on stays readable.
        let _held = self.core.pool().hold_freed_space();
        let (version, (size, length, gaps)) = self.extents.versioned(file, |memory| {
            let length = to_usize(memory.size.saturating_sub(offset)).min(buffer.len());
            let gaps = if length == 0 { Vec::new() } else { memory.copy_to(offset, &mut buffer[..length]) };
            (memory.size, length, gaps)
        });
        if gaps.is_empty() {
            return Ok(Some(length));
        }
        let Some(version) = version else { return Ok(None) };
        let reading = Reading { file, version };
        let read = self.read_gaps(reading, size, offset, &mut buffer[..length], &gaps);
        if self.extents.versioned(file, |_| ()).0 != Some(version) {
            return Ok(None);
        }
        read.map(|()| Some(length))
    }

    /// Fills parts of `buffer`, which begins at `offset`, from the devices.
    fn read_gaps(
        &self,
        file: Reading<'_>,
        size: u64,
        offset: u64,
        buffer: &mut [u8],
        gaps: &[Range<u64>],
    ) -> Result<(), FsError> {
        let (Some(first), Some(last)) = (gaps.first(), gaps.last()) else {
            return Ok(());
        };
        let ahead = if size > SMALL_FILE_BYTES {
            self.read_ahead(file, first.start, last.end, size)
        } else {
            self.read_ahead_of_neighbours(file, first.start, last.end)
        };
        if let Err(error) = ahead {
            // Of what is read now, the read itself tells.
            tracing::debug!("reading ahead: {error}");
        }
        for gap in gaps {
            let mut at = gap.start;
            while at < gap.end {
                let window = self.extents.data_map(&file, Some(file.version), at)?;
                let piece_end = gap.end.min(window.end());
                let range = overlap(offset, buffer.len(), at, piece_end);
                self.read_window(file, &window, at, &mut buffer[range])?;
                at = piece_end;
            }
        }
        Ok(())
    }

    /// Fills `buffer`, which begins at `offset` and lies within the window.
    fn read_window(
        &self,
        file: Reading<'_>,
        window: &ExtentMap,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), FsError> {
        let mut filled = 0;
        for extent in window.from(offset) {
            let range = overlap(offset, buffer.len(), extent.start, extent.contents_end());
            if range.is_empty() {
                break;
            }
            buffer[filled..range.start].fill(0);
            filled = range.end;
            let at = offset + to_u64(range.start);
            self.read_extent(file, extent, at, &mut buffer[range])?;
        }
        buffer[filled..].fill(0);
        Ok(())
    }

    /// Fills `buffer`, which begins at `offset` of the file and lies within the extent.
    fn read_extent(
        &self,
        file: Reading<'_>,
        extent: &FileExtent,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), FsError> {
        let skip = offset - extent.start;
        match extent.source() {
            Source::Plain { address } => self.read_plain(file, offset, address + skip, buffer),
            Source::Zeros => {
                buffer.fill(0);
                Ok(())
            }
            Source::Inline { data, compression: Compression::None } => {
                copy_from(data, to_usize(skip), buffer);
                Ok(())
            }
            Source::Inline { data, compression } => {
                let mut whole = vec![0; to_usize(extent.length())];
                self.decompress(file, extent.start, Logical::new(0), compression, data, &mut whole)?;
                copy_from(&whole, to_usize(skip), buffer);
                Ok(())
            }
            Source::Compressed(compressed) => {
                let whole = self.decompressed(file, offset, &compressed)?;
                copy_from(&whole, to_usize(compressed.offset.saturating_add(skip)), buffer);
                Ok(())
            }
        }
    }

    /// Fills `buffer` with what lies at `address`. Whole sectors go straight into it; those at either end of
    /// which it wants only a part are read aside, for a checksum covers a sector.
    fn read_plain(
        &self,
        file: Reading<'_>,
        offset: u64,
        address: Logical,
        buffer: &mut [u8],
    ) -> Result<(), FsError> {
        let sector = to_usize(self.core.pool().volume().tree_context().sectorsize.into());
        let head = to_usize(address.get()) % sector;
        let head_length = if head == 0 { 0 } else { (sector - head).min(buffer.len()) };
        let (head_part, rest) = buffer.split_at_mut(head_length);
        if head_length > 0 {
            let start = Logical::new(address.get() - to_u64(head));
            let mut whole = vec![0; sector];
            self.read_sectors(file, offset, start, &mut whole)?;
            copy_from(&whole, head, head_part);
        }
        let address = address + to_u64(head_length);
        let offset = offset + to_u64(head_length);
        let (middle, tail) = rest.split_at_mut(rest.len() / sector * sector);
        if !middle.is_empty() {
            self.read_sectors(file, offset, address, middle)?;
        }
        if !tail.is_empty() {
            let middle_length = to_u64(middle.len());
            let mut whole = vec![0; sector];
            self.read_sectors(file, offset + middle_length, address + middle_length, &mut whole)?;
            copy_from(&whole, 0, tail);
        }
        Ok(())
    }

    /// Reads whole sectors and verifies them.
    fn read_sectors(
        &self,
        file: Reading<'_>,
        offset: u64,
        address: Logical,
        buffer: &mut [u8],
    ) -> Result<(), FsError> {
        let sums = self.sums(file, offset, address, to_u64(buffer.len()))?;
        let read = match sums.of_all() {
            Some(sums) => self.core.pool().volume().read_data(address, buffer, &sums),
            None => self.read_partly_verified(address, buffer),
        };
        read.map_err(|source| FsError::Data { file: file.id(), offset, source })
    }

    /// Contents of a compressed extent.
    fn decompressed(
        &self,
        file: Reading<'_>,
        offset: u64,
        extent: &CompressedExtent,
    ) -> Result<Arc<[u8]>, FsError> {
        let known = file.cache().decompressed(file.version, extent.address);
        if let Some(whole) = known {
            return Ok(whole);
        }
        let mut compressed = vec![0; to_usize(extent.disk_length)];
        self.read_sectors(file, offset, extent.address, &mut compressed)?;
        let mut whole = vec![0; to_usize(extent.ram_length)];
        self.decompress(file, offset, extent.address, extent.compression, &compressed, &mut whole)?;
        let whole: Arc<[u8]> = whole.into();
        file.cache().keep_decompressed(file.version, extent.address, Arc::clone(&whole));
        Ok(whole)
    }

    fn decompress(
        &self,
        file: Reading<'_>,
        offset: u64,
        at: Logical,
        algorithm: Compression,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), FsError> {
        let sectorsize = to_usize(self.core.pool().volume().tree_context().sectorsize.into());
        let failed = |error: crate::compression::DecompressError| FsError::Decompress {
            file: file.id(),
            offset,
            algorithm,
            at,
            why: error.to_string(),
        };
        decompress(algorithm, input, output, sectorsize).map_err(failed)
    }

    /// Asks the devices for the files that probably follow a small one.
    fn read_ahead_of_neighbours(&self, file: Reading<'_>, offset: u64, end: u64) -> Result<(), FsError> {
        if offset >= end {
            return Ok(());
        }
        let window = self.extents.data_map(&file, Some(file.version), offset)?;
        let first = window.from(offset).first().filter(|extent| extent.start < end);
        let place = first.and_then(|extent| place_on_disk(extent, &(offset..end)));
        let next = place.and_then(|(address, length)| self.neighbours.note(address, length));
        if let Some((address, length)) = next {
            self.core.pool().volume().prefetch(address, length);
        }
        Ok(())
    }

    /// Asks the devices for what a sequential reader will want next.
    fn read_ahead(&self, file: Reading<'_>, offset: u64, end: u64, size: u64) -> Result<(), FsError> {
        let Some(range) = file.inode().readahead().advance(offset, end, size) else {
            return Ok(());
        };
        let window = self.extents.data_map(&file, Some(file.version), range.start)?;
        for extent in window.from(range.start) {
            if extent.start >= range.end {
                break;
            }
            let volume = self.core.pool().volume();
            let Some((address, length)) = place_on_disk(extent, &range) else { continue };
            let done = volume.prefetch(address, length);
            file.inode().readahead().set_worth(volume.readahead_bytes(address));
            if done < length {
                let reached = match extent.source() {
                    Source::Plain { .. } => range.start.max(extent.start) + done,
                    _ => range.start.max(extent.start),
                };
                file.inode().readahead().fell_short(&range, reached);
                break;
            }
        }
        Ok(())
    }
}

/// Address and length of the data to be read for the part of an extent that is in a range.
fn place_on_disk(extent: &FileExtent, range: &Range<u64>) -> Option<(Logical, u64)> {
    match extent.source() {
        Source::Plain { address } => {
            let from = range.start.max(extent.start);
            Some((address + (from - extent.start), extent.contents_end().min(range.end) - from))
        }
        Source::Compressed(compressed) => Some((compressed.address, compressed.disk_length)),
        Source::Inline { .. } | Source::Zeros => None,
    }
}

/// Part of `[start, end)` that fits a buffer that begins at `offset`, as a range of the buffer.
fn overlap(offset: u64, length: usize, start: u64, end: u64) -> Range<usize> {
    let buffer_end = offset.saturating_add(to_u64(length));
    let from = start.clamp(offset, buffer_end) - offset;
    let to = end.clamp(offset, buffer_end) - offset;
    to_usize(from)..to_usize(to.max(from))
}

/// Copies what `source` holds from `skip` on; zeros where it holds nothing.
fn copy_from(source: &[u8], skip: usize, target: &mut [u8]) {
    let source = source.get(skip..).unwrap_or_default();
    let length = source.len().min(target.len());
    target[..length].copy_from_slice(&source[..length]);
    target[length..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_what_both_ranges_share() {
        assert_eq!(overlap(100, 50, 0, 1000), 0..50);
        assert_eq!(overlap(100, 50, 110, 120), 10..20);
        assert_eq!(overlap(100, 50, 140, 1000), 40..50);
        assert!(overlap(100, 50, 200, 300).is_empty());
        assert!(overlap(100, 50, 0, 100).is_empty());
        assert_eq!(overlap(u64::MAX - 10, 50, 0, u64::MAX), 0..10);
    }

    #[test]
    fn copying_past_the_source_gives_zeros() {
        let mut target = [9; 4];
        copy_from(&[1, 2, 3], 1, &mut target);
        assert_eq!(target, [2, 3, 0, 0]);
        copy_from(&[1, 2, 3], 7, &mut target);
        assert_eq!(target, [0; 4]);
    }
}
