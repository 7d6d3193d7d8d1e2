//! Append-only files (`chattr +a`): which writes they take.
//!
//! The kernel opens such a file to be written with `O_APPEND` only, and does not let a descriptor lose that flag. But it
//! does not know of the attribute of a FUSE inode: here, a program can take the flag off its descriptor, or map the file
//! shared, and change what was there. So a descriptor that was opened with `O_APPEND` adds to an append-only file and does
//! nothing else, whatever became of its flags. One that was opened without, before the file got the attribute, may do all
//! that it could, as in the kernel.
//!
//! **Pages that the kernel writes back** begin before the end of the file, as a rule, and come by any of the descriptors
//! that write the file. So they are taken if one of those may overwrite. Otherwise the bytes before the end must be those
//! that are there. If they are not, what is behind the end is taken all the same, for another program may have added it in
//! good faith; the request is refused, which fsync(2) and msync(2) tell, and the kernel is made to forget the pages.

use super::files::Files;
use brindle_fs::{Filesystem, FsError, OpenFile};
use brindle_ondisk::{to_u64, to_usize};
use std::sync::Arc;

/// Writes to files that may be append-only.
#[derive(Debug)]
pub(super) struct AppendOnly {
    filesystem: Arc<Filesystem>,
    files: Arc<Files>,
}

impl AppendOnly {
    pub(super) fn new(filesystem: Arc<Filesystem>, files: Arc<Files>) -> Self {
        Self { filesystem, files }
    }

    /// Returns true if a write by this handle may only append where that makes a difference; so it is without one.
    pub(super) fn binds(&self, handle: u64) -> bool {
        self.files.get(handle).is_none_or(|handle| handle.only_appends())
    }

    /// Refuses what would change bytes of an append-only file from `offset` on, for a descriptor that may only append.
    pub(super) fn check(&self, file: &OpenFile, only_appends: bool, offset: u64) -> Result<(), FsError> {
        if only_appends && offset < file.size() && self.filesystem.is_append_only(file.id())? {
            return Err(changes_contents(file));
        }
        Ok(())
    }

    /// Takes pages that the kernel writes back by a descriptor. Answers how much.
    pub(super) fn write_pages(
        &self,
        file: &OpenFile,
        only_appends: bool,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let may_overwrite = !only_appends
            || self.files.has_overwriter(file.id())
            || !self.filesystem.is_append_only(file.id())?;
        let size = file.size();
        let known = to_usize(size.saturating_sub(offset)).min(bytes.len());
        if may_overwrite || known == 0 || self.has(file, offset, &bytes[..known])? {
            return self.filesystem.write_cached(file, offset, bytes);
        }
        if known < bytes.len() {
            self.filesystem.write_cached(file, offset + to_u64(known), &bytes[known..])?;
        }
        Err(changes_contents(file))
    }

    /// Returns true if the file has these bytes.
    fn has(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<bool, FsError> {
        let mut there = vec![0; bytes.len()];
        let length = self.filesystem.read(file, offset, &mut there)?;
        Ok(there[..length] == *bytes)
    }
}

fn changes_contents(file: &OpenFile) -> FsError {
    FsError::NotPermitted { file: file.id(), why: "it is append-only, and has other contents there" }
}
