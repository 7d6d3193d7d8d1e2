//! Requests and answers, between the transport and [`Operations`].

mod attributes;
mod directories;
mod files;
mod inodes;
pub(crate) mod kernel_cache;
mod names;
mod refused;
mod renames;

use crate::control_thread::ControlThread;
use crate::convert::caller;
use crate::ending::Ending;
use crate::negotiation::OpensAlone;
use crate::operations::Operations;
use brindle_fs::InodeHold;
use brindle_transport::{
    DeviceWaits, DirectoryOperation, Effects, FileOperation, FilesystemSpace, InodeOperation, MountOperation,
    Operation, Pace, Request, Server,
};
use files::pace_of_write;
use refused::RefusedPages;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// The transport's side of a mounted filesystem.
#[derive(Debug)]
pub(crate) struct Adapter {
    operations: Arc<Operations>,
    opens_alone: OpensAlone,
    ending: Arc<Ending>,
    control: ControlThread,
    refused: Arc<RefusedPages>,
    renames: ControlThread,
    stale_pages: ControlThread,
}

impl Adapter {
    pub(crate) fn new(
        operations: Arc<Operations>,
        opens_alone: OpensAlone,
        ending: Arc<Ending>,
    ) -> std::io::Result<Self> {
        let (control, renames) = (ControlThread::start("control")?, ControlThread::start("renames")?);
        let (stale_pages, refused) = (ControlThread::start("stale pages")?, Arc::default());
        Ok(Self { operations, opens_alone, ending, control, refused, renames, stale_pages })
    }

    /// The kernel is to forget pages that we did not take, as soon as it can.
    fn forget_refused(&self, node: u64, range: &Range<u64>) {
        let operations = Arc::clone(&self.operations);
        self.refused.forget_soon(node, range, operations, &self.control);
    }
}

impl Server for Adapter {
    type Leftover = InodeHold;

    fn enter_thread(&self, waits: DeviceWaits, effects: Effects) {
        brindle_fs::before_wait(move || waits.begin());
        brindle_fs::before_effects(move || effects.begin());
    }

    fn pace(&self, request: &Request<'_>) -> Pace {
        match &request.operation {
            Operation::File(FileOperation::Read { .. }) => Pace::Unknown,
            Operation::File(FileOperation::Write { write, .. }) => pace_of_write(write),
            Operation::File(
                FileOperation::Sync { .. } | FileOperation::Allocate { .. } | FileOperation::Copy { .. },
            )
            | Operation::Directory(DirectoryOperation::Sync { .. })
            | Operation::Mount(MountOperation::Sync { .. } | MountOperation::Destroy { .. })
            | Operation::Inode(InodeOperation::Ioctl { .. }) => Pace::Slow,
            Operation::Inode(InodeOperation::GetAttributes { .. })
                if self.operations.refusals.has(request.node) =>
            {
                Pace::Slow
            }
            _ => Pace::Quick,
        }
    }

    fn serve(&self, request: Request<'_>) {
        let Request { caller: asker, node, operation } = request;
        let asker = caller(asker);
        match operation {
            Operation::Name(operation) => self.serve_name(asker, node, operation),
            Operation::Inode(operation) => self.serve_inode(asker, node, operation),
            Operation::File(operation) => self.serve_file(asker, node, operation),
            Operation::Directory(operation) => self.serve_directory(node, operation),
            Operation::Mount(operation) => self.serve_mount(operation),
        }
    }

    fn forget(&self, node: u64, lookups: u64) -> Option<InodeHold> {
        self.operations.forget(node, lookups)
    }

    fn clear(&self, hold: InodeHold) {
        self.operations.nodes.release(hold);
    }
}

impl Adapter {
    /// Nothing is to be made durable on a mount that is only read.
    fn if_written(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        if self.operations.mode.is_written() { sync() } else { Ok(()) }
    }

    fn serve_mount(&self, operation: MountOperation) {
        match operation {
            MountOperation::Space { reply } => {
                reply.settle(self.space(), |reply, space| reply.space(&space));
            }
            MountOperation::Sync { reply } => {
                let synced = self.if_written(|| self.operations.durability.sync_filesystem());
                reply.settle(synced, |reply, ()| reply.done());
            }
            MountOperation::Destroy { reply } => {
                self.ending.finish();
                reply.done();
            }
        }
    }

    fn space(&self) -> Result<FilesystemSpace, Errno> {
        const NAME_MAX: u32 = 255;
        let space = self.operations.reports.space()?;
        let block_bytes = space.block_size.max(1);
        let blocks = |bytes: u64| bytes / u64::from(block_bytes);
        Ok(FilesystemSpace {
            blocks: blocks(space.total_bytes),
            free: blocks(space.free_bytes),
            available: blocks(space.available_bytes),
            files: 0,
            free_files: 0,
            block_bytes,
            name_max: NAME_MAX,
        })
    }
}
