//! Opening and listing directories.

use super::Adapter;
use crate::attributes::Stat;
use crate::convert::type_bits;
use crate::operations::directories as listing;
use brindle_transport::{DirectoryOperation, Entry, Listed, OpenAnswers, Opened, Reply, kind};
use rustix::io::Errno;
use std::ops::ControlFlow;

impl Adapter {
    pub(super) fn serve_directory(&self, node: u64, operation: DirectoryOperation) {
        match operation {
            DirectoryOperation::Open { reply } => {
                let opened = self.open_directory(node);
                let handle = opened.map_or(0, |opened| opened.handle);
                if !reply.deliver(opened, |reply, opened| reply.opened(&opened)) {
                    self.operations.directories.close(handle);
                }
            }
            DirectoryOperation::Release { handle, reply } => {
                self.operations.directories.close(handle);
                reply.done();
            }
            DirectoryOperation::Read { handle, offset, reply } => self.list(node, handle, offset, reply),
            DirectoryOperation::ReadPlus { handle, offset, reply } => {
                self.list_with_attributes(node, handle, offset, reply);
            }
            DirectoryOperation::Sync { reply } => {
                let synced = self.if_written(|| self.operations.durability.sync_directory(node));
                reply.settle(synced, |reply, ()| reply.done());
            }
        }
    }

    /// Opens a directory. On a mount that is only read the kernel needs no answer, and asks no more.
    fn open_directory(&self, node: u64) -> Result<Opened, Errno> {
        let cached = OpenAnswers::KEEP_CACHE | OpenAnswers::CACHE_DIR;
        if self.opens_alone.directories {
            return Err(Errno::NOSYS);
        }
        if !self.operations.mode.is_written() {
            return Ok(Opened { handle: 0, answers: cached });
        }
        let (handle, fills_cache) = self.operations.directories.open(node)?;
        Ok(Opened { handle, answers: if fills_cache { cached } else { OpenAnswers::KEEP_CACHE } })
    }

    /// Lists names.
    fn list(&self, node: u64, handle: u64, offset: u64, mut reply: Reply<kind::Names>) {
        let mut is_empty = true;
        let mut emit = |entry: listing::Listed<'_>| {
            let is_full = reply.add(&listed(&entry));
            is_empty &= is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.operations.directories.list((node, handle), offset, false, &mut emit) {
            // Entries that were listed before the error are not lost; the error comes with the next call.
            Err(error) if is_empty => reply.error(error),
            _ => reply.listed(),
        }
    }

    /// Lists names, with the attributes of all that is named.
    fn list_with_attributes(&self, node: u64, handle: u64, offset: u64, mut reply: Reply<kind::NamesPlus>) {
        let mut is_empty = true;
        let mut emit = |entry: listing::Listed<'_>| {
            // The kernel makes no nodes of the first two. Attributes that could not be read are asked for by name when they
            // are needed, and fail then.
            let is_dot = matches!(entry.name, b"." | b"..");
            let node = match entry.stat.as_ref().filter(|_| !is_dot) {
                Some(stat) => self.entry(stat),
                None => Entry { node: 0, ..self.entry(&Stat::of_entry(entry.ino, entry.kind)) },
            };
            let is_full = reply.add(&listed(&entry), &node);
            is_empty &= is_full;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match self.operations.directories.list((node, handle), offset, true, &mut emit) {
            Err(error) if is_empty => reply.error(error),
            _ => reply.listed().into_iter().for_each(|node| self.operations.nodes.forget_unanswered(node)),
        }
    }
}

fn listed<'a>(entry: &listing::Listed<'a>) -> Listed<'a> {
    Listed { name: entry.name, ino: entry.ino, offset: entry.offset, mode: type_bits(entry.kind) }
}
