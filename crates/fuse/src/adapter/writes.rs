//! Writes that must be durable before they are answered.

use super::Adapter;
use super::replies::reply_written;
use super::turns::Pace;
use crate::handles;
use brindle_ondisk::to_u64;
use fuser::{FileHandle, INodeNo, OpenFlags, ReplyWrite, WriteFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// A small write is a copy in memory, as a rule.
pub(super) fn pace_of(length: usize, flags: OpenFlags) -> Pace {
    const LARGE: usize = 128 << 10;
    if length < LARGE && !is_synchronous(flags) { Pace::Quick } else { Pace::Slow }
}

/// Returns true if durability is asked for by the descriptor (`O_SYNC`, `O_DSYNC`) or by the call (`RWF_SYNC`, `RWF_DSYNC`); the
/// kernel tells of both in this way, however the call was made.
fn is_synchronous(flags: OpenFlags) -> bool {
    handles::is_synchronous(OFlags::from_bits_retain(flags.0.cast_unsigned()))
}

impl Adapter {
    /// Makes durable what was written past the kernel's cache, if that is due. After a write through the cache the kernel
    /// asks for that itself, once it has written back the pages.
    pub(super) fn settle_write(
        &self,
        written: Result<usize, Errno>,
        (node, handle): (INodeNo, FileHandle),
        flags: OpenFlags,
        how: WriteFlags,
    ) -> Result<usize, Errno> {
        if !how.contains(WriteFlags::FUSE_WRITE_CACHE) && written.is_ok() {
            self.operations.settle_contents(node.0, handle.0, is_synchronous(flags))?;
        }
        written
    }

    /// Answers a write past the kernel's cache once the kernel has dropped what it has of the range. It drops pages before
    /// it hands such a write over, but buffered reads may have filled them again with what was there before. To drop them
    /// it waits for reads that are under way, which we have to answer: a thread of its own waits.
    pub(super) fn reply_behind_cache(
        &self,
        node: u64,
        range: Range<u64>,
        written: Result<usize, Errno>,
        reply: ReplyWrite,
    ) {
        let operations = Arc::clone(&self.operations);
        self.stale_pages.run(Box::new(move || {
            operations.forget_contents(node, &range);
            reply_written(written.map(to_u64), reply);
        }));
    }
}
