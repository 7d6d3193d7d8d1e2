//! Inodes that have lost their last name: they stay while somebody has them open, and then go.

use crate::{Filesystem, FsError, Inode, InodeId};
use std::sync::Arc;

impl Filesystem {
    /// The inode in memory, shared by all who use it. Whether there is such an inode in the pool is not looked at.
    pub fn inode(&self, id: InodeId) -> Arc<Inode> {
        self.inodes.get(id)
    }

    /// Says that somebody has the inode open: until as many calls of [`release`](Self::release) it stays even if it
    /// loses its last name.
    pub fn acquire(&self, id: InodeId) -> Result<Arc<Inode>, FsError> {
        let _ = id;
        todo!()
    }

    /// Takes an [`acquire`](Self::acquire) back; the last one removes an inode that has no name.
    pub fn release(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        let _ = inode;
        todo!()
    }
}
