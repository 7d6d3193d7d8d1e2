//! Subvolumes and snapshots.

use crate::attributes::InodeId;
use crate::core::subvolume_hold::SubvolumeHold;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::new_inode::NewInode;
use crate::subvolume::Subvolume;
use brindle_ondisk::{QgroupId, RootId, Uuid};

impl Filesystem {
    /// The path of a subvolume from the top level, whose own is empty; `None` for one that has lost its place.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn path_of_subvolume(&self, id: RootId) -> Result<Option<Vec<u8>>, FsError> {
        self.parts.directories.path_of_subvolume(id)
    }

    /// Makes an empty subvolume, whose root directory is new. Of its surroundings it has only the compression that is
    /// set on the root of the subvolume around it, as the kernel makes them.
    pub fn create_subvolume(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<RootId, FsError> {
        self.create_subvolume_in(parent, name, new, &[])
    }

    /// The same, as part of quota groups.
    ///
    /// # Errors
    /// Those of [`create_subvolume`](Self::create_subvolume), groups that are not there, or of level 0, and quotas that are off.
    pub fn create_subvolume_in(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        groups: &[QgroupId],
    ) -> Result<RootId, FsError> {
        self.parts.subvolumes.create_subvolume(parent, name, new, groups)
    }

    /// Makes a snapshot of a subvolume as it is now, with what is dirty in memory, and commits.
    pub fn snapshot(
        &self,
        source: RootId,
        parent: InodeId,
        name: &[u8],
        read_only: bool,
    ) -> Result<RootId, FsError> {
        self.snapshot_in(source, parent, name, read_only, &[])
    }

    /// The same, as part of quota groups. Their numbers, and those of the source's groups, stay known only if both are in
    /// the same.
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot), groups that are not there, or of level 0, and quotas that are off.
    pub fn snapshot_in(
        &self,
        source: RootId,
        parent: InodeId,
        name: &[u8],
        read_only: bool,
        groups: &[QgroupId],
    ) -> Result<RootId, FsError> {
        self.parts.subvolumes.snapshot(source, parent, name, read_only, groups)
    }

    /// Deletes the subvolume of this name, with all that it holds; refused while it holds other subvolumes. Its
    /// space comes back bit by bit, by [`background_step`](Self::background_step).
    pub fn delete_subvolume(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        self.parts.subvolumes.delete_subvolume(parent, name)
    }

    /// Deletes a subvolume, wherever its name is.
    pub fn delete_subvolume_by_id(&self, id: RootId) -> Result<(), FsError> {
        self.parts.subvolumes.delete_subvolume_by_id(id)
    }

    /// Sets the subvolume that is entered when none is asked for.
    pub fn set_default_subvolume(&self, id: RootId) -> Result<(), FsError> {
        self.parts.subvolumes.set_default_subvolume(id)
    }

    /// Makes a subvolume read-only or writable. One that was received and becomes writable is no longer that which
    /// was received, and loses its received UUID.
    pub fn set_subvolume_read_only(&self, id: RootId, read_only: bool) -> Result<(), FsError> {
        self.parts.subvolumes.set_subvolume_read_only(id, read_only)
    }

    /// Every subvolume that has a place in the tree of subvolumes, by ascending id, the top level first.
    pub fn subvolumes(&self) -> Result<Vec<Subvolume>, FsError> {
        self.parts.subvolumes.subvolumes()
    }

    /// Returns true if a subvolume is read-only.
    pub fn is_subvolume_read_only(&self, id: RootId) -> Result<bool, FsError> {
        self.parts.subvolumes.is_subvolume_read_only(id)
    }

    /// The subvolume that is entered when none is asked for.
    pub fn default_subvolume(&self) -> Result<RootId, FsError> {
        self.parts.subvolumes.default_subvolume()
    }

    /// Ends the receiving of a subvolume: it becomes read-only, and has the UUID and the transaction that its sender told,
    /// all in one transaction, which is durable when this returns. A crash leaves either that, or a subvolume that is
    /// writable and was not received.
    ///
    /// # Errors
    /// A subvolume that is deleted or read-only, and writes that fail.
    pub fn finish_received(&self, id: RootId, uuid: Uuid, transid: u64) -> Result<(), FsError> {
        self.parts.subvolumes.finish_received(id, uuid, transid)
    }

    /// Keeps a read-only subvolume from being made writable or deleted, as long as what this returns lasts; `None` if it is
    /// writable.
    ///
    /// # Errors
    /// A subvolume that is deleted, or not there.
    pub fn hold_subvolume(&self, id: RootId) -> Result<Option<SubvolumeHold>, FsError> {
        SubvolumeHold::of(self.parts.core.subvolume_state(id)?)
    }
}
