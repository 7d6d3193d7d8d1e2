//! The files of the mount: the disk, its state, and one that takes commands.

use crate::ShownDisk;
use brindle_transport::{
    Attributes, DeviceWaits, DirectoryOperation, Effects, Entry, FileOperation, FilesystemSpace,
    InodeOperation, Listed, MountOperation, NameOperation, OpenAnswers, Opened, Operation, Pace, Reply,
    Request, Server, WriteRequest, kind,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Name of the file that is the disk.
pub(crate) const DISK_NAME: &str = "disk";
/// Name of the file that shows its state.
pub(crate) const STATUS_NAME: &str = "status";
/// Name of the file that shows times and places of its requests.
pub(crate) const ACTIVITY_NAME: &str = "activity";
/// Name of the file that takes commands.
pub(crate) const CONTROL_NAME: &str = "control";

const ROOT: u64 = 1;
const DISK: u64 = 2;
const STATUS: u64 = 3;
const CONTROL: u64 = 4;
const ACTIVITY: u64 = 5;

/// Number, name and mode of each node; the root first.
const NODES: [(u64, &str, u32); 5] = [
    (ROOT, ".", 0o040_555),
    (DISK, DISK_NAME, 0o100_600),
    (STATUS, STATUS_NAME, 0o100_444),
    (CONTROL, CONTROL_NAME, 0o100_200),
    (ACTIVITY, ACTIVITY_NAME, 0o100_444),
];

/// Time for which names and attributes stay right: always.
const TTL: Duration = Duration::from_secs(1 << 30);
const BLOCK_BYTES: u32 = 4096;

/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE`.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// Server of a disk.
#[derive(Debug)]
pub(crate) struct DiskServer<D> {
    pub(crate) disk: Arc<D>,
    pub(crate) loop_device: OnceLock<PathBuf>,
    /// True while a loop device is attached that is to have no discards. It has them where the file below can tell the size
    /// of its blocks, and they can't be taken from it later: a limit of 0 would stay with its number for all that use
    /// it after us.
    pub(crate) hides_blocks: AtomicBool,
}

impl<D: ShownDisk> DiskServer<D> {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        let (ino, _, mode) = *NODES.iter().find(|(number, ..)| *number == node)?;
        let size = if node == DISK { self.disk.size_bytes() } else { 0 };
        Some(Attributes {
            ino,
            size,
            mode,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            block_bytes: BLOCK_BYTES,
            ..Attributes::default()
        })
    }

    fn look_up(&self, name: &[u8], reply: Reply<kind::Entry>) {
        let node = NODES[1..].iter().find(|(_, known, _)| known.as_bytes() == name);
        match node.and_then(|(node, ..)| Some((*node, self.attributes(*node)?))) {
            None => reply.error(Errno::NOENT),
            Some((node, attributes)) => {
                reply.entry(&Entry { node, generation: 0, name_ttl: TTL, attributes_ttl: TTL, attributes });
            }
        }
    }

    fn name(&self, operation: NameOperation<'_>) {
        use NameOperation as Name;
        match operation {
            Name::Lookup { name, reply } => self.look_up(name, reply),
            Name::MakeNode { reply, .. }
            | Name::MakeDirectory { reply, .. }
            | Name::Symlink { reply, .. }
            | Name::Link { reply, .. } => reply.error(Errno::PERM),
            Name::Create { reply, .. } | Name::CreateUnnamed { reply, .. } => reply.error(Errno::PERM),
            Name::Unlink { reply, .. } | Name::RemoveDirectory { reply, .. } | Name::Rename { reply, .. } => {
                reply.error(Errno::PERM);
            }
        }
    }

    fn inode(&self, node: u64, operation: InodeOperation<'_>) {
        use InodeOperation as Inode;
        match operation {
            Inode::GetAttributes { reply, .. } => match self.attributes(node) {
                Some(attributes) => reply.attributes(TTL, &attributes),
                None => reply.error(Errno::NOENT),
            },
            Inode::SetAttributes { change, reply } => match self.attributes(node) {
                // A shell truncates a file before it writes a command to it; times change nothing.
                Some(attributes) if change.size.is_none_or(|size| size == attributes.size) => {
                    let is_refused = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
                    if is_refused { reply.error(Errno::PERM) } else { reply.attributes(TTL, &attributes) }
                }
                _ => reply.error(Errno::PERM),
            },
            Inode::GetExtendedAttributes { reply } => reply.error(Errno::NOSYS),
            Inode::ReadLink { reply } => reply.error(Errno::INVAL),
            // The kernel asks no more after that.
            Inode::GetXattr { reply, .. } | Inode::ListXattr { reply } => reply.error(Errno::NOSYS),
            Inode::SetXattr { reply, .. }
            | Inode::RemoveXattr { reply, .. }
            | Inode::Access { reply, .. } => {
                reply.error(Errno::NOSYS);
            }
            Inode::Ioctl { reply, .. } => reply.error(Errno::NOTTY),
        }
    }

    fn file(&self, node: u64, operation: FileOperation<'_>) {
        match operation {
            FileOperation::Open { reply, .. } => {
                let answers =
                    OpenAnswers::DIRECT_IO | OpenAnswers::PARALLEL_DIRECT_WRITES | OpenAnswers::NOFLUSH;
                reply.opened(&Opened { handle: 0, answers });
            }
            FileOperation::Release { reply, .. } => reply.done(),
            FileOperation::Read { offset, size, reply, .. } => self.read(node, offset, size, reply),
            FileOperation::Write { write, reply } => self.write(node, &write, reply),
            FileOperation::Sync { reply, .. } if node == DISK => {
                self.disk.flush(move |done| reply.settle(done, |reply, ()| reply.done()));
            }
            FileOperation::Sync { reply, .. } => reply.done(),
            FileOperation::Allocate { offset, length, mode, reply, .. } => {
                let is_discard = mode & KEEP_SIZE != 0 && mode & (PUNCH_HOLE | ZERO_RANGE) != 0;
                if node != DISK || !is_discard {
                    return reply.error(Errno::OPNOTSUPP);
                }
                if !reply.begin() {
                    return;
                }
                let answer = move |done| reply.settle(done, |reply, ()| Reply::<kind::Done>::done(reply));
                self.disk.discard(offset, length, answer);
            }
            FileOperation::Seek { reply, .. } => reply.error(Errno::NOSYS),
            FileOperation::Copy { reply, .. } => reply.error(Errno::NOSYS),
        }
    }

    fn read(&self, node: u64, offset: u64, size: usize, reply: Reply<kind::Data>) {
        match node {
            DISK => self.disk.read(offset, size, move |read| reply.settle(read, Reply::<kind::Data>::data)),
            STATUS => {
                let text = self.disk.status_text(self.loop_device.get().map(PathBuf::as_path));
                reply.data(part_of(&text, offset, size));
            }
            ACTIVITY => reply.data(part_of(&self.disk.activity_text(), offset, size)),
            _ => reply.error(Errno::INVAL),
        }
    }

    fn write(&self, node: u64, write: &WriteRequest<'_>, reply: Reply<kind::Written>) {
        if !reply.begin() {
            return;
        }
        let length = write.data.len();
        let answer = move |done| reply.settle(done, |reply, ()| reply.written(length));
        if node == DISK {
            let is_durable = write.flags.intersects(OFlags::SYNC | OFlags::DSYNC);
            return self.disk.write(write.offset, write.data, is_durable, answer);
        }
        answer(if node == CONTROL { self.disk.command(write.data) } else { Err(Errno::INVAL) });
    }

    fn directory(&self, operation: DirectoryOperation) {
        match operation {
            DirectoryOperation::Open { reply } => {
                reply.opened(&Opened { handle: 0, answers: OpenAnswers::empty() });
            }
            DirectoryOperation::Release { reply, .. } | DirectoryOperation::Sync { reply } => reply.done(),
            DirectoryOperation::Read { offset, mut reply, .. } => {
                let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
                for (at, (ino, name, mode)) in (1..).zip(NODES).skip(skipped) {
                    if reply.add(&Listed { name: name.as_bytes(), ino, offset: at, mode }) {
                        break;
                    }
                }
                reply.listed();
            }
            DirectoryOperation::ReadPlus { reply, .. } => reply.error(Errno::NOSYS),
        }
    }

    fn mount(&self, operation: MountOperation) {
        match operation {
            MountOperation::Space { reply } if self.hides_blocks.load(Ordering::Acquire) => {
                reply.error(Errno::OPNOTSUPP);
            }
            MountOperation::Space { reply } => reply.space(&FilesystemSpace {
                blocks: self.disk.size_bytes() / u64::from(BLOCK_BYTES),
                free: 0,
                available: 0,
                files: NODES.len() as u64,
                free_files: 0,
                block_bytes: BLOCK_BYTES,
                name_max: 255,
            }),
            MountOperation::Sync { reply } | MountOperation::Destroy { reply } => reply.done(),
        }
    }
}

/// A part of a text that a program reads.
fn part_of(text: &str, offset: u64, size: usize) -> &[u8] {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    &text.as_bytes()[from..text.len().min(from.saturating_add(size))]
}

impl<D: ShownDisk> Server for DiskServer<D> {
    type Leftover = ();

    fn enter_thread(&self, _: DeviceWaits, _: Effects) {}

    fn looks_out(&self) -> bool {
        // The time of the processor is for the programs on the disk, which takes more than a moment for a request.
        false
    }

    fn pace(&self, _: &Request<'_>) -> Pace {
        if self.disk.answers_later() { Pace::Quick } else { Pace::Slow }
    }

    fn serve(&self, request: Request<'_>) {
        let Request { node, operation, .. } = request;
        match operation {
            Operation::Name(operation) => self.name(operation),
            Operation::Inode(operation) => self.inode(node, operation),
            Operation::File(operation) => self.file(node, operation),
            Operation::Directory(operation) => self.directory(operation),
            Operation::Mount(operation) => self.mount(operation),
        }
    }

    fn forget(&self, _: u64, _: u64) -> Option<()> {
        None
    }

    fn clear(&self, (): ()) {}
}
