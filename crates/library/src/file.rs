//! An open file.

use crate::Error;
use crate::pool::Shared;
use brindle_fs::{Attributes, FsError, InodeId, OpenFile};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// An open file. It keeps its inode, also when that loses its name, and its pool. Threads may share it: all but the
/// position is read and written without being `mut`.
///
/// What was written is durable after [`sync`](Self::sync), or with the next commit. A file that is dropped loses nothing; an
/// error that comes to light then is logged, and [`close`](Self::close) returns it.
#[derive(Debug)]
pub struct File {
    pool: Arc<Shared>,
    path: PathBuf,
    /// `None` once it is closed.
    open: Option<OpenFile>,
    position: u64,
}

impl File {
    pub(crate) fn new(pool: &Arc<Shared>, path: PathBuf, open: OpenFile) -> Self {
        Self { pool: Arc::clone(pool), path, open: Some(open), position: 0 }
    }

    /// Reads at `offset`, as much as there is and `buffer` holds. Returns how many bytes; 0 at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if no copy of the data passes its checksum.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.pool.filesystem.read(self.open(), offset, buffer).map_err(|error| self.failed(error))
    }

    /// Writes at `offset`, and fills a gap before it with zeros. Returns how many bytes there was room for.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace), [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) and
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.pool.filesystem.write(self.open(), offset, bytes).map_err(|error| self.failed(error))
    }

    /// Writes at the end, wherever another writer has moved it. Returns the offset of the first byte, and how many bytes there
    /// was room for.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, bytes: &[u8]) -> Result<(u64, usize), Error> {
        self.pool.filesystem.append(self.open(), bytes).map_err(|error| self.failed(error))
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "as of std::fs::Metadata: a size, not a collection")]
    pub fn len(&self) -> u64 {
        self.open().size()
    }

    /// Cuts the file off at a size, or lets it end in a hole.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, size: u64) -> Result<(), Error> {
        self.pool.filesystem.truncate(self.open(), size).map_err(|error| self.failed(error))
    }

    /// The attributes.
    ///
    /// # Errors
    /// Damage of the pool.
    pub fn metadata(&self) -> Result<Attributes, Error> {
        self.pool.filesystem.attributes(self.id()).map_err(|error| self.failed(error))
    }

    /// The inode.
    pub fn id(&self) -> InodeId {
        self.open().id()
    }

    /// Makes the file durable, its name included (`fsync`). Reports an error of an earlier write back once.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if a device failed: the file may not be durable then.
    pub fn sync(&self) -> Result<(), Error> {
        self.pool.filesystem.sync_file(self.open()).map_err(|error| self.failed(error))
    }

    /// Closes the file, and returns an error that dropping would log. Nothing is durable by that.
    ///
    /// # Errors
    /// Contents that could not be written back since the last [`sync`](Self::sync).
    pub fn close(mut self) -> Result<(), Error> {
        self.end().map_err(|error| self.failed(error))
    }

    fn end(&mut self) -> Result<(), FsError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let lost = self.pool.filesystem.take_error(&open);
        self.pool.filesystem.close_file(open)?;
        lost
    }

    fn open(&self) -> &OpenFile {
        self.open.as_ref().expect("only the end of its life takes it")
    }

    fn failed(&self, source: FsError) -> Error {
        Error::at(&self.path)(source)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.read_at(buffer, self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.write_at(bytes, self.position)?;
        self.position += length as u64;
        Ok(length)
    }

    /// Nothing waits in this type; [`File::sync`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(distance) => self.len().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        let before_start =
            || io::Error::new(io::ErrorKind::InvalidInput, "a position before the start of the file");
        self.position = position.ok_or_else(before_start)?;
        Ok(self.position)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{}: {error}", self.path.display());
        }
    }
}
