//! Changing the size of a file.

use crate::{Filesystem, FsError, InodeId, OpenFile};

impl Filesystem {
    /// Makes a file so long: cuts it off, or lets it end in a hole. No transaction may be joined by the caller.
    pub fn truncate(&self, file: &OpenFile, size: u64) -> Result<(), FsError> {
        let _ = (file, size);
        todo!()
    }

    /// Drops all contents of an inode that has lost its last name, dirty ones included, in steps that each are
    /// part of one transaction; the inode item stays, with a size of 0. No transaction may be joined by the caller.
    pub fn drop_file_contents(&self, id: InodeId) -> Result<(), FsError> {
        let _ = id;
        todo!()
    }
}
