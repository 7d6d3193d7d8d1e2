//! Contents of files.

use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::data::allocate::AllocateMode;
use crate::data::clone::RangePair;
use crate::data::defragment::{ContentsWish, DefragmentedContents};
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::filesystem::Filesystem;
use crate::read::bytes::FileBytes;
use crate::read::seek::Whence;
use crate::read::stored::StoredExtent;
use brindle_tree::Committed;
use std::sync::Arc;

impl Filesystem {
    /// Reads from `offset` on, as much as there is and `buffer` holds. Returns how much; 0 at the end.
    pub fn read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        self.parts.reader.read(file, offset, buffer)
    }

    /// Reads like [`read`](Self::read), as much as there is and at most `length` bytes, and leaves the bytes where the devices have put
    /// them, if they were fetched before.
    pub fn read_bytes(&self, file: &OpenFile, offset: u64, length: usize) -> Result<FileBytes, FsError> {
        self.parts.reader.read_bytes(file, offset, length)
    }

    /// The first offset from `offset` on that is what is looked for; `None` where there is no such (`ENXIO`).
    /// Preallocated space counts as a hole, as it does for the kernel.
    pub fn seek(&self, file: &OpenFile, offset: u64, whence: Whence) -> Result<Option<u64>, FsError> {
        self.parts.reader.seek(file, offset, whence)
    }

    /// Bytes of an extent of a commit as they lie on the devices, compressed or not, verified by their checksums.
    ///
    /// # Errors
    /// Sectors that can't be read, or that lack a checksum.
    pub fn read_stored(&self, committed: &Committed<'_>, extent: &StoredExtent) -> Result<Vec<u8>, FsError> {
        self.parts.reader.read_stored(committed, extent)
    }

    /// Gives a range of a file space, or takes it.
    pub fn allocate(
        &self,
        file: &OpenFile,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        self.parts.data.allocate(file, mode, offset, length)
    }

    /// The same, on behalf of a host that tells the time of the change by itself.
    pub fn allocate_for_host(
        &self,
        file: &OpenFile,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        self.parts.data.allocate_for_host(file, mode, offset, length)
    }

    /// Lets the target's range have the extents of the source's (`FICLONERANGE`); the files may be of two subvolumes.
    /// Offsets and length are multiples of the sector size, or the length reaches the end of the source and the range
    /// the end of the target; a length of 0 means up to the end. Returns the number of bytes.
    pub fn clone_range(&self, pair: &RangePair<'_>) -> Result<u64, FsError> {
        self.parts.data.clone_range(pair)
    }

    /// Copies a range (`copy_file_range`): shares what can be shared and lies where the target wants it too, copies the
    /// rest. Returns the number of bytes; 0 at the end of the source.
    pub fn copy_range(&self, pair: &RangePair<'_>) -> Result<u64, FsError> {
        self.parts.data.copy_range(pair)
    }

    /// The same, on behalf of a host that tells the time of the change by itself.
    pub fn copy_range_for_host(&self, pair: &RangePair<'_>) -> Result<u64, FsError> {
        self.parts.data.copy_range_for_host(pair)
    }

    /// Writes anew what lies in many pieces of a part of a file, which begins at `from`; commits if that was anything.
    ///
    /// # Errors
    /// A filesystem or subvolume that is not written, room that is lacking, data that can't be read. What was
    /// written anew until then stays so.
    pub fn defragment_contents(
        &self,
        file: &OpenFile,
        from: u64,
        wish: &ContentsWish,
    ) -> Result<DefragmentedContents, FsError> {
        let done = self.parts.data.defragment_contents(file, from, wish)?;
        if done.moved > 0 {
            self.commit()?;
        }
        Ok(done)
    }

    /// Says that the host has told the times of all that its page cache has brought: a time that none of them confirms
    /// is taken back.
    pub fn confirm_times(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        self.parts.data.confirm_times(inode)
    }

    /// Makes a file so long: cuts it off, or lets it end in a hole.
    pub fn truncate(&self, file: &OpenFile, size: u64) -> Result<(), FsError> {
        self.parts.data.truncate(file, size)
    }

    /// Drops all contents of an inode that has lost its last name, dirty ones included, in steps that each are
    /// part of one transaction; the inode item stays, with a size of 0.
    pub fn drop_file_contents(&self, id: InodeId) -> Result<(), FsError> {
        self.parts.data.drop_file_contents(id)
    }

    /// Writes into memory, at `offset`. All of it, or what there was room for; `NoSpace` if that is nothing.
    pub fn write(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        self.parts.data.write(file, offset, bytes)
    }

    /// The same, of contents from the page cache of a host that tells their time by itself.
    pub fn write_cached(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        self.parts.data.write_cached(file, offset, bytes)
    }

    /// Returns true if a write of `bytes` bytes to a file would find room, also below the limits of quota groups. May commit, if that
    /// can help.
    pub fn has_room(&self, file: InodeId, bytes: u64) -> Result<bool, FsError> {
        self.parts.data.has_room(file, bytes)
    }

    /// Writes at the end of the file (`O_APPEND`), wherever that is by now; where it was.
    pub fn append(&self, file: &OpenFile, bytes: &[u8]) -> Result<(u64, usize), FsError> {
        self.parts.data.append(file, bytes)
    }
}
