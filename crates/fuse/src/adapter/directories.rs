//! Opening and listing directories.

use super::Adapter;
use super::attributes::GENERATION;
use crate::attributes::Stat;
use crate::convert::{errno, file_attr, file_type};
use crate::operations::Listed;
use fuser::{Errno, FileHandle, FopenFlags, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyOpen};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

impl Adapter {
    /// Opens a directory. On a mount that is only read the kernel needs no answer, and asks no more.
    pub(super) fn open_directory(&self, node: INodeNo, reply: ReplyOpen) {
        let cached = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        if self.agreement.opens_directories_alone {
            return reply.error(Errno::ENOSYS);
        }
        if !self.operations.is_written() {
            return reply.opened(FileHandle(0), cached);
        }
        match self.operations.open_directory(node.0) {
            Ok((handle, true)) => reply.opened(FileHandle(handle), cached),
            Ok((handle, false)) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Lists names.
    pub(super) fn list(&self, node: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut is_empty = true;
        let mut emit = |entry: Listed<'_>| {
            let name = OsStr::from_bytes(entry.name);
            let is_full = reply.add(INodeNo(entry.ino), entry.offset, file_type(entry.kind), name);
            is_empty &= is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.operations.list((node.0, handle.0), offset, false, &mut emit) {
            // Entries that were listed before the error are not lost; the error comes with the next call.
            Err(error) if is_empty => reply.error(errno(error)),
            _ => reply.ok(),
        }
    }

    /// Lists names, with the attributes of all that is named.
    pub(super) fn list_with_attributes(
        &self,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut is_empty = true;
        let mut emit = |entry: Listed<'_>| {
            let name = OsStr::from_bytes(entry.name);
            // Attributes that could not be read are asked for again when they are needed, and fail then.
            let ttl = entry.stat.as_ref().map_or(Duration::ZERO, |stat| self.ttl(stat));
            let attr = file_attr(&entry.stat.unwrap_or(Stat::of_entry(entry.ino, entry.kind)));
            let is_full = reply.add(INodeNo(entry.ino), entry.offset, name, &ttl, &attr, GENERATION);
            is_empty &= is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.operations.list((node.0, handle.0), offset, true, &mut emit) {
            Err(error) if is_empty => reply.error(errno(error)),
            _ => reply.ok(),
        }
    }
}
