//! A FUSE filesystem that does nothing: the yardstick for benchmarks of mounts. It agrees with the kernel on the same
//! things as a writable mount of brindle, keeps names and attributes in maps in memory, forgets what is written and
//! reads zeros.
//!
//! `null MOUNTPOINT [THREADS]`, as root; ends when it is unmounted. With `RINGS` in the environment requests come by rings.

use brindle_transport::{
    AttributeChange, Attributes, Channel, DeviceWaits, DirectoryOperation, Effects, Entry, Features,
    FileOperation, FilesystemSpace, InodeOperation, Listed, MountOperation, MountOptions, NameOperation,
    OpenAnswers, Opened, Operation, Pace, Reply, Request, RingUse, Server, Session, Time, Wishes, connect,
    kind,
};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

const TTL: Duration = Duration::from_secs(24 * 60 * 60);
const ROOT: u64 = 1;
const THREADS_DEFAULT: usize = 8;
const REQUEST_BYTES: u32 = 1 << 20;
static ZEROS: [u8; REQUEST_BYTES as usize] = [0; REQUEST_BYTES as usize];
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// A file or directory.
struct Node {
    attributes: Mutex<Attributes>,
    children: Mutex<Children>,
    target: Vec<u8>,
}

/// Children of a directory: by name, and in the order of creation.
#[derive(Default)]
struct Children {
    by_name: HashMap<Vec<u8>, (u64, u64)>,
    by_place: BTreeMap<u64, Vec<u8>>,
    last: u64,
}

impl Children {
    fn insert(&mut self, name: &[u8], ino: u64) {
        self.last += 1;
        self.by_name.insert(name.to_owned(), (ino, self.last));
        self.by_place.insert(self.last, name.to_owned());
    }

    fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let (ino, place) = self.by_name.remove(name)?;
        self.by_place.remove(&place);
        Some(ino)
    }
}

struct Null {
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    last: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(attributes: Attributes) -> Entry {
    Entry { node: attributes.ino, generation: 0, name_ttl: TTL, attributes_ttl: TTL, attributes }
}

impl Null {
    fn new() -> Self {
        let null = Self { nodes: RwLock::default(), last: AtomicU64::new(ROOT - 1) };
        null.add(DIRECTORY | 0o755, 0, 0, &[]);
        null
    }

    fn add(&self, mode: u32, uid: u32, gid: u32, target: &[u8]) -> Attributes {
        let ino = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let now = Time { seconds, nanoseconds: since.subsec_nanos() };
        let attributes = Attributes {
            ino,
            size: target.len() as u64,
            accessed: now,
            modified: now,
            changed: now,
            mode,
            nlink: 1,
            uid,
            gid,
            block_bytes: 4096,
            ..Attributes::default()
        };
        let attributes_and_names = Node {
            attributes: Mutex::new(attributes),
            children: Mutex::default(),
            target: target.to_owned(),
        };
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(ino, Arc::new(attributes_and_names));
        attributes
    }

    fn node(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&ino).cloned().ok_or(Errno::NOENT)
    }

    fn make(&self, request: &Made<'_>) -> Result<Entry, Errno> {
        let parent = self.node(request.parent)?;
        let made = self.add(request.mode, request.uid, request.gid, request.target);
        locked(&parent.children).insert(request.name, made.ino);
        Ok(entry(made))
    }

    /// The entry of a name; one of node 0 if there is no such.
    fn find(&self, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let parent = self.node(parent)?;
        let found = locked(&parent.children).by_name.get(name).map(|(ino, _)| *ino);
        match found {
            Some(ino) => Ok(entry(*locked(&self.node(ino)?.attributes))),
            None => Ok(entry(Attributes { mode: REGULAR, ..Attributes::default() })),
        }
    }

    fn drop_name(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.node(parent)?;
        let ino = locked(&parent.children).remove(name).ok_or(Errno::NOENT)?;
        let node = self.node(ino)?;
        let mut attributes = locked(&node.attributes);
        attributes.nlink = attributes.nlink.saturating_sub(1);
        if attributes.nlink == 0 || attributes.mode & TYPE == DIRECTORY {
            self.nodes.write().unwrap_or_else(PoisonError::into_inner).remove(&ino);
        }
        Ok(())
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), Errno> {
        let ino = locked(&self.node(from.0)?.children).remove(from.1).ok_or(Errno::NOENT)?;
        self.drop_name(to.0, to.1).ok();
        locked(&self.node(to.0)?.children).insert(to.1, ino);
        Ok(())
    }

    fn link(&self, target: u64, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        locked(&self.node(parent)?.children).insert(name, target);
        let node = self.node(target)?;
        let mut attributes = locked(&node.attributes);
        attributes.nlink += 1;
        Ok(entry(*attributes))
    }

    /// Names from `offset` on, which is behind the place of the last one.
    fn names(&self, node: u64, offset: u64) -> Result<Vec<(u64, Vec<u8>, Attributes)>, Errno> {
        const BATCH: usize = 256;
        let node = self.node(node)?;
        let children = locked(&node.children);
        let rest = children.by_place.range(offset + 1..).take(BATCH);
        let mut found = Vec::new();
        for (place, name) in rest {
            let Some((ino, _)) = children.by_name.get(name) else { continue };
            if let Ok(node) = self.node(*ino) {
                found.push((*place, name.clone(), *locked(&node.attributes)));
            }
        }
        Ok(found)
    }

    fn change(&self, node: u64, change: &AttributeChange) -> Result<Attributes, Errno> {
        let node = self.node(node)?;
        let mut attributes = locked(&node.attributes);
        if let Some(mode) = change.mode {
            attributes.mode = attributes.mode & TYPE | mode & !TYPE;
        }
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.size = change.size.unwrap_or(attributes.size);
        Ok(*attributes)
    }

    fn serve_name(&self, (parent, uid, gid): (u64, u32, u32), operation: NameOperation<'_>) {
        let reply_entry = |reply: Reply<kind::Entry>, made: Result<Entry, Errno>| {
            reply.settle(made, |reply, entry| reply.entry(&entry));
        };
        let new = |name, mode, target| Made { parent, name, mode, uid, gid, target };
        match operation {
            NameOperation::Lookup { name, reply } => reply_entry(reply, self.find(parent, name)),
            NameOperation::MakeNode { name, new: node, reply } => {
                reply_entry(reply, self.make(&new(name, node.mode & !node.umask, &[])));
            }
            NameOperation::MakeDirectory { name, new: node, reply } => {
                reply_entry(reply, self.make(&new(name, DIRECTORY | node.mode & !node.umask, &[])));
            }
            NameOperation::Symlink { name, target, reply } => {
                reply_entry(reply, self.make(&new(name, SYMLINK | 0o777, target)));
            }
            NameOperation::Link { target, name, reply } => {
                reply_entry(reply, self.link(target, parent, name));
            }
            NameOperation::Create { name, new: node, reply, .. } => {
                let made = self.make(&new(name, REGULAR | node.mode & !node.umask, &[]));
                reply.settle(made, |reply, entry| reply.created(&entry, &opened(OpenAnswers::KEEP_CACHE)));
            }
            NameOperation::CreateUnnamed { reply, .. } => reply.error(Errno::NOSYS),
            NameOperation::Unlink { name, reply } | NameOperation::RemoveDirectory { name, reply } => {
                reply.settle(self.drop_name(parent, name), |reply, ()| reply.done());
            }
            NameOperation::Rename { name, new_parent, new_name, reply, .. } => {
                let renamed = self.rename((parent, name), (new_parent, new_name));
                reply.settle(renamed, |reply, ()| reply.done());
            }
        }
    }

    fn serve_inode(&self, node: u64, operation: InodeOperation<'_>) {
        match operation {
            InodeOperation::GetAttributes { reply, .. } => {
                let found = self.node(node).map(|node| *locked(&node.attributes));
                reply.settle(found, |reply, attributes| reply.attributes(TTL, &attributes));
            }
            InodeOperation::SetAttributes { change, reply } => {
                let changed = self.change(node, &change);
                reply.settle(changed, |reply, attributes| reply.attributes(TTL, &attributes));
            }
            InodeOperation::ReadLink { reply } => {
                reply.settle(self.node(node), |reply, node| reply.data(&node.target));
            }
            InodeOperation::ListXattr { reply } => reply.value(&[]),
            InodeOperation::GetXattr { reply, .. } => reply.error(Errno::NODATA),
            InodeOperation::SetXattr { reply, .. } | InodeOperation::RemoveXattr { reply, .. } => {
                reply.done();
            }
            InodeOperation::Access { reply, .. } => reply.done(),
            InodeOperation::GetExtendedAttributes { reply } => reply.error(Errno::NOSYS),
            InodeOperation::Ioctl { reply, .. } => reply.error(Errno::NOTTY),
        }
    }

    fn serve_file(&self, node: u64, operation: FileOperation<'_>) {
        match operation {
            FileOperation::Open { reply, .. } => {
                reply.opened(&opened(OpenAnswers::KEEP_CACHE));
            }
            FileOperation::Read { offset, size, reply, .. } => {
                let left = self.node(node).map(|node| locked(&node.attributes).size.saturating_sub(offset));
                reply.settle(left, |reply, left| {
                    let left = usize::try_from(left).unwrap_or(usize::MAX);
                    reply.data(&ZEROS[..left.min(size).min(ZEROS.len())]);
                });
            }
            FileOperation::Write { write, reply } => {
                let end = write.offset + write.data.len() as u64;
                let grown = self.node(node).map(|node| {
                    let mut attributes = locked(&node.attributes);
                    attributes.size = attributes.size.max(end);
                });
                reply.settle(grown, |reply, ()| reply.written(write.data.len()));
            }
            FileOperation::Release { reply, .. }
            | FileOperation::Sync { reply, .. }
            | FileOperation::Allocate { reply, .. } => reply.done(),
            FileOperation::Seek { reply, .. } => reply.error(Errno::NOSYS),
            FileOperation::Copy { reply, .. } => reply.error(Errno::NOSYS),
        }
    }

    fn serve_directory(&self, node: u64, operation: DirectoryOperation) {
        match operation {
            DirectoryOperation::Open { reply } => {
                reply.opened(&opened(OpenAnswers::KEEP_CACHE | OpenAnswers::CACHE_DIR));
            }
            DirectoryOperation::Release { reply, .. } | DirectoryOperation::Sync { reply } => reply.done(),
            DirectoryOperation::Read { offset, mut reply, .. } => match self.names(node, offset) {
                Ok(names) => {
                    for (place, name, attributes) in &names {
                        if reply.add(&listed(*place, name, attributes)) {
                            break;
                        }
                    }
                    reply.listed();
                }
                Err(error) => reply.error(error),
            },
            DirectoryOperation::ReadPlus { offset, mut reply, .. } => match self.names(node, offset) {
                Ok(names) => {
                    for (place, name, attributes) in &names {
                        if reply.add(&listed(*place, name, attributes), &entry(*attributes)) {
                            break;
                        }
                    }
                    reply.listed();
                }
                Err(error) => reply.error(error),
            },
        }
    }
}

/// An inode to be made.
struct Made<'a> {
    parent: u64,
    name: &'a [u8],
    mode: u32,
    uid: u32,
    gid: u32,
    target: &'a [u8],
}

fn opened(answers: OpenAnswers) -> Opened {
    Opened { handle: 1, answers }
}

fn listed<'a>(offset: u64, name: &'a [u8], attributes: &Attributes) -> Listed<'a> {
    Listed { name, ino: attributes.ino, offset, mode: attributes.mode }
}

impl Server for Null {
    type Leftover = ();

    fn enter_thread(&self, _: DeviceWaits, _: Effects) {}

    fn pace(&self, _: &Request<'_>) -> Pace {
        Pace::Quick
    }

    fn serve(&self, request: Request<'_>) {
        let Request { caller, node, operation } = request;
        match operation {
            Operation::Name(operation) => self.serve_name((node, caller.uid, caller.gid), operation),
            Operation::Inode(operation) => self.serve_inode(node, operation),
            Operation::File(operation) => self.serve_file(node, operation),
            Operation::Directory(operation) => self.serve_directory(node, operation),
            Operation::Mount(MountOperation::Space { reply }) => {
                const BLOCKS: u64 = 1 << 28;
                reply.space(&FilesystemSpace {
                    blocks: BLOCKS,
                    free: BLOCKS,
                    available: BLOCKS,
                    files: 0,
                    free_files: 0,
                    block_bytes: 4096,
                    name_max: 255,
                });
            }
            Operation::Mount(MountOperation::Sync { reply } | MountOperation::Destroy { reply }) => {
                reply.done();
            }
        }
    }

    fn forget(&self, _: u64, _: u64) -> Option<()> {
        None
    }

    fn clear(&self, (): ()) {}
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = || io::Error::other("usage: null MOUNTPOINT [THREADS]");
    let mountpoint = arguments.next().ok_or_else(usage)?;
    let threads = arguments.next().and_then(|threads| threads.to_str()?.parse().ok());
    let options = MountOptions {
        source: "null".to_owned(),
        subtype: "null",
        flags: MountFlags::NODEV | MountFlags::NOSUID,
        allow_other: true,
        default_permissions: true,
        auto_unmount: false,
    };
    let connection = connect(&Path::new(&mountpoint).canonicalize()?, &options).map_err(io::Error::other)?;
    let features = Features::ASYNC_READ
        | Features::ASYNC_DIO
        | Features::MAX_PAGES
        | Features::DO_READDIRPLUS
        | Features::READDIRPLUS_AUTO
        | Features::PARALLEL_DIROPS
        | Features::CACHE_SYMLINKS
        | Features::POSIX_ACL
        | Features::EXPLICIT_INVAL_DATA
        | Features::BIG_WRITES
        | Features::WRITEBACK_CACHE
        | Features::ATOMIC_O_TRUNC
        | Features::HANDLE_KILLPRIV_V2
        | Features::DONT_MASK
        | Features::DIRECT_IO_ALLOW_MMAP
        | Features::INIT_EXT;
    let rings = if std::env::var_os("RINGS").is_some() { RingUse::On } else { RingUse::Off };
    let wishes = Wishes { features, request_bytes: REQUEST_BYTES, background: 64, rings };
    let (channel, _) = Channel::open(connection.device, &wishes)?;
    Session::start(&Arc::new(channel), &Arc::new(Null::new()), threads.unwrap_or(THREADS_DEFAULT))?.join()
}
