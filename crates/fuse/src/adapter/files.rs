//! Contents of files: opening, reading, writing, and ranges.

use super::Adapter;
use crate::convert::{open_answers, write_origin};
use crate::handles::is_synchronous;
use crate::permission::Caller;
use brindle_fs::{Whence, read_for};
use brindle_transport::{
    CopyRequest, FileOperation, OpenAnswers, Opened, Pace, Reply, WriteKind, WriteRequest, kind,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// `lseek`'s numbers.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// A small write is a copy in memory, as a rule.
pub(super) fn pace_of_write(write: &WriteRequest<'_>) -> Pace {
    const LARGE: usize = 128 << 10;
    if write.data.len() < LARGE && !is_synchronous(write.flags) { Pace::Quick } else { Pace::Slow }
}

impl Adapter {
    pub(super) fn serve_file(&self, caller: Caller, node: u64, operation: FileOperation<'_>) {
        let operations = &self.operations;
        match operation {
            FileOperation::Open { flags, reply } => {
                // A file that is truncated has changed.
                if flags.contains(OFlags::TRUNC) && !reply.begin() {
                    return;
                }
                let opened = self.open(caller, node, flags);
                let handle = opened.map_or(0, |opened| opened.handle);
                if !reply.deliver(opened, |reply, opened| reply.opened(&opened)) {
                    operations.openings.close(handle);
                }
            }
            FileOperation::Release { handle, reply } => {
                operations.openings.close(handle);
                reply.done();
            }
            FileOperation::Read { handle, offset, reply, .. } => {
                read_for(caller.pid);
                self.read((node, handle), offset, reply);
            }
            FileOperation::Write { write, reply } => self.write(caller, node, &write, reply),
            FileOperation::Sync { handle, reply, .. } => {
                let synced = self.if_written(|| operations.durability.sync(node, handle));
                reply.settle(synced, |reply, ()| reply.done());
            }
            FileOperation::Allocate { handle, offset, length, mode, reply } => {
                if !reply.begin() {
                    return;
                }
                let range = offset..offset.saturating_add(length);
                let allocated = operations.contents.allocate(caller, node, handle, &range, mode as i32);
                reply.settle(allocated, |reply, ()| reply.done());
            }
            FileOperation::Seek { handle, offset, whence, reply } => {
                self.seek((node, handle), offset, whence, reply);
            }
            FileOperation::Copy { copy, reply } => {
                if !reply.begin() {
                    return;
                }
                let CopyRequest {
                    source_handle,
                    source_offset,
                    target,
                    target_handle,
                    target_offset,
                    length,
                } = copy;
                let from = (node, source_handle, source_offset);
                let to = (target, target_handle, target_offset);
                reply.settle(operations.contents.copy(caller, from, to, length), Reply::copied);
            }
        }
    }

    fn open(&self, caller: Caller, node: u64, flags: OFlags) -> Result<Opened, Errno> {
        if self.opens_alone.files {
            return Err(Errno::NOSYS);
        }
        if !self.operations.mode.is_written() {
            return Ok(Opened { handle: 0, answers: OpenAnswers::KEEP_CACHE | OpenAnswers::NOFLUSH });
        }
        let (handle, is_past_cache) = self.operations.openings.open(caller, node, flags)?;
        Ok(Opened { handle, answers: open_answers(flags, is_past_cache) })
    }

    fn read(&self, (node, handle): (u64, u64), offset: u64, reply: Reply<kind::Data>) {
        let contents = &self.operations.contents;
        let fill = |buffer: &mut [u8]| contents.read_into(node, handle, offset, buffer);
        let Some(reply) = reply.fill_in_place(fill) else { return };
        let read = contents.read(node, handle, offset, reply.bytes_max());
        reply.settle(read, |reply, contents| reply.parts(contents.parts()));
    }

    fn seek(&self, (node, handle): (u64, u64), offset: u64, whence: u32, reply: Reply<kind::Offset>) {
        let whence = match whence {
            SEEK_DATA => Whence::Data,
            SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        if i64::try_from(offset).is_err() {
            return reply.error(Errno::NXIO);
        }
        if !self.operations.files.has_writer(node).unwrap_or(false) {
            reply.settle(self.operations.contents.seek(node, handle, offset, whence), Reply::offset);
            return;
        }
        // The kernel asks without having written its pages back, of which we know nothing yet.
        let operations = Arc::clone(&self.operations);
        self.control.run(Box::new(move |own| {
            operations.pages.forget(own, node, &(offset..u64::MAX));
            reply.settle(operations.contents.seek(node, handle, offset, whence), Reply::offset);
        }));
    }

    fn write(&self, caller: Caller, node: u64, write: &WriteRequest<'_>, reply: Reply<kind::Written>) {
        let origin = write_origin(caller, write.kind);
        // A page that is written back carries a handle that some opener of the file has, or had, be it of O_DIRECT.
        let is_page = write.kind.contains(WriteKind::CACHE);
        let written = self.operations.contents.write(origin, node, write.handle, write.offset, write.data);
        let written = self.settle_write(written, node, write);
        let range =
            write.offset..write.offset.saturating_add(u64::try_from(write.data.len()).unwrap_or(u64::MAX));
        let refusal = written.err().filter(|_| is_page);
        // Before the answer: a program that gets the error from fsync may write on at once.
        if let Some(error) = refusal {
            self.operations.refusals.note(node, error, range.end - range.start);
        }
        if !is_page && self.operations.files.writes_behind_cache(write.handle) {
            return self.reply_behind_cache(node, range, written, reply);
        }
        reply.settle(written, Reply::written);
        if refusal.is_some() {
            self.forget_refused(node, &range);
        }
    }

    /// Makes durable what was written past the kernel's cache, if that is due: by how the file was opened (`O_SYNC`,
    /// `O_DSYNC`), or by the call (`RWF_SYNC`, `RWF_DSYNC`). After a write through the cache the kernel asks for that itself,
    /// once it has written back the pages.
    fn settle_write(
        &self,
        written: Result<usize, Errno>,
        node: u64,
        write: &WriteRequest<'_>,
    ) -> Result<usize, Errno> {
        if !write.kind.contains(WriteKind::CACHE) && written.is_ok() {
            self.operations.durability.settle_contents(node, write.handle, is_synchronous(write.flags))?;
        }
        written
    }

    /// Answers a write past the kernel's cache once the kernel has dropped what it has of the range. It drops pages before
    /// it hands such a write over, but buffered reads may have filled them again with what was there before. To drop them
    /// it waits for reads that are under way, which we have to answer: a thread of its own waits. It waits for pages that are
    /// being written back, too, so that those must be answered without.
    fn reply_behind_cache(
        &self,
        node: u64,
        range: Range<u64>,
        written: Result<usize, Errno>,
        reply: Reply<kind::Written>,
    ) {
        let operations = Arc::clone(&self.operations);
        self.stale_pages.run(Box::new(move |own| {
            operations.pages.forget(own, node, &range);
            reply.settle(written, Reply::written);
        }));
    }
}
