//! Contents of files in the memory that the devices have put them into.

use crate::error::FsError;
use crate::extent::file_extent::{FileExtent, Source};
use crate::extent::open_file::OpenFile;
use crate::neighbours::SMALL_FILE_BYTES;
use crate::read::{Reader, Reading};
use brindle_device::Buffer;
use brindle_ondisk::{Logical, to_u64};
use brindle_volume::{FetchedBytes, FetchedData};
use std::ops::Range;

/// Shortest range that is looked for among what was fetched, in bytes: shorter ones are copied as fast.
const FETCHED_BYTES_MIN: usize = 64 << 10;

/// Bytes of a file as they were read: of the memory of a fetch, which others may read too, or of a buffer.
#[derive(Debug)]
pub struct FileBytes(Memory);

#[derive(Debug)]
enum Memory {
    Fetched(Vec<FetchedBytes>),
    Copied { buffer: Buffer, length: usize },
}

impl FileBytes {
    /// The bytes, in parts that follow each other.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (fetched, copied) = match &self.0 {
            Memory::Fetched(parts) => (&parts[..], None),
            Memory::Copied { buffer, length } => (&[][..], Some(&buffer[..*length])),
        };
        fetched.iter().map(|part| &**part).chain(copied)
    }
}

impl Reader {
    pub(crate) fn read_bytes(
        &self,
        file: &OpenFile,
        offset: u64,
        length: usize,
    ) -> Result<FileBytes, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let _entry = file.inode().data.shared();
        if length >= FETCHED_BYTES_MIN {
            if let Some(parts) = self.fetched(file, offset, length) {
                return Ok(FileBytes(Memory::Fetched(parts)));
            }
        }
        let mut buffer = Buffer::new(length);
        let length = self.read_inside(file, offset, &mut buffer)?;
        Ok(FileBytes(Memory::Copied { buffer, length }))
    }

    /// Bytes of a large file all of which were fetched before, and are right; `None` if they must be read in the usual way, which
    /// tells what fails.
    fn fetched(&self, file: &OpenFile, offset: u64, length: usize) -> Option<Vec<FetchedBytes>> {
        // Before anything is looked up: what is freed from here on stays readable.
        let _held = self.core.pool().hold_freed_space();
        let (version, (size, range)) = self.extents.versioned(file, |memory| {
            let end = memory.size.min(offset.saturating_add(to_u64(length)));
            let range = offset..end.max(offset);
            let is_on_devices = memory.missing(&range).first() == Some(&range);
            (memory.size, is_on_devices.then_some(range))
        });
        let (version, range) = version.zip(range).filter(|_| size > SMALL_FILE_BYTES)?;
        let reading = Reading { file, version };
        // Of items that change meanwhile, a map may be an error.
        let window = self.extents.data_map(file, Some(version), offset).ok()?;
        let address = self.plain_sectors(window.from(offset).first()?, &range)?;
        let length = range.end - range.start;
        let fetched = self.core.pool().volume().fetched(address, length)?;
        if let Err(error) = self.read_ahead(reading, range.start, range.end, size) {
            // Of what is read now, the read itself tells.
            tracing::debug!("reading ahead: {error}");
        }
        let parts = self.verified(reading, offset, address, length, fetched);
        let is_unchanged = self.extents.versioned(file, |_| ()).0 == Some(version);
        parts.filter(|_| is_unchanged)
    }

    /// Address of a range, if it is of whole sectors that lie as they are in one extent.
    fn plain_sectors(&self, extent: &FileExtent, range: &Range<u64>) -> Option<Logical> {
        let Source::Plain { address } = extent.source() else { return None };
        let is_inside = extent.start <= range.start && range.end <= extent.contents_end();
        let address = address + range.start.checked_sub(extent.start).filter(|_| is_inside)?;
        let sector = self.core.sector();
        (address.is_aligned(sector) && (range.end - range.start) % sector == 0).then_some(address)
    }

    /// Bytes that were fetched, if they are right, and their checksums can be had.
    fn verified(
        &self,
        file: Reading<'_>,
        offset: u64,
        address: Logical,
        length: u64,
        fetched: FetchedData<'_>,
    ) -> Option<Vec<FetchedBytes>> {
        let sums = self.sums(file, offset, address, length).ok()?;
        fetched.verified(&sums.of_all()?).ok().flatten()
    }
}
