//! Files that share extents.

use crate::{Filesystem, FsError, OpenFile};

impl Filesystem {
    /// Lets a range of `target` have the extents of a range of `source` (`FICLONERANGE`), which may be the same file,
    /// or one of another subvolume. Offsets and length are multiples of the sector size, or the length reaches the
    /// end of the source and the range the end of the target; a length of 0 means up to the end. Returns how
    /// much. No transaction may be joined by the caller.
    pub fn clone_range(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
    ) -> Result<u64, FsError> {
        let _ = (source, source_offset, target, target_offset, length);
        todo!()
    }

    /// Copies a range (`copy_file_range`): shares what can be shared, copies the rest. Returns how much; 0 at the end of
    /// the source. No transaction may be joined by the caller.
    pub fn copy_range(
        &self,
        source: &OpenFile,
        source_offset: u64,
        target: &OpenFile,
        target_offset: u64,
        length: u64,
    ) -> Result<u64, FsError> {
        let _ = (source, source_offset, target, target_offset, length);
        todo!()
    }
}
