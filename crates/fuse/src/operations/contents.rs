//! Contents of open files: read and changed.

use super::access_times::AccessTimes;
use super::append_only::AppendOnly;
use super::durability::Durability;
use super::files::Files;
use super::invalidations::Invalidations;
use super::privileges::Privileges;
use crate::errno::number;
use crate::permission::Caller;
use brindle_fs::{AllocateMode, FileBytes, Filesystem, FsError, OpenFile, RangePair, SetIdRight, Whence};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// `fallocate`'s modes.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// The origin of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteOrigin {
    /// The kernel's page cache: the kernel has seen to the file's privileges when the program wrote.
    PageCache,
    /// A program, past the page cache.
    Program {
        /// The writer.
        caller: Caller,
        /// The kernel says that it has `CAP_FSETID`.
        keeps_set_ids: bool,
    },
}

/// Contents of the mount's files.
#[derive(Debug)]
pub(crate) struct Contents {
    filesystem: Arc<Filesystem>,
    files: Arc<Files>,
    invalidations: Arc<Invalidations>,
    privileges: Arc<Privileges>,
    durability: Arc<Durability>,
    access_times: Arc<AccessTimes>,
    append_only: AppendOnly,
}

impl Contents {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        files: Arc<Files>,
        invalidations: Arc<Invalidations>,
        privileges: Arc<Privileges>,
        durability: Arc<Durability>,
        access_times: Arc<AccessTimes>,
    ) -> Self {
        let append_only = AppendOnly::new(filesystem.clone(), files.clone());
        Self { filesystem, files, invalidations, privileges, durability, access_times, append_only }
    }

    /// Bytes from `offset` on, in the memory that they were read into; less than `length` only at the end of the file.
    pub(crate) fn read(
        &self,
        node: u64,
        handle: u64,
        offset: u64,
        length: usize,
    ) -> Result<FileBytes, Errno> {
        self.with_read_file(node, handle, |file| self.filesystem.read_bytes(file, offset, length))
    }

    /// Fills the buffer from `offset` on; less only at the end of the file.
    pub(crate) fn read_into(
        &self,
        node: u64,
        handle: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        self.with_read_file(node, handle, |file| self.filesystem.read(file, offset, buffer))
    }

    fn with_read_file<T>(
        &self,
        node: u64,
        handle: u64,
        read: impl FnOnce(&OpenFile) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let Some(handle) = self.files.handle(handle)? else {
            return number(read(&*self.files.without_handle(node)?));
        };
        self.access_times.note_read(&handle);
        number(read(&handle.file))
    }

    pub(crate) fn seek(&self, node: u64, handle: u64, offset: u64, whence: Whence) -> Result<u64, Errno> {
        self.files
            .with_file(node, handle, |file| self.filesystem.seek(file, offset, whence))?
            .ok_or(Errno::NXIO)
    }

    /// Writes to an open file.
    pub(crate) fn write(
        &self,
        origin: WriteOrigin,
        node: u64,
        handle: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let only_appends = self.append_only.binds(handle);
        let written = self.files.with_changed_file(node, handle, |file| match origin {
            WriteOrigin::PageCache => self.append_only.write_pages(file, only_appends, offset, bytes),
            WriteOrigin::Program { caller, keeps_set_ids } => {
                self.append_only.check(file, only_appends, offset)?;
                self.privileges.drop_for(node, file.inode(), |before| match keeps_set_ids {
                    true => SetIdRight::Keep,
                    false => caller.group_right(before.gid),
                })?;
                self.filesystem.write(file, offset, bytes)
            }
        })?;
        self.invalidations.note_write(node);
        Ok(written)
    }

    pub(crate) fn allocate(
        &self,
        caller: Caller,
        node: u64,
        handle: u64,
        range: &Range<u64>,
        mode: i32,
    ) -> Result<(), Errno> {
        let mode = allocate_mode(mode).ok_or(Errno::OPNOTSUPP)?;
        self.files.with_changed_file(node, handle, |file| {
            match mode {
                AllocateMode::Allocate | AllocateMode::AllocateKeepSize => {
                    self.filesystem.check_writable(file.id())?;
                }
                _ => self.filesystem.check_overwritable(file.id())?,
            }
            self.privileges.drop_for(node, file.inode(), |before| caller.set_id_right(before.gid))?;
            self.filesystem.allocate_for_host(file, mode, range.start, range.end - range.start)
        })?;
        self.invalidations.note_write(node);
        self.durability.settle_contents(node, handle, false)
    }

    /// Copies from one file to another: shares what can be shared. Answers how much.
    pub(crate) fn copy(
        &self,
        caller: Caller,
        source: (u64, u64, u64),
        target: (u64, u64, u64),
        length: u64,
    ) -> Result<u64, Errno> {
        /// Upper bound on the answer, in whole blocks.
        const LENGTH_MAX: u64 = 1 << 31;
        let ((source_node, source_handle, source_at), (node, handle, at)) = (source, target);
        let length = length.min(LENGTH_MAX);
        let copied = self.files.with_file(source_node, source_handle, |source| {
            let copy = |target: &OpenFile| {
                self.filesystem.check_writable(target.id())?;
                self.append_only.check(target, self.append_only.binds(handle), at)?;
                self.privileges.drop_for(node, target.inode(), |before| caller.set_id_right(before.gid))?;
                self.filesystem.copy_range_for_host(&RangePair {
                    source,
                    source_offset: source_at,
                    target,
                    target_offset: at,
                    length,
                })
            };
            Ok(self.files.with_changed_file(node, handle, copy))
        })??;
        self.invalidations.note_write(node);
        self.durability.settle_contents(node, handle, false)?;
        Ok(copied)
    }
}

fn allocate_mode(mode: i32) -> Option<AllocateMode> {
    const PUNCH: i32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_KEEP_SIZE: i32 = ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Some(AllocateMode::Allocate),
        KEEP_SIZE => Some(AllocateMode::AllocateKeepSize),
        PUNCH => Some(AllocateMode::PunchHole),
        ZERO_RANGE => Some(AllocateMode::ZeroRange),
        ZERO_KEEP_SIZE => Some(AllocateMode::ZeroRangeKeepSize),
        _ => None,
    }
}
