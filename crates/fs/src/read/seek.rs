//! Seeks for data and holes in a file.

use crate::error::FsError;
use crate::extent::cache::Version;
use crate::read::{OpenFile, READ_AGAIN_MAX, Reader};
use std::ops::Range;

/// Target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The first byte of data (`SEEK_DATA`).
    Data,
    /// The first byte of a hole (`SEEK_HOLE`); the end of the file is one.
    Hole,
}

impl Reader {
    pub(crate) fn seek(&self, file: &OpenFile, offset: u64, whence: Whence) -> Result<Option<u64>, FsError> {
        let _entry = file.inode().data.shared();
        let size = file.size();
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset;
        while at < size {
            let data = self.data_from(file, at)?.filter(|data| data.start < size);
            match (whence, data) {
                (Whence::Data, data) => return Ok(data.map(|data| data.start.max(at))),
                (Whence::Hole, Some(data)) if data.start <= at => at = data.end,
                (Whence::Hole, _) => return Ok(Some(at)),
            }
        }
        Ok(Some(size))
    }

    /// The first data that ends behind `offset`, in memory or on disk; the end of it is perhaps not all of it.
    fn data_from(&self, file: &OpenFile, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        for _ in 0..READ_AGAIN_MAX {
            if let Some(found) = self.settled_data_from(file, offset)? {
                return Ok(found);
            }
        }
        let _turn = file.inode().data.writeback_turn();
        loop {
            if let Some(found) = self.settled_data_from(file, offset)? {
                return Ok(found);
            }
        }
    }

    /// The same; `None` if the file's items have changed meanwhile: while writeback cuts an extent, its rest is nowhere for
    /// a moment, and extents that are looked up then may seem to overlap.
    fn settled_data_from(&self, file: &OpenFile, offset: u64) -> Result<Option<Option<Range<u64>>>, FsError> {
        let (version, in_memory) = self.extents.versioned(file, |memory| memory.first_from(offset));
        let Some(version) = version else { return Ok(None) };
        let on_disk = self.data_on_disk_from(file, version, offset);
        if self.extents.versioned(file, |_| ()).0 != Some(version) {
            return Ok(None);
        }
        let first = [in_memory, on_disk?].into_iter().flatten();
        Ok(Some(first.min_by_key(|data| (data.start.max(offset), std::cmp::Reverse(data.end)))))
    }

    fn data_on_disk_from(
        &self,
        file: &OpenFile,
        version: Version,
        offset: u64,
    ) -> Result<Option<Range<u64>>, FsError> {
        let mut at = offset;
        loop {
            let map = self.extents.data_map(file, Some(version), at)?;
            if let Some(extent) = map.from(at).first() {
                return Ok(Some(extent.start..extent.contents_end()));
            }
            if map.end() == u64::MAX {
                return Ok(None);
            }
            at = map.end();
        }
    }
}
