//! Durability: fsync, commit, sync of everything.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::filesystem::Filesystem;
use brindle_ondisk::RootId;

impl Filesystem {
    /// Makes everything durable that was done before the call: contents are written back, then the transaction is
    /// committed. Contents lost since the last call are an error, independent of their writer. Of a filesystem that
    /// is only read, everything is durable.
    pub fn sync(&self) -> Result<(), FsError> {
        self.parts.log.sync()
    }

    /// Commits the running transaction. Contents that are dirty in memory stay there, unless all commits that are asked
    /// for are to take them along (`flushoncommit`).
    pub fn commit(&self) -> Result<(), FsError> {
        self.parts.log.commit()
    }

    /// Makes everything durable before the filesystem is dropped, and writes the superblock of the last commit also to
    /// devices that sleep.
    pub fn shutdown(&self) -> Result<(), FsError> {
        self.parts.log.shutdown()
    }

    /// Gives up the lease of the pool, if it has one, once everything is durable: nothing can be written afterwards.
    pub fn release_lease(&self) {
        self.pool().volume().release_lease();
    }

    /// Makes a file durable (`fsync`): its dirty data, and what else has changed of it; everything, if that is not to be
    /// had for less than a commit. Reports an error of an earlier writeback once to each opener.
    pub fn sync_file(&self, file: &OpenFile) -> Result<(), FsError> {
        self.parts.log.sync_file(file)
    }

    /// Writes back what is dirty of a file; durable only with the next commit.
    pub fn write_back(&self, file: &OpenFile) -> Result<(), FsError> {
        self.parts.data.write_back(file)
    }

    /// Writes back what is dirty of all files, of one subvolume if one is named; durable only with the next commit.
    /// To be done before a snapshot is made. An error is that of a file; the others are written all the same.
    pub fn write_back_all(&self, only: Option<RootId>) -> Result<(), FsError> {
        self.parts.data.write_back_all(only)
    }

    /// Writes back what has been dirty for the longest time, until less than `dirty_bytes` are: some of it, to be called again. For a
    /// thread beside one that writes much. An error is that of a file.
    pub fn write_back_some(&self, dirty_bytes: u64) {
        self.parts.data.write_back_some(dirty_bytes);
    }

    /// Reports the error of an earlier writeback (`flush`, `close`), once to each opener.
    pub fn take_error(&self, file: &OpenFile) -> Result<(), FsError> {
        self.parts.data.take_error(file)
    }

    /// Makes durable what was done to the names in a directory, and to the directory itself.
    pub fn sync_directory(&self, directory: InodeId) -> Result<(), FsError> {
        self.parts.log.sync_directory(directory)
    }

    /// Makes an inode durable, with what is dirty of it. Reports no error of an earlier writeback: that is for handles.
    pub fn sync_attributes(&self, inode: InodeId) -> Result<(), FsError> {
        self.parts.log.sync_attributes(inode)
    }
}
