//! Names: what directories hold.

use crate::attributes::{Attributes, InodeId};
use crate::core::inode_hold::InodeHold;
use crate::directory::DirectoryEntry;
use crate::directory::damaged::ListingGap;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::filesystem::Filesystem;
use crate::namespace::RenameMode;
use crate::new_inode::NewInode;
use brindle_ondisk::ObjectId;

impl Filesystem {
    /// The entry of a name, if there is one.
    pub fn lookup(&self, directory: InodeId, name: &[u8]) -> Result<Option<DirectoryEntry>, FsError> {
        self.parts.directories.lookup(directory, name)
    }

    /// Up to `limit` entries of index greater than `after` (0 for the first), in ascending order of index: those
    /// of one moment. A rename within the directory is seen as a whole or not at all.
    pub fn read_directory(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FsError> {
        self.parts.directories.read_directory(directory, after, limit)
    }

    /// Entries as [`Filesystem::read_directory`] has them, up to the first place that can't be read. More may follow if
    /// there are `limit` of them.
    pub fn read_damaged_directory(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
    ) -> (Vec<DirectoryEntry>, Option<ListingGap>) {
        self.parts.directories.read_damaged_directory(directory, after, limit)
    }

    /// The greatest index of a directory's entries; 1, which no entry has, if it is empty.
    pub fn last_index(&self, directory: InodeId) -> Result<u64, FsError> {
        self.parts.directories.last_index(directory)
    }

    /// The inode that a path leads to from `start`. Symbolic links are not followed; `.` and empty parts are
    /// passed over.
    pub fn resolve(&self, start: InodeId, path: &[u8]) -> Result<InodeId, FsError> {
        self.parts.directories.resolve(start, path)
    }

    /// The directory that holds a directory, across the borders of subvolumes; the top level holds itself.
    /// `None` where it has lost its place.
    pub fn parent_directory(&self, id: InodeId) -> Result<Option<InodeId>, FsError> {
        self.parts.directories.parent_directory(id)
    }

    /// The directory and name of an inode, the first where it has several.
    pub fn first_name(&self, id: InodeId) -> Result<Option<(ObjectId, Vec<u8>)>, FsError> {
        self.parts.directories.first_name(id)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, id: InodeId) -> Result<Vec<u8>, FsError> {
        self.parts.namespace.read_link(id)
    }

    /// Makes a file, directory, symbolic link, device node, pipe or socket.
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<Attributes, FsError> {
        self.parts.namespace.create(parent, name, new)
    }

    /// Makes a regular file, open from the beginning.
    pub fn create_open(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(Attributes, OpenFile), FsError> {
        self.parts.namespace.create_open(parent, name, new)
    }

    /// Makes a file without a name, which is held as if by [`acquire`](Self::acquire) (`O_TMPFILE`). `parent` decides in
    /// which subvolume, and what it inherits. [`link`](Self::link) can give it a name.
    pub fn create_unnamed(
        &self,
        parent: InodeId,
        new: &NewInode<'_>,
    ) -> Result<(Attributes, InodeHold), FsError> {
        self.parts.namespace.create_unnamed(parent, new)
    }

    /// Gives an inode, not a directory, one more name.
    pub fn link(&self, id: InodeId, parent: InodeId, name: &[u8]) -> Result<Attributes, FsError> {
        self.parts.namespace.link(id, parent, name)
    }

    /// Gives what has a name in one directory a name in another one, or the same, in place of the old name.
    pub fn rename(
        &self,
        from_parent: InodeId,
        from_name: &[u8],
        to_parent: InodeId,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<(), FsError> {
        self.parts.namespace.rename(from_parent, from_name, to_parent, to_name, mode)
    }

    /// Removes a name of an inode that is no directory. The inode goes with the last name, or with its last opener.
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        self.parts.namespace.unlink(parent, name)
    }

    /// Removes an empty directory, or deletes a subvolume that is empty.
    pub fn remove_directory(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        self.parts.namespace.remove_directory(parent, name)
    }
}
