//! From memory to the devices.

use crate::{Filesystem, FsError, OpenFile, RootId};

impl Filesystem {
    /// Makes a file durable (`fsync`): its dirty data, and with the commit everything else. Reports an error of an
    /// earlier writeback once to each opener. No transaction may be joined by the caller.
    pub fn sync_file(&self, file: &OpenFile) -> Result<(), FsError> {
        let _ = file;
        todo!()
    }

    /// Writes back what is dirty of a file; durable only with the next commit. No transaction may be joined by the
    /// caller.
    pub fn write_back(&self, file: &OpenFile) -> Result<(), FsError> {
        let _ = file;
        todo!()
    }

    /// Writes back what is dirty of all files, of one subvolume if one is named; durable only with the next commit.
    /// To be done before a snapshot is made. An error is that of a file; the others are written all the same. No
    /// transaction may be joined by the caller.
    pub fn write_back_all(&self, only: Option<RootId>) -> Result<(), FsError> {
        let _ = only;
        todo!()
    }

    /// Reports the error of an earlier writeback (`flush`, `close`), once to each opener.
    pub fn take_error(&self, file: &OpenFile) -> Result<(), FsError> {
        let _ = file;
        todo!()
    }
}
