//! Writing into memory.

use crate::{Filesystem, FsError, OpenFile};

impl Filesystem {
    /// Writes into memory, at `offset`. All of it, or what there was room for; `NoSpace` if that is nothing.
    pub fn write(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let _ = (file, offset, bytes);
        todo!()
    }

    /// Writes at the end of the file (`O_APPEND`), wherever that is by now; where it was.
    pub fn append(&self, file: &OpenFile, bytes: &[u8]) -> Result<(u64, usize), FsError> {
        let _ = (file, bytes);
        todo!()
    }
}
