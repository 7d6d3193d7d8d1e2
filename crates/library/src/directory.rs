//! Listing of a directory.

use crate::Error;
use crate::pool::Shared;
use brindle_fs::{Attributes, DirectoryEntry, FileType, FsError, InodeId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries that are looked up at once.
const ENTRIES_PER_LOOK: usize = 256;

/// The entries of a directory, in the order in which they were made. What is made or removed meanwhile may be listed or not;
/// everything else is listed once.
#[derive(Debug)]
pub struct ReadDir {
    pool: Arc<Shared>,
    path: PathBuf,
    directory: InodeId,
    found: std::vec::IntoIter<DirectoryEntry>,
    /// Index of the last entry that was looked up; `None` at the end.
    after: Option<u64>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    pool: Arc<Shared>,
    path: PathBuf,
    entry: DirectoryEntry,
}

impl ReadDir {
    pub(crate) fn new(pool: &Arc<Shared>, path: PathBuf, directory: InodeId) -> Self {
        Self { pool: Arc::clone(pool), path, directory, found: Vec::new().into_iter(), after: Some(0) }
    }

    /// Looks further entries up, if there may be some.
    fn look(&mut self) -> Result<(), FsError> {
        let Some(after) = self.after.take() else { return Ok(()) };
        let found = self.pool.filesystem.read_directory(self.directory, after, ENTRIES_PER_LOOK)?;
        self.after = found.last().map(|entry| entry.index);
        self.found = found.into_iter();
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.found.len() == 0 {
            if let Err(source) = self.look() {
                return Some(Err(Error::at(&self.path)(source)));
            }
        }
        let entry = self.found.next()?;
        let path = self.path.join(OsStr::from_bytes(&entry.name));
        Some(Ok(DirEntry { pool: Arc::clone(&self.pool), path, entry }))
    }
}

impl DirEntry {
    /// The name.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.entry.name)
    }

    /// The path of the directory as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The type.
    pub fn kind(&self) -> FileType {
        self.entry.kind
    }

    /// The inode.
    pub fn id(&self) -> InodeId {
        self.entry.inode
    }

    /// The attributes, of a symbolic link its own.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`](crate::ErrorKind::Stale) if it was removed since, and damage.
    pub fn metadata(&self) -> Result<Attributes, Error> {
        self.pool.filesystem.attributes(self.entry.inode).map_err(Error::at(&self.path))
    }
}
