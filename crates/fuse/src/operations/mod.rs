//! Requests, answered in terms of the filesystem. Knows nodes by their number, and nothing of the transport.

mod append_only;
mod attributes;
mod balance;
mod contents;
mod control;
mod defragment;
mod devices;
mod directories;
mod durability;
mod long_work;
mod names;
mod quotas;
mod remount;
mod scrub;
mod search;
mod settings;
mod subvolumes;
mod traffic;
mod verbs;
mod write_back;

pub(crate) use attributes::Xattr;
pub(crate) use contents::WriteOrigin;
pub(crate) use names::{Place, Rename};
pub(crate) use verbs::{Ioctl, changes, is_slow};

use crate::MountOptions;
use crate::attributes::Stat;
use crate::directory_handles::DirectoryHandles;
use crate::errno::errno_of;
use crate::handles::Handles;
use crate::inode_number::InodeNumbers;
use crate::nameless::NamelessNodes;
use crate::open_files::OpenFiles;
use crate::options::Synchronous;
use crate::recent_writes::RecentWrites;
use crate::refusals::Refusals;
use balance::BalanceService;
use brindle_fs::{AtimeMode, FileType, Filesystem, FsError, InodeHold, InodeId, OpenFile, SpaceStatistics};
use brindle_policy::defragment::idle::AutoDefragment;
use devices::DeviceService;
use remount::Remountable;
use rustix::io::Errno;
use scrub::ScrubService;
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

/// The number shown for an inode that has none yet (libfuse's `FUSE_UNKNOWN_INO`).
const UNKNOWN_INO: u64 = 0xffff_ffff;

/// A mounted filesystem.
#[derive(Debug)]
pub(crate) struct Operations {
    filesystem: Arc<Filesystem>,
    numbers: InodeNumbers,
    /// Files that are read without having been opened.
    open_files: OpenFiles,
    /// Files that have been opened.
    handles: Handles,
    directory_handles: DirectoryHandles,
    recent_writes: RecentWrites,
    refusals: Refusals,
    nameless: NamelessNodes,
    balance: BalanceService,
    devices: DeviceService,
    scrub: ScrubService,
    /// Cache of the kernel; set as soon as the mount is served.
    kernel_cache: OnceLock<Box<dyn KernelCache>>,
    is_written: bool,
    /// Reason for being read-only, if that was not requested.
    unwritten_reason: Option<String>,
    notes_accesses: bool,
    notes_directory_accesses: bool,
    notes_each_access: bool,
    auto_defragment: AutoDefragment,
    owners_delete_subvolumes: bool,
    process_ends_with_mount: bool,
    synchronous: Synchronous,
    remountable: Remountable,
}

/// Cache of the kernel, of which it must drop what changes without its doing.
pub(crate) trait KernelCache: fmt::Debug + Send + Sync {
    /// Drops a name. May wait for threads that work in that directory.
    fn entry_changed(&self, parent: u64, name: &[u8]);
    /// Drops the attributes of a node. Does not wait.
    fn attributes_changed(&self, node: u64);
    /// Drops contents of a node, to the end if the range ends with the last number there is. Unwritten pages are
    /// written back first. Waits for those that are being read or written, so that a thread that answers such
    /// requests must not call it.
    fn contents_changed(&self, node: u64, range: &Range<u64>);
}

/// An entry of a directory, as a listing shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: u64,
    pub(crate) kind: FileType,
    /// Offset at which the listing goes on after it.
    pub(crate) offset: u64,
    /// Its attributes, if they were asked for and can be had.
    pub(crate) stat: Option<Stat>,
}

/// Takes an entry; breaks when it has no room for it.
pub(crate) type Emit<'a> = dyn FnMut(Listed<'_>) -> ControlFlow<()> + 'a;

impl Operations {
    pub(crate) fn new(filesystem: Arc<Filesystem>, options: &MountOptions) -> Self {
        let is_written = filesystem.is_writable() && !options.read_only;
        let notes_accesses = is_written && options.atime != AtimeMode::Never;
        Self {
            numbers: InodeNumbers::new(filesystem.root()),
            filesystem,
            open_files: OpenFiles::default(),
            handles: Handles::default(),
            directory_handles: DirectoryHandles::default(),
            recent_writes: RecentWrites::default(),
            refusals: Refusals::default(),
            nameless: NamelessNodes::default(),
            balance: BalanceService::default(),
            devices: DeviceService::default(),
            scrub: ScrubService::new(options.state_directory.clone()),
            kernel_cache: OnceLock::new(),
            is_written,
            unwritten_reason: options.read_only_reason.clone(),
            notes_accesses,
            notes_directory_accesses: notes_accesses && options.directory_atime,
            notes_each_access: options.atime == AtimeMode::Strict,
            auto_defragment: options.auto_defragment,
            owners_delete_subvolumes: options.owners_delete_subvolumes,
            process_ends_with_mount: options.process_ends_with_mount,
            synchronous: options.synchronous,
            remountable: Remountable::new(options.commit_interval),
        }
    }

    /// Returns true if the mount began as one that is written; an error may have ended that.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written
    }

    /// Sets the cache of the kernel, which can be told of changes from now on.
    pub(crate) fn set_kernel_cache(&self, cache: Box<dyn KernelCache>) {
        assert!(self.kernel_cache.set(cache).is_ok(), "a mount is served once");
    }

    /// Notes that the kernel is told attributes of a file. Returns true if they may change without the kernel's doing: the file
    /// was written lately, or may be without our knowing.
    pub(crate) fn tells_unsettled(&self, stat: &Stat) -> bool {
        self.recent_writes.tell(stat.ino, stat.blocks) || self.has_writer(stat.ino).unwrap_or(false)
    }

    /// Makes everything durable that the kernel has told us of.
    pub(crate) fn sync_all(&self) -> Result<(), FsError> {
        let round = self.recent_writes.begin_round();
        self.filesystem.sync()?;
        self.recent_writes.forget_until(round);
        Ok(())
    }

    /// Makes everything durable, for syncfs(2): the kernel has written back its pages before.
    pub(crate) fn sync_filesystem(&self) -> Result<(), Errno> {
        number(self.sync_all())
    }

    /// A name in a directory; `None` if there is no such. The kernel remembers what it is told of. By `.` it asks for a node
    /// that it has only a file handle of, and by `..` for the parent of such a directory.
    pub(crate) fn lookup(&self, directory: u64, name: &[u8]) -> Result<Option<Stat>, Errno> {
        let directory = self.inode(directory)?;
        if let b"." | b".." = name {
            return self.lookup_by_handle(directory, name == b"..");
        }
        let Some(entry) = number(self.filesystem.lookup(directory, name))? else {
            return Ok(None);
        };
        let attributes = number(self.filesystem.attributes(entry.inode))?;
        Ok(Some(Stat::new(self.numbers.remember(entry.inode), &attributes)))
    }

    fn lookup_by_handle(&self, id: InodeId, is_parent_asked: bool) -> Result<Option<Stat>, Errno> {
        let id = match is_parent_asked {
            true if id == self.filesystem.root() => id,
            true => number(self.filesystem.parent_directory(id))?.ok_or(Errno::STALE)?,
            false => id,
        };
        let attributes = number(self.filesystem.attributes(id))?;
        // Nothing that the kernel knows holds it: it is on its way out.
        if attributes.nlink == 0 {
            return Err(Errno::STALE);
        }
        Ok(Some(Stat::new(self.numbers.remember(id), &attributes)))
    }

    /// Notes that the kernel has forgotten a node this many times. Returns the hold that was kept for it, to be
    /// [released](Self::release_nameless).
    pub(crate) fn forget(&self, node: u64, lookups: u64) -> Option<InodeHold> {
        self.refusals.forget(node);
        self.numbers.forget(node, lookups);
        self.nameless.take(node)
    }

    /// Forgets a lookup whose answer the kernel did not get. It may know the node by others.
    pub(crate) fn forget_unanswered(&self, node: u64) {
        self.numbers.forget(node, 1);
    }

    /// Stops what runs, and removes what was kept for the kernel, which asks for nothing any more.
    pub(crate) fn end(&self) {
        self.balance.end();
        self.devices.end();
        self.scrub.end();
        self.nameless.take_all().into_iter().for_each(|hold| self.release_nameless(hold));
    }

    /// Removes an inode that has no name, and that the kernel has forgotten.
    pub(crate) fn release_nameless(&self, hold: InodeHold) {
        // The kernel does not wait for an answer; what fails here the next opening of the pool does.
        number(self.filesystem.release(hold)).ok();
    }

    pub(crate) fn stat(&self, node: u64) -> Result<Stat, Errno> {
        let id = self.inode(node)?;
        let attributes = number(self.filesystem.attributes(id))?;
        Ok(Stat::new(self.shown(id), &attributes))
    }

    pub(crate) fn read_link(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let id = self.inode(node)?;
        if self.notes_accesses && !self.is_resting() {
            number(self.filesystem.note_access(id)).ok();
        }
        number(self.filesystem.read_link(id))
    }

    pub(crate) fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let found = number(self.filesystem.xattr(self.inode(node)?, name))?;
        found.ok_or(Errno::NODATA)
    }

    /// The names of all extended attributes, each with a zero behind it.
    pub(crate) fn xattr_names(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let xattrs = number(self.filesystem.xattrs(self.inode(node)?))?;
        let mut names = Vec::new();
        for xattr in xattrs {
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
        Ok(names)
    }

    pub(crate) fn space(&self) -> Result<SpaceStatistics, Errno> {
        number(self.filesystem.space())
    }

    /// The file of a node, opened if need be. It is kept for the next request only where no file can lose its name: an
    /// open file keeps its inode.
    fn file(&self, node: u64) -> Result<Arc<OpenFile>, Errno> {
        let id = self.inode(node)?;
        let open = || self.filesystem.open_file(id);
        if self.is_written {
            return number(open()).map(Arc::new);
        }
        self.open_files.get(node, open).map_err(|error: FsError| errno_of(&error))
    }

    fn inode(&self, node: u64) -> Result<InodeId, Errno> {
        self.numbers.inode(node).ok_or(Errno::STALE)
    }

    fn shown(&self, id: InodeId) -> u64 {
        self.numbers.shown(id).unwrap_or(UNKNOWN_INO)
    }
}

/// The number of an error.
fn number<T>(result: Result<T, FsError>) -> Result<T, Errno> {
    result.map_err(|error| errno_of(&error))
}

#[cfg(test)]
mod tests {
    use super::directories::DIRECTORY_BATCH;
    use super::*;
    use crate::inode_number::ROOT_NODE;
    use crate::permission::{Caller, Ids};
    use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
    use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
    use brindle_fs::{NewInode, OpenOptions, WriteOptions};
    use brindle_ondisk::Uuid;
    use brindle_policy::balance::Balance;
    use brindle_testing::golden::Golden;
    use brindle_uapi::message::BalanceStart;
    use zerocopy::IntoBytes;

    fn operations(golden: &Golden) -> Operations {
        let devices =
            golden.devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect();
        let filesystem = Filesystem::open(devices, &OpenOptions::default()).expect("a golden image");
        Operations::new(Arc::new(filesystem), &MountOptions::default())
    }

    #[test]
    fn no_balance_goes_on_when_the_mount_has_ended() {
        let device = SparseDevice::new("memory".to_owned(), 1 << 30, DeviceClass::Rotating);
        let device = Arc::new(device) as Arc<dyn WritableDevice>;
        let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let fs = Filesystem::open_writable(vec![device], &OpenOptions::default(), &WriteOptions::default());
        let fs = Arc::new(fs.expect("opens"));
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let (_, file) = fs.create_open(fs.root(), b"file", &new).expect("room");
        fs.write(&file, 0, &vec![7; 8 << 20]).expect("room");
        fs.close_file(file).and_then(|()| fs.sync()).expect("room");
        let options = MountOptions { read_only: false, ..MountOptions::default() };
        let operations = Operations::new(Arc::clone(&fs), &options);
        let item = Balance::full().to_item();
        let item = item.as_bytes().try_into().expect("the size of an item");
        operations.balance.start(&fs, &BalanceStart { item, rate: 1, flags: 0 }).expect("it begins");
        assert!(operations.balance.is_running(), "it takes weeks at this rate");
        operations.end();
        assert!(!operations.balance.is_running());
    }

    /// Names, numbers and offsets of a directory, fetched in batches.
    fn listing(
        operations: &Operations,
        node: u64,
        with_attributes: bool,
        room: usize,
    ) -> Vec<(Vec<u8>, u64, u64)> {
        let mut found: Vec<(Vec<u8>, u64, u64)> = Vec::new();
        loop {
            let before = found.len();
            let offset = found.last().map_or(0, |(.., offset)| *offset);
            let mut emit = |entry: Listed<'_>| {
                if found.len() == before + room {
                    return ControlFlow::Break(());
                }
                found.push((entry.name.to_vec(), entry.ino, entry.offset));
                ControlFlow::Continue(())
            };
            operations.list((node, 0), offset, with_attributes, &mut emit).expect("listing");
            if found.len() == before {
                return found;
            }
        }
    }

    #[test]
    fn a_listing_is_the_same_in_pieces_of_any_size() {
        let operations = operations(&Golden::load("big-directory"));
        let whole = listing(&operations, ROOT_NODE, false, usize::MAX);
        let directory = whole.iter().find(|(name, ..)| !name.starts_with(b".")).expect("an entry").0.clone();
        let node = operations.lookup(ROOT_NODE, &directory).expect("lookup").expect("it is there").ino;
        let whole = listing(&operations, node, false, usize::MAX);
        assert!(whole.len() > DIRECTORY_BATCH);
        assert_eq!((whole[0].0.as_slice(), whole[1].0.as_slice()), (&b"."[..], &b".."[..]));
        for room in [1, 2, 63, 64, 65, 1000] {
            assert_eq!(listing(&operations, node, false, room), whole);
            assert_eq!(listing(&operations, node, true, room), whole);
        }
    }

    #[test]
    fn missing_objects_give_their_error_numbers() {
        let operations = operations(&Golden::load("single"));
        assert_eq!(operations.lookup(ROOT_NODE, b"no such name"), Ok(None));
        assert_eq!(operations.stat(0).unwrap_err(), Errno::STALE);
        assert_eq!(operations.stat(1 << 40).unwrap_err(), Errno::STALE);
        assert_eq!(operations.stat(300 << 48 | 257).unwrap_err(), Errno::NOENT, "no such subvolume");
        assert_eq!(operations.read(ROOT_NODE, 0, 0, &mut [0; 10]), Err(Errno::ISDIR));
        assert_eq!(operations.read_link(ROOT_NODE), Err(Errno::INVAL));
        assert_eq!(operations.xattr(ROOT_NODE, b"user.none"), Err(Errno::NODATA));
        let caller = Caller { told: Some(Ids { uid: 0, gid: 0 }), pid: 0 };
        let ioctl = Ioctl { caller, node: ROOT_NODE, command: 0x1234, input: Vec::new() };
        assert_eq!(operations.ioctl(&ioctl), Err(Errno::NOTTY));
    }

    #[test]
    fn open_files_are_bounded() {
        let operations = operations(&Golden::load("big-directory"));
        let mut left = vec![ROOT_NODE];
        let mut files = 0;
        while let Some(directory) = left.pop() {
            for (name, ..) in listing(&operations, directory, true, usize::MAX).split_off(2) {
                let stat = operations.lookup(directory, &name).expect("lookup").expect("it is there");
                match stat.kind {
                    FileType::Directory => left.push(stat.ino),
                    FileType::Regular => {
                        let length = operations.read(stat.ino, 0, 0, &mut [0; 100]).expect("read");
                        assert_eq!(length as u64, stat.size.min(100));
                        files += 1;
                    }
                    _ => {}
                }
            }
        }
        assert!(files > OpenFiles::CAPACITY, "{files} files");
        assert!(operations.open_files.len() <= OpenFiles::CAPACITY);
    }
}
