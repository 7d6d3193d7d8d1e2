//! Open files, and changing what they hold.

use super::{Operations, number};
use crate::handles::{Handle, Opened};
use crate::permission::Caller;
use crate::refusals::Refusal;
use brindle_fs::{
    AllocateMode, AttributeChange, Attributes, FsError, InodeFlags, OpenFile, RangePair, RootId, SetIdRight,
    Whence,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

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

impl Operations {
    /// Opens a file. Answers its handle, and whether the kernel is to hand over each write at once, past its cache.
    pub(crate) fn open(&self, caller: Caller, node: u64, flags: OFlags) -> Result<(u64, bool), Errno> {
        let attributes = number(self.filesystem.attributes(self.inode(node)?))?;
        let is_truncated = flags.contains(OFlags::TRUNC);
        if is_truncated || flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            self.require_writable(&attributes, flags)?;
        }
        let is_marked = attributes.flags.contains(InodeFlags::SYNC);
        let mut how = Opened::from(flags);
        how.is_synchronous |= is_marked;
        how.is_past_cache |= is_marked && how.writes;
        let handle = self.open_known(&attributes, how)?;
        if is_truncated {
            let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
            if let Err(error) = self.set_attributes(caller, node, true, &change) {
                self.close(handle);
                return Err(error);
            }
            self.note_write(node);
        }
        Ok((handle, is_marked && how.writes))
    }

    /// Opens a file whose attributes are known.
    fn open_known(&self, attributes: &Attributes, how: Opened) -> Result<u64, Errno> {
        let file = number(self.filesystem.open_known(attributes))?;
        Ok(self.handles.add(Handle::new(file, how)))
    }

    /// Ends the use of a handle. A request that still uses it closes the file when it is done.
    pub(crate) fn close(&self, handle: u64) {
        let Some(handle) = self.handles.remove(handle) else { return };
        handle.end();
        if handle.writes() {
            // Before it closes a file, the kernel writes its pages back and tells their times.
            number(self.filesystem.confirm_times(handle.file.inode())).ok();
            if let Some(node) = self.numbers.known(handle.file.id()) {
                self.correct_attributes(node);
            }
        }
        if let Some(handle) = Arc::into_inner(handle) {
            // The kernel does not wait for an answer.
            number(self.filesystem.close_file(handle.file)).ok();
        }
    }

    /// Refuses writes that the kernel does not know to refuse.
    fn require_writable(&self, attributes: &Attributes, flags: OFlags) -> Result<(), Errno> {
        if attributes.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM);
        }
        let only_adds = flags.contains(OFlags::APPEND) && !flags.contains(OFlags::TRUNC);
        if attributes.flags.contains(InodeFlags::APPEND) && !only_adds {
            return Err(Errno::PERM);
        }
        if !self.filesystem.is_writable() {
            return Err(Errno::ROFS);
        }
        let is_read_only = number(self.filesystem.is_subvolume_read_only(attributes.id.tree))?;
        if is_read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Fills the buffer from `offset` on; less only at the end of the file.
    pub(crate) fn read(
        &self,
        node: u64,
        handle: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let Some(handle) = self.handle(handle)? else {
            return number(self.filesystem.read(&*self.file(node)?, offset, buffer));
        };
        let is_noted = self.notes_accesses && !self.is_resting();
        if is_noted && (self.notes_each_access || handle.is_first_access()) {
            number(self.filesystem.note_access(handle.file.id())).ok();
        }
        number(self.filesystem.read(&handle.file, offset, buffer))
    }

    pub(crate) fn seek(&self, node: u64, handle: u64, offset: u64, whence: Whence) -> Result<u64, Errno> {
        self.with_file(node, handle, |file| self.filesystem.seek(file, offset, whence))?.ok_or(Errno::NXIO)
    }

    /// Returns true if the kernel may have pages of a node that it has not written back to us yet.
    pub(crate) fn has_writer(&self, node: u64) -> Result<bool, Errno> {
        Ok(self.is_written && self.handles.has_writer(self.inode(node)?))
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
        let only_appends = self.only_appends(handle);
        let written = self.with_file(node, handle, |file| match origin {
            WriteOrigin::PageCache => self.write_pages(file, only_appends, offset, bytes),
            WriteOrigin::Program { caller, keeps_set_ids } => {
                self.check_appends(file, only_appends, offset)?;
                self.drop_privileges(node, file.inode(), |before| match keeps_set_ids {
                    true => SetIdRight::Keep,
                    false => caller.group_right(before.gid),
                })?;
                self.filesystem.write(file, offset, bytes)
            }
        })?;
        self.note_write(node);
        Ok(written)
    }

    /// Returns true if pages of the kernel's cache may have become older than what was written by this handle: another
    /// opening may have filled them while the write was under way.
    pub(crate) fn writes_behind_cache(&self, handle: u64) -> bool {
        self.handles.get(handle).is_some_and(|handle| handle.writes_behind_cache())
    }

    /// Data was not taken that the kernel had taken from a program: the next write to the file is to tell that. (Of an
    /// append-only file all is taken that was added, and another program may be the next to write. The next sync tells.)
    pub(crate) fn note_refusal(&self, node: u64, errno: Errno, bytes: u64) {
        if errno != Errno::PERM {
            self.refusals.note(node, Refusal { errno, bytes });
        }
        if let Some(cache) = self.kernel_cache.get() {
            cache.attributes_changed(node);
        }
    }

    /// Returns true if something was refused of a file, so that the kernel is to ask us before each write.
    pub(crate) fn has_refusal(&self, node: u64) -> bool {
        self.refusals.get(node).is_some()
    }

    /// The error to report to this handle before its next write. May take long.
    pub(crate) fn refusal_for(&self, node: u64, handle: u64) -> Option<Errno> {
        let refusal = self.refusals.get(node)?;
        if !self.handles.get(handle)?.writes() {
            return None;
        }
        let error = match self.still_refused(node, refusal) {
            Ok(error) => error,
            Err(error) => Some(error),
        };
        let is_told_again = match error {
            Some(Errno::NOSPC) => !self.may_need_no_room(node),
            Some(Errno::ROFS) => true,
            // What is no matter of space or of the whole mount may be otherwise the next time: it is told once.
            _ => false,
        };
        if !is_told_again {
            self.refusals.forget(node);
        }
        error
    }

    /// Returns true if some parts of a file may be written in place. The kernel does not say which part it asks for,
    /// so the error is reported once to writers of such a file, and does not keep them from writes that need no room.
    fn may_need_no_room(&self, node: u64) -> bool {
        let attributes = self.inode(node).and_then(|id| number(self.filesystem.attributes(id)));
        let in_place = InodeFlags::NODATACOW | InodeFlags::PREALLOC;
        attributes.is_ok_and(|attributes| attributes.flags.intersects(in_place))
    }

    /// The error that what was refused would meet with now.
    fn still_refused(&self, node: u64, refusal: Refusal) -> Result<Option<Errno>, Errno> {
        let is_over = match refusal.errno {
            Errno::NOSPC => number(self.filesystem.has_room(refusal.bytes))?,
            Errno::ROFS => {
                let tree = self.inode(node)?.tree;
                self.filesystem.is_writable() && !number(self.filesystem.is_subvolume_read_only(tree))?
            }
            _ => false,
        };
        Ok((!is_over).then_some(refusal.errno))
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
        self.with_file(node, handle, |file| {
            match mode {
                AllocateMode::Allocate | AllocateMode::AllocateKeepSize => {
                    self.filesystem.check_writable(file.id())?;
                }
                _ => self.filesystem.check_overwritable(file.id())?,
            }
            self.drop_privileges(node, file.inode(), |before| caller.set_id_right(before.gid))?;
            self.filesystem.allocate_for_host(file, mode, range.start, range.end - range.start)
        })?;
        self.note_write(node);
        self.settle_contents(node, handle, false)
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
        let copied = self.with_file(source_node, source_handle, |source| {
            let copy = |target: &OpenFile| {
                self.filesystem.check_writable(target.id())?;
                self.check_appends(target, self.only_appends(handle), at)?;
                self.drop_privileges(node, target.inode(), |before| caller.set_id_right(before.gid))?;
                self.filesystem.copy_range_for_host(&RangePair {
                    source,
                    source_offset: source_at,
                    target,
                    target_offset: at,
                    length,
                })
            };
            Ok(self.with_file(node, handle, copy))
        })??;
        self.note_write(node);
        self.settle_contents(node, handle, false)?;
        Ok(copied)
    }

    /// Makes a file durable.
    pub(crate) fn sync(&self, node: u64, handle: u64) -> Result<(), Errno> {
        self.with_file(node, handle, |file| {
            // The kernel has told the times of all that it has written back.
            self.filesystem.confirm_times(file.inode())?;
            self.filesystem.sync_file(file)
        })?;
        self.correct_attributes(node);
        Ok(())
    }

    /// Makes the kernel drop the allocated size of a file, if it was told another.
    fn correct_attributes(&self, node: u64) {
        if let Some(cache) = self.kernel_cache.get()
            && self.recent_writes.is_told(node)
            && let Ok(stat) = self.stat(node)
            && self.recent_writes.begin_correction(node, stat.blocks, Instant::now())
        {
            cache.attributes_changed(node);
        }
    }

    /// Makes everything durable, what the kernel holds of open files included. Not to be called by a thread that serves
    /// requests.
    pub(super) fn sync_with_pages(&self) -> Result<(), Errno> {
        self.gather_contents(None);
        number(self.filesystem.sync())
    }

    /// Makes a directory durable, and everything that was done to the names in it.
    pub(crate) fn sync_directory(&self, node: u64) -> Result<(), Errno> {
        number(self.filesystem.sync_directory(self.inode(node)?))
    }

    /// The kernel must not keep what it knows of the space that this file takes.
    fn note_write(&self, node: u64) {
        if self.recent_writes.note(node)
            && let Some(cache) = self.kernel_cache.get()
        {
            cache.attributes_changed(node);
        }
    }

    /// Makes the kernel drop contents of a range: it writes back to us what it has changed, and forgets the rest. Not
    /// to be called by a thread that serves requests.
    pub(crate) fn forget_contents(&self, node: u64, range: &Range<u64>) {
        if let Some(cache) = self.kernel_cache.get() {
            cache.contents_changed(node, range);
        }
    }

    /// Makes the kernel hand over the pages that it holds of files open to be written, of one subvolume if one is named. The
    /// kernel's own syncfs(2) only begins that on a FUSE mount, and returns with the requests under way. Not to be called by a
    /// thread that serves requests.
    pub(super) fn gather_contents(&self, only: Option<RootId>) {
        for id in self.handles.written(only) {
            if let Some(node) = self.numbers.known(id) {
                self.forget_contents(node, &(0..u64::MAX));
            }
        }
    }

    /// The kernel leaves it to us to take privileges away, and does not look what became of the mode.
    pub(super) fn privileges_changed(&self, may_have: bool, node: u64) {
        if let Some(cache) = self.kernel_cache.get().filter(|_| may_have) {
            cache.attributes_changed(node);
        }
    }

    /// Returns true if a write by this handle may only append where that makes a difference; so it is without one.
    fn only_appends(&self, handle: u64) -> bool {
        self.handles.get(handle).is_none_or(|handle| handle.only_appends())
    }

    fn handle(&self, handle: u64) -> Result<Option<Arc<Handle>>, Errno> {
        if handle == 0 { Ok(None) } else { self.handles.get(handle).map(Some).ok_or(Errno::BADF) }
    }

    /// Does something with an open file; with one opened for the occasion, if the kernel names no handle.
    fn with_file<T>(
        &self,
        node: u64,
        handle: u64,
        act: impl FnOnce(&OpenFile) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        match self.handle(handle)? {
            Some(handle) => number(act(&handle.file)),
            None => number(act(&*self.file(node)?)),
        }
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
