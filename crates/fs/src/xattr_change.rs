//! Changing extended attributes: POSIX ACLs, which change the mode too, and `btrfs.compression`, which sets flags.

use crate::{Filesystem, FsError, InodeId};

/// Whether an extended attribute must or must not be there before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    #[default]
    Any,
    /// It must not be there (`XATTR_CREATE`).
    Create,
    /// It must be there (`XATTR_REPLACE`).
    Replace,
}

impl Filesystem {
    /// Sets an extended attribute.
    pub fn set_xattr(&self, id: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<(), FsError> {
        let _ = (id, name, value, mode);
        todo!()
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, id: InodeId, name: &[u8]) -> Result<(), FsError> {
        let _ = (id, name);
        todo!()
    }
}
