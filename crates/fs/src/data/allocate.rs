//! `fallocate`: space in advance, holes, zeros.

use crate::{Filesystem, FsError, OpenFile};

/// What becomes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// It gets space where it has none; the file grows to contain it.
    Allocate,
    /// It gets space where it has none (`FALLOC_FL_KEEP_SIZE`).
    AllocateKeepSize,
    /// It becomes a hole (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    PunchHole,
    /// It reads as zeros and has space (`FALLOC_FL_ZERO_RANGE`); the file grows to contain it.
    ZeroRange,
    /// It reads as zeros and has space (`FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE`).
    ZeroRangeKeepSize,
}

impl Filesystem {
    /// Gives a range of a file space, or takes it. No transaction may be joined by the caller.
    pub fn allocate(
        &self,
        file: &OpenFile,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        let _ = (file, mode, offset, length);
        todo!()
    }
}
