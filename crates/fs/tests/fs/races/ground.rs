//! Races, as the library runs them.

use super::act::{ACL, ACL_MODE, Act, Answer, Seen, acl};
use super::world::{FILE, NEW_CONTENTS, Shape, before};
use crate::model::pool::NEW_SUBVOLUME;
use crate::model::target::{System, errno};
use brindle_fs::{
    AllocateMode, AttributeChange, DefragmentScope, FileFlags, Filesystem, FsError, InodeHold, InodeId,
    NewInode, NewTime, OpenFile, RangePair, RenameMode, Timestamp, XattrMode,
};
use brindle_testing::model::{Errno, RenameRule, TreePath, XattrRule, path};
use brindle_testing::operations::Operation;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// More than any file of a race has, in bytes.
const READ_BYTES: usize = 200_000;
/// Leaves that a step of defragmentation looks at.
const DEFRAGMENTED_LEAVES: usize = 16;

/// Lock of balances, of which one runs at a time.
static RELOCATION: Mutex<()> = Mutex::new(());

/// A subvolume in which a race takes place, with the inodes that acts are about.
pub(super) struct Ground<'f> {
    fs: &'f Arc<Filesystem>,
    pub(super) top: InodeId,
    /// Inodes by the paths that they had before the race.
    known: HashMap<TreePath, InodeId>,
    unnamed: InodeId,
    /// Holds; that of the inode without a name is the first.
    holds: Mutex<Vec<InodeHold>>,
    holds_named: bool,
    number: u64,
}

/// The number of the next ground, and of the next snapshot outside.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl<'f> Ground<'f> {
    /// A new one, as [`before`] says.
    pub(super) fn new(fs: &'f Arc<Filesystem>, shape: Shape) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("race{number}");
        let id = fs.create_subvolume(fs.root(), name.as_bytes(), &NEW_SUBVOLUME).expect("room");
        let top = InodeId::root_of(id);
        let system = System::within(fs, top);
        for operation in before(shape) {
            system.names(&operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        }
        let paths = [FILE, "g", "h", "d", "e", "e/x", "v", "v/x"].map(path);
        let found = |path: TreePath| Some((path.clone(), fs.resolve(top, path.bytes()).ok()?));
        let mut known: HashMap<TreePath, InodeId> = paths.into_iter().filter_map(found).collect();
        known.insert(TreePath::top(), top);
        let new = NewInode { mode: 0o100_600, ..NewInode::default() };
        let (_, unnamed) = fs.create_unnamed(top, &new).expect("room");
        let held = shape.held().into_iter().map(|held| fs.acquire(known[&held]).expect("it is there"));
        let (unnamed, holds): (_, Vec<InodeHold>) =
            (unnamed.id(), std::iter::once(unnamed).chain(held).collect());
        let holds_named = holds.len() > 1;
        if shape.is_durable {
            fs.sync().expect("durable");
        }
        Self { fs, top, known, unnamed, holds: Mutex::new(holds), holds_named, number }
    }

    /// Closes what is open.
    pub(super) fn close(&self) -> Result<(), Errno> {
        let holds = std::mem::take(&mut *self.holds.lock().unwrap_or_else(PoisonError::into_inner));
        let ended: Vec<_> = holds.into_iter().map(|hold| self.fs.release(hold)).collect();
        ended.into_iter().collect::<Result<(), _>>().map_err(refusal)
    }

    /// Does an act.
    pub(super) fn act(&self, act: &Act) -> Answer {
        let fs = self.fs;
        match act {
            Act::Do(operation) => self.names(operation).map(|()| Seen::Nothing),
            Act::LinkUnnamed(to) => {
                let (directory, name) = self.place(to)?;
                fs.link(self.unnamed, directory, name).map(|_| Seen::Nothing).map_err(refusal)
            }
            Act::CreateOpen(path) => self.create_open(path),
            Act::Lookup(path) => {
                let (directory, name) = self.place(path)?;
                Ok(Seen::There(fs.lookup(directory, name).map_err(refusal)?.is_some()))
            }
            Act::Stat(path) => {
                let found = fs.attributes(self.known(path)?).map_err(refusal)?;
                // An inode without a name can be seen only by a program that has it open.
                if found.nlink == 0 && !self.holds_named {
                    return Err(Errno::NotFound);
                }
                let mode = u16::try_from(found.mode & 0o7777).expect("twelve bits");
                let (owner, nlink, size) = ((found.uid, found.gid), found.nlink, found.size);
                Ok(Seen::Stat { mode, owner, nlink, size })
            }
            Act::List(path) => {
                let directory = self.known(path)?;
                fs.attributes(directory).map_err(refusal)?;
                let entries = fs.read_directory(directory, 0, 1000).map_err(refusal)?;
                Ok(Seen::Names(entries.into_iter().map(|entry| entry.name).collect()))
            }
            Act::Read(path) => self.with_file(path, |file| {
                let mut bytes = vec![0; READ_BYTES];
                let length = fs.read(file, 0, &mut bytes)?;
                bytes.truncate(length);
                Ok(Seen::Bytes(bytes))
            }),
            Act::OpenClose(path) => self.with_file(path, |_| Ok(Seen::Nothing)),
            Act::GetXattr(path, name) => {
                let id = self.known(path)?;
                let found = fs.attributes(id).and_then(|_| fs.xattr(id, name.as_bytes()));
                found.map_err(refusal)?.map(Seen::Bytes).ok_or(Errno::NoData)
            }
            _ => self.change(act).map(|()| Seen::Nothing).map_err(refusal),
        }
    }

    fn change(&self, act: &Act) -> Result<(), FsError> {
        let fs = self.fs;
        let id = |path| self.known(path).map_err(|_| FsError::NotFound(Vec::new()));
        match act {
            Act::SetFlags(path) => fs.set_flags(id(path)?, FileFlags::NODUMP | FileFlags::NOATIME),
            Act::SetAcl(path) => fs.set_xattr(id(path)?, ACL.as_bytes(), &acl(ACL_MODE), XattrMode::Any),
            Act::SetReadOnly(path, is_read_only) => fs.set_subvolume_read_only(id(path)?.tree, *is_read_only),
            Act::Commit => fs.commit(),
            Act::Sync => fs.sync(),
            Act::Background => fs.background_step().map(|_| ()),
            Act::Relocate => {
                let _turn = RELOCATION.lock().unwrap_or_else(PoisonError::into_inner);
                let groups = fs.pool().block_groups()?;
                let number = usize::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).expect("few");
                let start = groups[number % groups.len()].start;
                let alone = fs.pool().begin_exclusive("a race")?;
                fs.pool().relocate(&alone, start, &mut |_| ControlFlow::Continue(()))?;
                Ok(())
            }
            Act::Defragment => fs.defragment(DefragmentScope::Pool, None, DEFRAGMENTED_LEAVES).map(|_| ()),
            Act::SnapshotOutside => {
                let name = format!("outside{}", NEXT.fetch_add(1, Ordering::Relaxed));
                fs.snapshot(self.top.tree, fs.root(), name.as_bytes(), self.number % 2 == 0).map(|_| ())
            }
            _ => unreachable!("done by the caller"),
        }
    }

    fn known(&self, path: &TreePath) -> Result<InodeId, Errno> {
        self.known.get(path).copied().ok_or(Errno::NotFound)
    }

    /// The directory and the name.
    fn place<'p>(&self, path: &'p TreePath) -> Result<(InodeId, &'p [u8]), Errno> {
        let (directory, name) = path.split().ok_or(Errno::Invalid)?;
        Ok((self.known(&directory)?, name))
    }

    /// Does something with a file that is open as long as that takes.
    fn with_file<T>(
        &self,
        path: &TreePath,
        act: impl FnOnce(&OpenFile) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let file = self.fs.open_file(self.known(path)?).map_err(refusal)?;
        let done = act(&file);
        let closed = self.fs.close_file(file);
        done.and_then(|done| closed.map(|()| done)).map_err(refusal)
    }

    /// The same with a file that is written.
    fn with_written<T>(
        &self,
        path: &TreePath,
        act: impl FnOnce(&OpenFile) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        self.with_file(path, |file| {
            self.fs.check_writable(file.id())?;
            act(file)
        })
    }

    fn create_open(&self, path: &TreePath) -> Answer {
        let (directory, name) = self.place(path)?;
        let new = NewInode { mode: 0o100_600, ..NewInode::default() };
        let (_, file) = self.fs.create_open(directory, name, &new).map_err(refusal)?;
        let written = self.fs.write(&file, 0, NEW_CONTENTS);
        let closed = self.fs.close_file(file);
        written.and(closed).map(|()| Seen::Nothing).map_err(refusal)
    }

    fn make(&self, path: &TreePath, mode: u32, target: Option<&[u8]>) -> Result<(), Errno> {
        let (directory, name) = self.place(path)?;
        let new = NewInode { mode, target, ..NewInode::default() };
        self.fs.create(directory, name, &new).map(|_| ()).map_err(refusal)
    }

    fn names(&self, operation: &Operation) -> Result<(), Errno> {
        let fs = self.fs;
        match operation {
            Operation::Create { path, mode } => self.make(path, 0o100_000 | u32::from(*mode), None),
            Operation::MakeDirectory { path, mode } => self.make(path, 0o040_000 | u32::from(*mode), None),
            Operation::Symlink { path, target } => self.make(path, 0o120_000, Some(target.as_bytes())),
            Operation::Unlink { path } => {
                let (directory, name) = self.place(path)?;
                fs.unlink(directory, name).map_err(refusal)
            }
            Operation::RemoveDirectory { path } => {
                let (directory, name) = self.place(path)?;
                fs.remove_directory(directory, name).map_err(refusal)
            }
            Operation::Rename { from, to, rule } => {
                let ((from_directory, from), (to_directory, to)) = (self.place(from)?, self.place(to)?);
                let mode = match rule {
                    RenameRule::Replace => RenameMode::Replace,
                    RenameRule::NoReplace => RenameMode::NoReplace,
                    RenameRule::Exchange => RenameMode::Exchange,
                    RenameRule::Whiteout => RenameMode::Whiteout { replaces: true, uid: 0, gid: 0 },
                };
                fs.rename(from_directory, from, to_directory, to, mode).map_err(refusal)
            }
            Operation::Link { existing, path } => {
                let (directory, name) = self.place(path)?;
                fs.link(self.known(existing)?, directory, name).map(|_| ()).map_err(refusal)
            }
            Operation::Snapshot { source, path, is_read_only } => {
                let (directory, name) = self.place(path)?;
                let tree = self.known(source)?.tree;
                fs.snapshot(tree, directory, name, *is_read_only).map(|_| ()).map_err(refusal)
            }
            Operation::DeleteSubvolume { path } => {
                let (directory, name) = self.place(path)?;
                fs.delete_subvolume(directory, name).map_err(refusal)
            }
            _ => self.contents(operation),
        }
    }

    fn contents(&self, operation: &Operation) -> Result<(), Errno> {
        let fs = self.fs;
        let allocate = |path: &TreePath, mode, offset, length| {
            self.with_written(path, |file| fs.allocate(file, mode, offset, length))
        };
        match operation {
            Operation::Write { path, offset, data } => {
                let bytes = data.bytes();
                let written = self.with_written(path, |file| fs.write(file, *offset, &bytes))?;
                assert_eq!(written, bytes.len(), "there is room");
                Ok(())
            }
            Operation::Allocate { path, offset, length, .. } => {
                allocate(path, AllocateMode::Allocate, *offset, *length)
            }
            Operation::PunchHole { path, offset, length } => {
                allocate(path, AllocateMode::PunchHole, *offset, *length)
            }
            Operation::ZeroRange { path, offset, length, .. } => {
                allocate(path, AllocateMode::ZeroRange, *offset, *length)
            }
            Operation::CloneRange { from, from_offset, to, to_offset, length } => {
                self.with_written(to, |target| {
                    let share = |source: &OpenFile| {
                        fs.clone_range(&RangePair {
                            source,
                            source_offset: *from_offset,
                            target,
                            target_offset: *to_offset,
                            length: *length,
                        })
                        .map(|_| ())
                    };
                    Ok(self.with_file(from, share))
                })?
            }
            Operation::SyncFile { path } => {
                let id = self.known(path)?;
                if fs.attributes(id).map_err(refusal)?.kind == brindle_fs::FileType::Directory {
                    return fs.commit().map_err(refusal);
                }
                self.with_file(path, |file| fs.sync_file(file))
            }
            _ => self.attributes(operation),
        }
    }

    /// Operations that need no open file: the inode may go at any moment.
    fn attributes(&self, operation: &Operation) -> Result<(), Errno> {
        let fs = self.fs;
        let change = |path: &TreePath, change: AttributeChange| {
            fs.set_attributes(self.known(path)?, &change).map(|_| ()).map_err(refusal)
        };
        let nothing = AttributeChange::default();
        match operation {
            Operation::Truncate { path, size } => {
                change(path, AttributeChange { size: Some(*size), ..nothing })
            }
            Operation::SetMode { path, mode } => {
                change(path, AttributeChange { mode: Some((*mode).into()), ..nothing })
            }
            Operation::SetOwner { path, uid, gid } => {
                change(path, AttributeChange { uid: Some(*uid), gid: Some(*gid), ..nothing })
            }
            Operation::SetTimes { path, mtime } => {
                let time = NewTime::At(Timestamp { seconds: mtime.sec, nanoseconds: mtime.nsec });
                change(path, AttributeChange { accessed: Some(time), modified: Some(time), ..nothing })
            }
            Operation::SetXattr { path, name, value, rule } => {
                let mode = match rule {
                    XattrRule::Any => XattrMode::Any,
                    XattrRule::Create => XattrMode::Create,
                    XattrRule::Replace => XattrMode::Replace,
                };
                fs.set_xattr(self.known(path)?, name.as_bytes(), &value.bytes(), mode).map_err(refusal)
            }
            Operation::RemoveXattr { path, name } => {
                fs.remove_xattr(self.known(path)?, name.as_bytes()).map_err(refusal)
            }
            other => unreachable!("no race has {other:?}"),
        }
    }
}

/// Error number of Linux.
fn refusal(error: FsError) -> Errno {
    match error {
        // What is looked up and gone before it is used.
        FsError::DeletedSubvolume(_) => Errno::NotFound,
        error => errno(error),
    }
}
