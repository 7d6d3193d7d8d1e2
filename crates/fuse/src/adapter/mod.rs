//! Requests and answers, between `fuser` and [`Operations`].

mod attributes;
mod control_thread;
mod directories;
mod kernel_cache;
mod refused;
mod renames;
mod replies;
mod turns;
mod writes;

pub(crate) use kernel_cache::NotifiedKernel;
pub(crate) use turns::Turns;

use crate::attributes::Stat;
use crate::convert::{
    DIRECTORY, REGULAR, SYMLINK, caller, device_on_disk, errno, file_attr, new_inode, new_time, open_flags,
    timestamp, write_origin,
};
use crate::negotiation::{Agreement, REQUEST_BYTES_MAX, negotiate};
use crate::operations::{Ioctl, Operations, Place, Rename, is_slow};
use attributes::{GENERATION, TTL};
use brindle_fs::{AttributeChange, FileType, NewInode, Whence, read_for};
use brindle_ondisk::to_u64;
use control_thread::ControlThread;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use refused::RefusedPages;
use replies::{reply_empty, reply_ioctl, reply_offset, reply_written, reply_xattr};
use rustix::fs::OFlags;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use turns::Pace;
use writes::pace_of;

/// `lseek`'s numbers.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The `fuser` side of a mounted filesystem.
#[derive(Debug)]
pub(crate) struct Adapter {
    operations: Arc<Operations>,
    agreement: Agreement,
    control: ControlThread,
    refused: Arc<RefusedPages>,
    renames: ControlThread,
    stale_pages: ControlThread,
    turns: Turns,
}

impl Adapter {
    pub(crate) fn new(operations: Arc<Operations>, turns: Turns) -> std::io::Result<Self> {
        let (control, renames) = (ControlThread::start("control")?, ControlThread::start("renames")?);
        let (stale_pages, refused) = (ControlThread::start("stale pages")?, Arc::default());
        let agreement = Agreement::default();
        Ok(Self { operations, agreement, control, refused, renames, stale_pages, turns })
    }

    /// The kernel is to forget pages that we did not take, as soon as it can.
    fn forget_refused(&self, node: u64, range: &Range<u64>) {
        let operations = Arc::clone(&self.operations);
        self.refused.forget_soon(node, range, operations, &self.control);
    }
}

thread_local! {
    /// Buffer that a request reads into: as large as the largest request, and kept, for fresh memory costs more than
    /// the copy.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.agreement = negotiate(config, self.operations.is_written());
        Ok(())
    }

    fn destroy(&mut self) {
        self.operations.end();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        read_for(request.pid());
        let _turn = self.turns.begin(Pace::Quick);
        match self.operations.lookup(parent.0, name.as_bytes()) {
            Ok(Some(stat)) => self.reply_entry(Ok(stat), reply),
            // The number 0 says that there is nothing, and that this may be remembered.
            Ok(None) => reply.entry(&TTL, &file_attr(&Stat::of_entry(0, FileType::Regular)), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, lookups: u64) {
        match self.operations.forget(node.0, lookups) {
            // To remove it takes as long as to close a file.
            Some(hold) => {
                let _turn = self.turns.begin(Pace::Quick);
                self.operations.release_nameless(hold);
            }
            None => self.turns.pass(),
        }
    }

    fn getattr(&self, _request: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(node, handle, reply);
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        let _turn = self.turns.begin(Pace::Quick);
        match self.operations.read_link(node.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turns.begin(Pace::Quick);
        if self.agreement.opens_alone {
            return reply.error(Errno::ENOSYS);
        }
        if !self.operations.is_written() {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
        }
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        match self.operations.open(caller(request), node.0, flags) {
            Ok((handle, is_past_cache)) => reply.opened(FileHandle(handle), open_flags(flags, is_past_cache)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        self.operations.close(handle.0);
        reply.ok();
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turns.begin(Pace::Quick);
        self.open_directory(node, reply);
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        self.operations.close_directory(handle.0);
        reply.ok();
    }

    fn read(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        read_for(request.pid());
        let _turn = self.turns.begin(Pace::Unknown);
        let size = usize::try_from(size.min(REQUEST_BYTES_MAX)).expect("a MiB fits");
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.operations.read(node.0, handle.0, offset, &mut buffer[..size]) {
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
        let _turn = self.turns.begin(Pace::Quick);
        // The kernel has written its pages back by itself, and asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        self.list(node, handle, offset, reply);
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        self.list_with_attributes(node, handle, offset, reply);
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turns.begin(Pace::Quick);
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
        let _turn = self.turns.begin(Pace::Quick);
        reply_xattr(self.operations.xattr(node.0, name.as_bytes()), size, reply);
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turns.begin(Pace::Quick);
        reply_xattr(self.operations.xattr_names(node.0), size, reply);
    }

    fn access(&self, _request: &Request, _node: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let _turn = self.turns.begin(Pace::Quick);
        if mask.contains(AccessFlags::W_OK) && !self.operations.is_written() {
            reply.error(Errno::EROFS);
        } else {
            reply.ok();
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        output_size: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.turns.begin(Pace::Slow);
        let ioctl = Ioctl { caller: caller(request), node: node.0, command, input: input.to_vec() };
        if !is_slow(command) {
            return reply_ioctl(self.operations.ioctl(&ioctl), output_size, reply);
        }
        let operations = Arc::clone(&self.operations);
        self.control.run(Box::new(move || reply_ioctl(operations.ioctl(&ioctl), output_size, reply)));
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        let whence = match whence {
            SEEK_DATA => Whence::Data,
            SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        if !self.operations.has_writer(node.0).unwrap_or(false) {
            return reply_offset(self.operations.seek(node.0, handle.0, offset, whence), reply);
        }
        // The kernel asks without having written its pages back, of which we know nothing yet.
        let operations = Arc::clone(&self.operations);
        self.control.run(Box::new(move || {
            operations.forget_contents(node.0, &(offset..u64::MAX));
            reply_offset(operations.seek(node.0, handle.0, offset, whence), reply);
        }));
    }

    fn fsync(&self, _: &Request, node: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let _turn = self.turns.begin(Pace::Slow);
        if !self.operations.is_written() {
            return reply.ok();
        }
        reply_empty(self.operations.sync(node.0, handle.0), reply);
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let _turn = self.turns.begin(Pace::Slow);
        if !self.operations.is_written() {
            return reply.ok();
        }
        reply_empty(self.operations.sync_directory(node.0), reply);
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
        let _turn = self.turns.begin(Pace::Quick);
        // Files are always ready; the kernel knows that by itself and asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        let changes_owner = (uid.is_some() || gid.is_some()) && mode.is_none();
        let change = AttributeChange {
            mode,
            uid,
            gid,
            size,
            accessed: accessed.map(new_time),
            modified: modified.map(new_time),
            changed: changed.map(timestamp),
            created: None,
            drop_privileges: changes_owner,
            drop_set_group_id: false,
            by_writer: false,
        };
        match self.operations.set_attributes(caller(request), node.0, handle.is_some(), &change) {
            Ok(stat) => self.reply_attributes(&stat, reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        let new = NewInode { rdev: device_on_disk(rdev), ..new_inode(request, mode, umask) };
        self.reply_entry(self.operations.create(parent.0, name.as_bytes(), &new), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        let new = new_inode(request, DIRECTORY | mode, umask);
        self.reply_entry(self.operations.create(parent.0, name.as_bytes(), &new), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _turn = self.turns.begin(Pace::Quick);
        let target = Some(target.as_os_str().as_bytes());
        let new = NewInode { target, ..new_inode(request, SYMLINK, 0) };
        self.reply_entry(self.operations.create(parent.0, name.as_bytes(), &new), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        let new = new_inode(request, REGULAR | mode, umask);
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        match self.operations.create_open(parent.0, name.as_bytes(), &new, flags.into()) {
            Ok((stat, handle)) => {
                let how = open_flags(flags, false);
                reply.created(&self.ttl(&stat), &file_attr(&stat), GENERATION, FileHandle(handle), how);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin(Pace::Quick);
        reply_empty(self.operations.unlink(parent.0, name.as_bytes()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin(Pace::Quick);
        reply_empty(self.operations.remove_directory(parent.0, name.as_bytes()), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        let place =
            |parent: INodeNo, name: &OsStr| Place { parent: parent.0, name: name.as_bytes().to_vec() };
        let (from, to) = (place(parent, name), place(new_parent, new_name));
        self.rename_with_contents(Rename { caller: caller(request), from, to, flags: flags.bits() }, reply);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turns.begin(Pace::Quick);
        self.reply_entry(self.operations.link(node.0, parent.0, name.as_bytes()), reply);
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turns.begin(pace_of(data.len(), flags));
        let origin = write_origin(request, how);
        // A page that is written back carries a handle that some opener of the file has, or had.
        let written = self.operations.write(origin, node.0, handle.0, offset, data);
        let written = self.settle_write(written, (node, handle), flags, how);
        let range = offset..offset.saturating_add(to_u64(data.len()));
        let refusal = written.err().filter(|_| how.contains(WriteFlags::FUSE_WRITE_CACHE));
        // Before the answer: a program that gets the error from fsync may write on at once.
        if let Some(error) = refusal {
            self.operations.note_refusal(node.0, error, range.end - range.start);
        }
        if refusal.is_none() && self.operations.writes_behind_cache(handle.0) {
            return self.reply_behind_cache(node.0, range, written, reply);
        }
        reply_written(written.map(to_u64), reply);
        if refusal.is_some() {
            self.forget_refused(node.0, &range);
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(Pace::Quick);
        reply_empty(self.operations.set_xattr(caller(request), node.0, name.as_bytes(), value, flags), reply);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin(Pace::Quick);
        reply_empty(self.operations.remove_xattr(node.0, name.as_bytes()), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(Pace::Slow);
        let range = offset..offset.saturating_add(length);
        reply_empty(self.operations.allocate(caller(request), node.0, handle.0, &range, mode), reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: INodeNo,
        source_handle: FileHandle,
        source_offset: u64,
        target: INodeNo,
        target_handle: FileHandle,
        target_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.turns.begin(Pace::Slow);
        let from = (source.0, source_handle.0, source_offset);
        let to = (target.0, target_handle.0, target_offset);
        reply_written(self.operations.copy(caller(request), from, to, length), reply);
    }
}
