use crate::attributes::InodeId;
use crate::directory::DirectoryEntry;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_ondisk::ObjectId;

impl Filesystem {
    /// The entry of a name, if there is one.
    pub fn lookup(&self, directory: InodeId, name: &[u8]) -> Result<Option<DirectoryEntry>, FsError> {
        self.directories.lookup(directory, name)
    }

    /// Up to `limit` entries of index greater than `after` (0 for the first), in ascending order of index: those
    /// of one moment. A rename within the directory is seen as a whole or not at all.
    pub fn read_directory(
        &self,
        directory: InodeId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FsError> {
        self.directories.read_directory(directory, after, limit)
    }

    /// The greatest index of a directory's entries; 1, which no entry has, if it is empty.
    pub fn last_index(&self, directory: InodeId) -> Result<u64, FsError> {
        self.directories.last_index(directory)
    }

    /// The inode that a path leads to from `start`. Symbolic links are not followed; `.` and empty parts are
    /// passed over.
    pub fn resolve(&self, start: InodeId, path: &[u8]) -> Result<InodeId, FsError> {
        self.directories.resolve(start, path)
    }

    /// The directory that holds a directory, across the borders of subvolumes; the top level holds itself.
    /// `None` where it has lost its place.
    pub fn parent_directory(&self, id: InodeId) -> Result<Option<InodeId>, FsError> {
        self.directories.parent_directory(id)
    }

    /// The directory and name of an inode, the first where it has several.
    pub fn first_name(&self, id: InodeId) -> Result<Option<(ObjectId, Vec<u8>)>, FsError> {
        self.directories.first_name(id)
    }
}
