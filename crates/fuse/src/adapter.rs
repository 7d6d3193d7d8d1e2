//! Requests and answers, between `fuser` and [`Operations`].

use crate::attributes::Stat;
use crate::convert::{errno, file_attr, file_type};
use crate::operations::{Listed, Operations};
use brindle_fs::{FileType, Whence};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long the kernel may keep what it was told: the pool does not change while it is mounted.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Numbers are never used twice, so that a number alone says which inode is meant.
const GENERATION: Generation = Generation(0);
/// The largest request, in bytes; the kernel's own limit (`fs.fuse.max_pages_limit`) is the same by default.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// How many reads ahead the kernel may have under way.
const BACKGROUND_MAX: u16 = 64;

/// What we ask the kernel for, if it has it.
const CAPABILITIES: [InitFlags; 8] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

/// `lseek`'s numbers.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The `fuser` side of a mounted filesystem.
#[derive(Debug)]
pub(crate) struct Adapter {
    operations: Operations,
    /// The kernel opens files, and directories, without asking, once told that it may.
    opens_alone: bool,
    opens_directories_alone: bool,
}

impl Adapter {
    pub(crate) fn new(operations: Operations) -> Self {
        Self { operations, opens_alone: false, opens_directories_alone: false }
    }
}

thread_local! {
    /// What a request reads into: as large as the largest request, and kept, for fresh memory costs more than
    /// the copy.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for capability in CAPABILITIES {
            if config.add_capabilities(capability).is_err() {
                tracing::debug!("the kernel does not know {capability:?}");
            }
        }
        self.opens_alone = config.capabilities().contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.opens_directories_alone = config.capabilities().contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // Each takes the nearest possible value when refused.
        if let Err(nearest) = config.set_max_write(REQUEST_BYTES_MAX) {
            config.set_max_write(nearest).ok();
        }
        config.set_max_background(BACKGROUND_MAX).ok();
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.operations.lookup(parent.0, name.as_bytes()) {
            Ok(Some(stat)) => reply.entry(&TTL, &file_attr(&stat), GENERATION),
            // The number 0 says that there is nothing, and that this may be remembered.
            Ok(None) => reply.entry(&TTL, &file_attr(&Stat::of_entry(0, FileType::Regular)), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, lookups: u64) {
        self.operations.forget(node.0, lookups);
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.operations.stat(node.0) {
            Ok(stat) => reply.attr(&TTL, &file_attr(&stat)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.operations.read_link(node.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_alone {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
        }
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_directories_alone {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = usize::try_from(size.min(REQUEST_BYTES_MAX)).expect("a MiB fits");
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.operations.read(node.0, offset, &mut buffer[..size]) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // There is nothing to flush, and the kernel asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut is_empty = true;
        let mut emit = |entry: Listed<'_>| {
            let name = OsStr::from_bytes(entry.name);
            let is_full = reply.add(INodeNo(entry.ino), entry.offset, file_type(entry.kind), name);
            is_empty &= is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.operations.list(node.0, offset, false, &mut emit) {
            // What was listed before the error is not lost; the error comes with the next call.
            Err(error) if is_empty => reply.error(errno(error)),
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut is_empty = true;
        let mut emit = |entry: Listed<'_>| {
            let name = OsStr::from_bytes(entry.name);
            // Attributes that could not be read are asked for again by whoever wants them, and fail then.
            let ttl = if entry.stat.is_some() { TTL } else { Duration::ZERO };
            let attr = file_attr(&entry.stat.unwrap_or(Stat::of_entry(entry.ino, entry.kind)));
            let is_full = reply.add(INodeNo(entry.ino), entry.offset, name, &ttl, &attr, GENERATION);
            is_empty &= is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.operations.list(node.0, offset, true, &mut emit) {
            Err(error) if is_empty => reply.error(errno(error)),
            _ => reply.ok(),
        }
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        const NAME_MAX: u32 = 255;
        match self.operations.space() {
            Ok(space) => {
                let size = space.block_size.max(1);
                let blocks = |bytes: u64| bytes / u64::from(size);
                let free = blocks(space.free_bytes);
                let available = blocks(space.available_bytes);
                reply.statfs(blocks(space.total_bytes), free, available, 0, 0, size, NAME_MAX, size);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getxattr(&self, _request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(self.operations.xattr(node.0, name.as_bytes()), size, reply);
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(self.operations.xattr_names(node.0), size, reply);
    }

    fn access(&self, _request: &Request, _node: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS);
        } else {
            reply.ok();
        }
    }

    fn ioctl(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _input: &[u8],
        output_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.operations.ioctl(node.0, command) {
            Ok(mut answer) => {
                answer.truncate(usize::try_from(output_size).unwrap_or(usize::MAX));
                reply.ioctl(0, &answer);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let whence = match whence {
            SEEK_DATA => Whence::Data,
            SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match self.operations.seek(node.0, offset, whence) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // Files are always ready; the kernel knows that by itself and asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _created: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _target: &Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _offset: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }
}

/// A size of 0 asks how large the value is.
fn reply_xattr(value: Result<Vec<u8>, rustix::io::Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Err(error) => reply.error(errno(error)),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}
