//! Reading the contents of a file.

use crate::attributes::{Attributes, InodeId};
use crate::compression::decompress;
use crate::error::FsError;
use crate::extent::cache::{ExtentCache, Version};
use crate::extent::file_extent::{CompressedExtent, FileExtent, Source};
use crate::extent::map::ExtentMap;
use crate::filesystem::Filesystem;
use crate::hold::InodeHold;
use crate::inodes::Inode;
use crate::neighbours::SMALL_FILE_BYTES;
use brindle_ondisk::item::{Compression, FileType, InodeFlags};
use brindle_ondisk::{Defect, KeyType, Logical, to_u64, to_usize};
use brindle_sync::{Mutex, MutexGuard};
use brindle_volume::DataChecksums;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of times a read that has met a writeback, or data that moved, begins anew, until it waits for the
/// writeback.
pub(crate) const READ_AGAIN_MAX: usize = 3;

/// An open file, to be shared by threads. It keeps its inode, also when that loses its last name:
/// [`Filesystem::close_file`] removes it then; where the file is dropped instead, background work does.
#[derive(Debug)]
pub struct OpenFile {
    id: InodeId,
    inode: InodeHold,
    has_checksums: AtomicBool,
    cache: Mutex<ExtentCache>,
    /// Number of failed writebacks of the file that this handle has reported.
    pub(crate) known_failures: AtomicU64,
}

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

impl OpenFile {
    /// Id of the inode.
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.inode.data.size().expect("opening tells the size")
    }

    /// The inode, shared by all its users.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Lookups that are kept for the next one.
    pub(crate) fn cache(&self) -> MutexGuard<'_, ExtentCache> {
        self.cache.lock()
    }
}

impl Filesystem {
    /// Opens a regular file, or a symbolic link to read its target.
    pub fn open_file(&self, id: InodeId) -> Result<OpenFile, FsError> {
        self.open_known(&self.quick_attributes(id)?)
    }

    /// Opens a file whose attributes the caller has just read; [`FsError::NoInode`] if it has lost its last name since.
    pub fn open_known(&self, attributes: &Attributes) -> Result<OpenFile, FsError> {
        self.open_held(attributes, self.acquire(attributes.id)?)
    }

    /// Closes a file: removes an inode that has lost its last name if this was its last opening, and writes contents back
    /// that replace all earlier ones.
    pub fn close_file(&self, file: OpenFile) -> Result<(), FsError> {
        self.release(file.inode)
    }

    /// Ends the use of a file that was opened for one operation: as [`close_file`](Self::close_file), but for contents,
    /// which stay in memory.
    pub(crate) fn end_use(&self, file: OpenFile) -> Result<(), FsError> {
        self.let_go(file.inode)
    }

    /// Makes an open file of an inode that is held.
    pub(crate) fn open_held(&self, attributes: &Attributes, inode: InodeHold) -> Result<OpenFile, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let id = attributes.id;
        match attributes.kind {
            FileType::Regular | FileType::Symlink => {}
            FileType::Directory => return Err(FsError::IsADirectory(id)),
            _ => return Err(FsError::NotAFile(id)),
        }
        let has_checksums = !attributes.flags.contains(InodeFlags::NODATASUM);
        if inode.data.size().is_none() {
            // Attributes read before may be older than a write by a thread that has finished with the file since;
            // from here on the inode stays in memory.
            let size = if self.core.is_writable() { self.attributes(id)?.size } else { attributes.size };
            inode.data.load(size);
        }
        let known_failures = inode.data.memory().failures.into();
        let has_checksums = AtomicBool::new(has_checksums);
        Ok(OpenFile { id, inode, has_checksums, cache: Mutex::default(), known_failures })
    }

    /// Reads from `offset` on, as much as there is and `buffer` holds. Returns how much; 0 at the end.
    pub fn read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let _entry = file.inode.data.shared();
        self.read_inside(file, offset, buffer)
    }

    /// Reads like [`read`](Self::read), behind the file's gate.
    pub(crate) fn read_inside(
        &self,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        file.inode.data.assert_entered();
        for _ in 0..READ_AGAIN_MAX {
            if let Some(length) = self.read_once(file, offset, buffer)? {
                return Ok(length);
            }
        }
        let _turn = file.inode.data.writeback_turn();
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
        let (version, (size, length, gaps)) = self.versioned(file, |memory| {
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
        if self.versioned(file, |_| ()).0 != Some(version) {
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
        if size > SMALL_FILE_BYTES {
            self.read_ahead(file, first.start, last.end, size)?;
        } else {
            self.read_ahead_of_neighbours(file, first.start, last.end)?;
        }
        for gap in gaps {
            let mut at = gap.start;
            while at < gap.end {
                let window = self.data_map(&file, Some(file.version), at)?;
                let piece_end = gap.end.min(window.end());
                let range = overlap(offset, buffer.len(), at, piece_end);
                self.read_window(file, &window, at, &mut buffer[range])?;
                at = piece_end;
            }
        }
        Ok(())
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, id: InodeId) -> Result<Vec<u8>, FsError> {
        /// The kernel's `PATH_MAX`, which counts the zero at the end: no link can be longer.
        const TARGET_MAX: u64 = 4095;
        let attributes = self.attributes(id)?;
        if attributes.kind != FileType::Symlink {
            return Err(FsError::NotASymlink(id));
        }
        let file = self.open_known(&attributes)?;
        let size = file.size();
        let key = id.key(KeyType::INODE_ITEM, 0);
        let refuse = |defect| FsError::Item { file: id, key, defect };
        if size > TARGET_MAX {
            return Err(refuse(Defect::expected("length of symbolic link", TARGET_MAX, size)));
        }
        let mut target = vec![0; to_usize(size)];
        let length = self.read(&file, 0, &mut target);
        // A link that has lost its name meanwhile goes now; that it could not is no matter of the reader.
        if let Err(error) = self.end_use(file) {
            tracing::warn!("{id} has lost its last name and could not be removed: {error}");
        }
        target.truncate(length?);
        if let Some(at) = target.iter().position(|byte| *byte == 0) {
            return Err(refuse(Defect::new("zero byte in a symbolic link, at", to_u64(at))));
        }
        Ok(target)
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
        let volume = self.core.pool().volume();
        let failed = |source| FsError::Data { file: file.id, offset, source };
        if !file.has_checksums.load(Ordering::Relaxed) {
            return volume.read_data(address, buffer, &DataChecksums::none()).map_err(failed);
        }
        let checksums = self.checksums(address, to_u64(buffer.len()))?;
        let sectors = buffer.len() / to_usize(volume.tree_context().sectorsize.into());
        if checksums.found != sectors {
            // The flag can be given to a file while it is empty.
            if self.core.is_writable()
                && self.quick_attributes(file.id)?.flags.contains(InodeFlags::NODATASUM)
            {
                file.has_checksums.store(false, Ordering::Relaxed);
                return volume.read_data(address, buffer, &DataChecksums::none()).map_err(failed);
            }
            return Err(FsError::NoChecksum {
                file: file.id,
                offset,
                at: address,
                sectors,
                found: checksums.found,
            });
        }
        volume.read_data(address, buffer, &DataChecksums::all(&checksums.bytes)).map_err(failed)
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
            file: file.id,
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
        let window = self.data_map(&file, Some(file.version), offset)?;
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
        let Some(range) = file.inode.readahead().advance(offset, end, size) else {
            return Ok(());
        };
        let window = self.data_map(&file, Some(file.version), range.start)?;
        for extent in window.from(range.start) {
            if extent.start >= range.end {
                break;
            }
            let volume = self.core.pool().volume();
            let Some((address, length)) = place_on_disk(extent, &range) else { continue };
            let done = volume.prefetch(address, length);
            file.inode.readahead().set_worth(volume.readahead_bytes(address));
            if done < length {
                let reached = match extent.source() {
                    Source::Plain { .. } => range.start.max(extent.start) + done,
                    _ => range.start.max(extent.start),
                };
                file.inode.readahead().fell_short(&range, reached);
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
