//! A FUSE filesystem that does nothing: the yardstick for benchmarks of mounts. It agrees with the kernel on the same
//! things as a writable mount of ours, keeps names and attributes in maps in memory, forgets what is written and
//! reads zeros.
//!
//! `null MOUNTPOINT [THREADS]`, as root; ends when it is unmounted.

#[path = "../src/negotiation.rs"]
mod negotiation;

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

const TTL: Duration = Duration::from_secs(24 * 60 * 60);
const GENERATION: Generation = Generation(0);
const ROOT: u64 = 1;
const THREADS_DEFAULT: usize = 8;

/// A file or directory.
struct Node {
    attributes: Mutex<FileAttr>,
    children: Mutex<Children>,
    target: Vec<u8>,
}

/// Children of a directory: by name, and in the order of creation.
#[derive(Default)]
struct Children {
    by_name: HashMap<OsString, (u64, u64)>,
    by_place: std::collections::BTreeMap<u64, OsString>,
    last: u64,
}

impl Children {
    fn insert(&mut self, name: &OsStr, ino: u64) {
        self.last += 1;
        self.by_name.insert(name.to_owned(), (ino, self.last));
        self.by_place.insert(self.last, name.to_owned());
    }

    fn remove(&mut self, name: &OsStr) -> Option<u64> {
        let (ino, place) = self.by_name.remove(name)?;
        self.by_place.remove(&place);
        Some(ino)
    }
}

struct Null {
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    last: AtomicU64,
    agreement: negotiation::Agreement,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Null {
    fn new() -> Self {
        let null = Self {
            nodes: RwLock::default(),
            last: AtomicU64::new(ROOT - 1),
            agreement: negotiation::Agreement::default(),
        };
        null.add(FileType::Directory, 0o755, 0, 0, &[]);
        null
    }

    fn add(&self, kind: FileType, mode: u32, uid: u32, gid: u32, target: &[u8]) -> FileAttr {
        const PERMISSIONS: u32 = 0o7777;
        let ino = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let now = SystemTime::now();
        let attributes = FileAttr {
            ino: INodeNo(ino),
            size: target.len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm: u16::try_from(mode & PERMISSIONS).expect("twelve bits fit"),
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        let node = Node {
            attributes: Mutex::new(attributes),
            children: Mutex::default(),
            target: target.to_owned(),
        };
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).insert(ino, Arc::new(node));
        attributes
    }

    fn node(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&ino).cloned().ok_or(Errno::ENOENT)
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        mode: u32,
        target: &[u8],
    ) -> Result<FileAttr, Errno> {
        let parent = self.node(parent.0)?;
        let made = self.add(kind, mode, request.uid(), request.gid(), target);
        locked(&parent.children).insert(name, made.ino.0);
        Ok(made)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<Option<FileAttr>, Errno> {
        let parent = self.node(parent.0)?;
        let found = locked(&parent.children).by_name.get(name).map(|(ino, _)| *ino);
        found.map(|ino| Ok(*locked(&self.node(ino)?.attributes))).transpose()
    }

    fn drop_name(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let parent = self.node(parent.0)?;
        let ino = locked(&parent.children).remove(name).ok_or(Errno::ENOENT)?;
        let node = self.node(ino)?;
        let mut attributes = locked(&node.attributes);
        attributes.nlink = attributes.nlink.saturating_sub(1);
        if attributes.nlink == 0 || attributes.kind == FileType::Directory {
            self.nodes.write().unwrap_or_else(PoisonError::into_inner).remove(&ino);
        }
        Ok(())
    }

    /// Names from `offset` on, which is behind the place of the last one.
    fn names(&self, node: INodeNo, offset: u64) -> Result<Vec<(u64, OsString, FileAttr)>, Errno> {
        const BATCH: usize = 256;
        let node = self.node(node.0)?;
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
}

fn reply_entry(made: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match made {
        Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
        Err(error) => reply.error(error),
    }
}

fn reply_empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.agreement = negotiation::negotiate(config, true);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let missing = |mut attributes: FileAttr| {
            attributes.ino = INodeNo(0);
            attributes
        };
        match self.find(parent, name) {
            Ok(Some(found)) => reply_entry(Ok(found), reply),
            Ok(None) => {
                reply_entry(self.node(ROOT).map(|root| missing(*locked(&root.attributes))), reply);
            }
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(node.0) {
            Ok(node) => reply.attr(&TTL, &locked(&node.attributes)),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        const PERMISSIONS: u32 = 0o7777;
        let node = match self.node(node.0) {
            Ok(node) => node,
            Err(error) => return reply.error(error),
        };
        let mut attributes = locked(&node.attributes);
        if let Some(mode) = mode {
            attributes.perm = u16::try_from(mode & PERMISSIONS).expect("twelve bits fit");
        }
        attributes.uid = uid.unwrap_or(attributes.uid);
        attributes.gid = gid.unwrap_or(attributes.gid);
        attributes.size = size.unwrap_or(attributes.size);
        reply.attr(&TTL, &attributes);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.node(node.0) {
            Ok(node) => reply.data(&node.target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        r: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        reply_entry(self.make(r, parent, name, FileType::RegularFile, mode & !umask, &[]), reply);
    }

    fn mkdir(&self, r: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        reply_entry(self.make(r, parent, name, FileType::Directory, mode & !umask, &[]), reply);
    }

    fn symlink(&self, r: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_encoded_bytes();
        reply_entry(self.make(r, parent, name, FileType::Symlink, 0o777, target), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(request, parent, name, FileType::RegularFile, mode & !umask, &[]) {
            Ok(made) => {
                reply.created(&TTL, &made, GENERATION, FileHandle(1), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.drop_name(parent, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.drop_name(parent, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let ino = locked(&self.node(parent.0)?.children).remove(name).ok_or(Errno::ENOENT)?;
            self.drop_name(new_parent, new_name).ok();
            locked(&self.node(new_parent.0)?.children).insert(new_name, ino);
            Ok(())
        };
        reply_empty(rename(), reply);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            locked(&self.node(parent.0)?.children).insert(name, node.0);
            let node = self.node(node.0)?;
            let mut attributes = locked(&node.attributes);
            attributes.nlink += 1;
            Ok(*attributes)
        };
        reply_entry(link(), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.agreement.opens_alone {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(1), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.agreement.opens_directories_alone {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(1), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        static ZEROS: [u8; negotiation::REQUEST_BYTES_MAX as usize] =
            [0; negotiation::REQUEST_BYTES_MAX as usize];
        match self.node(node.0) {
            Ok(node) => {
                let left = locked(&node.attributes).size.saturating_sub(offset).min(size.into());
                reply.data(&ZEROS[..usize::try_from(left).expect("a request is small").min(ZEROS.len())]);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.node(node.0) {
            Ok(node) => {
                let mut attributes = locked(&node.attributes);
                attributes.size = attributes.size.max(offset + data.len() as u64);
                reply.written(u32::try_from(data.len()).expect("a request is small"));
            }
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.names(node, offset) {
            Ok(names) => {
                for (place, name, attributes) in names {
                    if reply.add(attributes.ino, place, attributes.kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.names(node, offset) {
            Ok(names) => {
                for (place, name, attributes) in names {
                    if reply.add(attributes.ino, place, name, &TTL, &attributes, GENERATION) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCKS: u64 = 1 << 28;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, 0, 0, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::from_i32(rustix::io::Errno::NODATA.raw_os_error()));
    }

    fn listxattr(&self, _: &Request, _: INodeNo, size: u32, reply: ReplyXattr) {
        if size == 0 { reply.size(0) } else { reply.data(&[]) }
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = || std::io::Error::other("usage: null MOUNTPOINT [THREADS]");
    let mountpoint = arguments.next().ok_or_else(usage)?;
    let threads = arguments.next().and_then(|threads| threads.to_str()?.parse().ok());
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("null".to_owned()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads.unwrap_or(THREADS_DEFAULT));
    fuser::mount(Null::new(), mountpoint, &config)
}
