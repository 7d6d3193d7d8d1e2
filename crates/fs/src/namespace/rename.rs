//! Names that change.

use super::RenameMode;
use crate::{Filesystem, FsError, InodeId};

impl Filesystem {
    /// Gives what has a name in one directory a name in another one, or the same, in place of the old name.
    pub fn rename(
        &self,
        from_parent: InodeId,
        from_name: &[u8],
        to_parent: InodeId,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let _ = (from_parent, from_name, to_parent, to_name, mode);
        todo!()
    }
}
