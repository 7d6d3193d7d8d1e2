//! Names and directories that go.

use crate::{Filesystem, FsError, InodeId};

impl Filesystem {
    /// Removes a name of what is no directory. With the last name goes the inode, or once nobody has it open.
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        let _ = (parent, name);
        todo!()
    }

    /// Removes an empty directory, or deletes a subvolume that is empty.
    pub fn remove_directory(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        let _ = (parent, name);
        todo!()
    }
}
