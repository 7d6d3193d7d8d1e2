//! Making, snapshotting and deleting subvolumes.

use crate::{Filesystem, FsError, InodeId, RootId};

impl Filesystem {
    /// Makes an empty subvolume.
    pub fn create_subvolume(
        &self,
        parent: InodeId,
        name: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<RootId, FsError> {
        let _ = (parent, name, uid, gid);
        todo!()
    }

    /// Makes a snapshot of a subvolume as it is now, with what is dirty in memory, and commits.
    pub fn snapshot(
        &self,
        source: RootId,
        parent: InodeId,
        name: &[u8],
        read_only: bool,
    ) -> Result<RootId, FsError> {
        let _ = (source, parent, name, read_only);
        todo!()
    }

    /// Deletes the subvolume of this name, with all that it holds; refused while it holds other subvolumes. Its
    /// space comes back bit by bit, by [`background_step`](Self::background_step).
    pub fn delete_subvolume(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        let _ = (parent, name);
        todo!()
    }

    /// Deletes a subvolume, wherever its name is.
    pub fn delete_subvolume_by_id(&self, id: RootId) -> Result<(), FsError> {
        let _ = id;
        todo!()
    }

    /// Sets the subvolume that is entered when none is asked for.
    pub fn set_default_subvolume(&self, id: RootId) -> Result<(), FsError> {
        let _ = id;
        todo!()
    }

    /// Makes a subvolume read-only or writable. One that was received and becomes writable is no longer that which
    /// was received, and loses its received UUID.
    pub fn set_subvolume_read_only(&self, id: RootId, read_only: bool) -> Result<(), FsError> {
        let _ = (id, read_only);
        todo!()
    }
}
