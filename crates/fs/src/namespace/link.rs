//! More names for an inode.

use crate::{Attributes, Filesystem, FsError, InodeId};

impl Filesystem {
    /// Gives an inode, not a directory, one more name.
    pub fn link(&self, id: InodeId, parent: InodeId, name: &[u8]) -> Result<Attributes, FsError> {
        let _ = (id, parent, name);
        todo!()
    }
}
