//! New inodes.

use super::NewInode;
use crate::{Attributes, Filesystem, FsError, Inode, InodeId};
use std::sync::Arc;

impl Filesystem {
    /// Makes a file, directory, symbolic link, device node, pipe or socket.
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<Attributes, FsError> {
        let _ = (parent, name, new);
        todo!()
    }

    /// Makes a file without a name, open as if by [`acquire`](Self::acquire) (`O_TMPFILE`). `parent` decides in
    /// which subvolume, and what it inherits. [`link`](Self::link) can give it a name.
    pub fn create_unnamed(
        &self,
        parent: InodeId,
        new: &NewInode<'_>,
    ) -> Result<(Attributes, Arc<Inode>), FsError> {
        let _ = (parent, new);
        todo!()
    }
}
