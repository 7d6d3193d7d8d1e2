//! The library as a target of random operations. What the VFS does before it asks a filesystem is done here.

use super::pool::{NEW_SUBVOLUME, Pool};
use crate::walk::{Limits, Walk};
use brindle_fs::{
    AllocateMode, AttributeChange, Attributes, FileType, Filesystem, FsError, InodeId, NewInode, NewTime,
    OpenFile, RangePair, Remaining, RenameMode, Timestamp, XattrMode,
};
use brindle_testing::manifest::{Device, Manifest};
use brindle_testing::model::{Errno, Node, RenameRule, TreePath, XattrRule};
use brindle_testing::operations::{Operation, Target};
use brindle_tree::TreeError;
use std::rc::Rc;
use std::sync::Arc;

/// Location of a pool.
pub(crate) trait Ground {
    /// Opens it to write.
    fn open(&self) -> Filesystem;

    /// Panics with what is wrong with it.
    fn assert_clean(&self, when: &str);
}

/// A pool that is opened to write.
pub(crate) struct Library {
    ground: Rc<dyn Ground>,
    system: Option<System>,
}

/// Work of the system between a program and the library.
pub(crate) struct System {
    filesystem: Arc<Filesystem>,
    /// Directory at which paths begin.
    top: InodeId,
}

type Outcome = Result<(), Errno>;

impl Library {
    pub(crate) fn new() -> Self {
        Self::of(Rc::new(Pool::new()))
    }

    pub(crate) fn of(ground: Rc<dyn Ground>) -> Self {
        let system = Some(System::over(ground.open()));
        Self { ground, system }
    }

    pub(crate) fn fs(&self) -> &Filesystem {
        self.system().fs()
    }

    fn system(&self) -> &System {
        self.system.as_ref().expect("open but for the moment of a remount")
    }

    /// Closes the pool, looks at what is on disk, and opens it again.
    pub(crate) fn remount(&mut self) {
        self.close();
        self.ground.assert_clean("after unmounting");
        self.system = Some(System::over(self.ground.open()));
    }

    /// Closes the pool with all that was left to do done.
    pub(crate) fn close(&mut self) {
        self.system.take().expect("open").close().expect("closes");
    }
}

impl System {
    /// Target of a whole filesystem.
    pub(crate) fn over(filesystem: Filesystem) -> Self {
        let top = filesystem.root();
        Self { filesystem: Arc::new(filesystem), top }
    }

    /// Target below a directory of a filesystem that others use too.
    pub(crate) fn within(filesystem: &Arc<Filesystem>, top: InodeId) -> Self {
        Self { filesystem: Arc::clone(filesystem), top }
    }

    pub(crate) fn fs(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Makes everything durable, with all that was left to do done.
    pub(crate) fn close(self) -> Result<(), FsError> {
        while self.fs().background_step()? == Remaining::More {}
        self.fs().shutdown()
    }

    /// Makes a file or directory durable.
    pub(crate) fn sync_file(&self, path: &TreePath) -> Outcome {
        let id = self.resolve(path)?;
        match self.attributes(id)?.kind {
            FileType::Regular => {}
            FileType::Directory => return self.fs().sync_directory(id).map_err(errno),
            _ => return self.fs().sync_attributes(id).map_err(errno),
        }
        let file = self.fs().open_file(id).map_err(errno)?;
        self.fs().sync_file(&file).map_err(errno)
    }

    /// The bytes of a file.
    pub(crate) fn contents(&self, path: &TreePath) -> Option<Vec<u8>> {
        let file = self.fs().open_file(self.resolve(path).ok()?).ok()?;
        let mut bytes = vec![0; usize::try_from(file.size()).ok()?];
        let length = self.fs().read(&file, 0, &mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }

    fn child(&self, directory: InodeId, name: &[u8]) -> Result<Option<InodeId>, Errno> {
        if self.attributes(directory)?.kind != FileType::Directory {
            return Err(Errno::NotDirectory);
        }
        if name.len() > 255 {
            return Err(Errno::NameTooLong);
        }
        Ok(self.fs().lookup(directory, name).map_err(errno)?.map(|entry| entry.inode))
    }

    fn attributes(&self, id: InodeId) -> Result<Attributes, Errno> {
        self.fs().attributes(id).map_err(errno)
    }

    fn resolve(&self, path: &TreePath) -> Result<InodeId, Errno> {
        path.names().try_fold(self.top, |at, name| self.child(at, name)?.ok_or(Errno::NotFound))
    }

    /// The directory, the name, and what it stands for.
    fn entry<'p>(&self, path: &'p TreePath) -> Result<(InodeId, &'p [u8], Option<InodeId>), Errno> {
        let (parent, name) = path.split().ok_or(Errno::Invalid)?;
        let directory = self.resolve(&parent)?;
        Ok((directory, name, self.child(directory, name)?))
    }

    /// The directory in which a name is free.
    fn vacancy<'p>(&self, path: &'p TreePath) -> Result<(InodeId, &'p [u8]), Errno> {
        let (directory, name, found) = self.entry(path)?;
        if found.is_some() { Err(Errno::Exists) } else { Ok((directory, name)) }
    }

    /// A name that something has.
    fn occupied<'p>(&self, path: &'p TreePath) -> Result<(InodeId, &'p [u8], InodeId), Errno> {
        let (directory, name, found) = self.entry(path)?;
        Ok((directory, name, found.ok_or(Errno::NotFound)?))
    }

    fn make(&self, path: &TreePath, mode: u32, rdev: u64, target: Option<&[u8]>) -> Outcome {
        let (directory, name) = self.vacancy(path)?;
        let new = NewInode { mode, rdev, target, ..NewInode::default() };
        let made = self.fs().create(directory, name, &new).map_err(errno)?;
        assert_eq!(made, self.attributes(made.id)?, "what was made is what is there");
        Ok(())
    }

    fn open_to_write(&self, path: &TreePath) -> Result<OpenFile, Errno> {
        let id = self.resolve(path)?;
        match self.attributes(id)?.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::IsDirectory),
            FileType::Symlink => return Err(Errno::from_code(40)),
            _ => return Err(Errno::Invalid),
        }
        self.fs().check_writable(id).map_err(errno)?;
        self.fs().open_file(id).map_err(errno)
    }

    /// Does anything but syncs and remounts.
    pub(crate) fn names(&self, operation: &Operation) -> Outcome {
        let fs = self.fs();
        match operation {
            Operation::Create { path, mode } => self.make(path, 0o100_000 | u32::from(*mode), 0, None),
            Operation::MakeDirectory { path, mode } => self.make(path, 0o040_000 | u32::from(*mode), 0, None),
            Operation::Symlink { path, target } => self.make(path, 0o120_000, 0, Some(target.as_bytes())),
            Operation::MakeNode { path, node, mode } => {
                let number = |rdev: &Device| u64::from(rdev.major) << 20 | u64::from(rdev.minor);
                let (kind, rdev) = match node {
                    Node::Fifo => (0o010_000, 0),
                    Node::Socket => (0o140_000, 0),
                    Node::Char(rdev) => (0o020_000, number(rdev)),
                    Node::Block(rdev) => (0o060_000, number(rdev)),
                };
                self.make(path, kind | u32::from(*mode), rdev, None)
            }
            Operation::Link { existing, path } => {
                let existing = self.resolve(existing)?;
                let (directory, name) = self.vacancy(path)?;
                fs.check_writable(directory).map_err(errno)?;
                if self.attributes(existing)?.kind == FileType::Directory {
                    return Err(Errno::NotPermitted);
                }
                fs.link(existing, directory, name).map(|_| ()).map_err(errno)
            }
            Operation::Unlink { path } if path.is_top() => Err(Errno::IsDirectory),
            Operation::Unlink { path } => {
                let (directory, name, _) = self.occupied(path)?;
                fs.unlink(directory, name).map_err(errno)
            }
            Operation::RemoveDirectory { path } => {
                let (directory, name, _) = self.occupied(path)?;
                fs.remove_directory(directory, name).map_err(errno)
            }
            Operation::Rename { from, to, rule } => self.rename(from, to, *rule),
            _ => self.contents_of_files(operation),
        }
    }

    fn rename(&self, from: &TreePath, to: &TreePath, rule: RenameRule) -> Outcome {
        let (Some((from_parent, _)), Some((to_parent, _))) = (from.split(), to.split()) else {
            return Err(Errno::Invalid);
        };
        for parent in [from_parent, to_parent] {
            if self.attributes(self.resolve(&parent)?)?.kind != FileType::Directory {
                return Err(Errno::NotDirectory);
            }
        }
        let (from_directory, from_name, source) = self.occupied(from)?;
        let (to_directory, to_name, target) = self.entry(to)?;
        match (target, rule) {
            (Some(_), RenameRule::NoReplace) => return Err(Errno::Exists),
            (None, RenameRule::Exchange) => return Err(Errno::NotFound),
            _ => {}
        }
        if from_directory != to_directory && to.is_within(from) {
            return Err(Errno::Invalid);
        }
        if from_directory != to_directory && from.is_within(to) {
            return Err(if rule == RenameRule::Exchange { Errno::Invalid } else { Errno::NotEmpty });
        }
        if target == Some(source) {
            return Ok(());
        }
        let mode = match rule {
            RenameRule::Replace => RenameMode::Replace,
            RenameRule::NoReplace => RenameMode::NoReplace,
            RenameRule::Exchange => RenameMode::Exchange,
            RenameRule::Whiteout => RenameMode::Whiteout { replaces: true, uid: 0, gid: 0 },
        };
        self.fs().rename(from_directory, from_name, to_directory, to_name, mode).map_err(errno)
    }

    fn contents_of_files(&self, operation: &Operation) -> Outcome {
        let fs = self.fs();
        let allocate = |path: &TreePath, mode, offset: u64, length: u64| {
            fs.allocate(&self.open_to_write(path)?, mode, offset, length).map_err(errno)
        };
        match operation {
            Operation::Write { path, offset, data } => {
                let (file, bytes) = (self.open_to_write(path)?, data.bytes());
                let mut at = 0;
                while at < bytes.len() {
                    at += fs.write(&file, offset + at as u64, &bytes[at..]).map_err(errno)?;
                }
                Ok(())
            }
            Operation::Truncate { path, size } => {
                let id = self.open_to_write(path)?.id();
                let change = AttributeChange { size: Some(*size), ..AttributeChange::default() };
                fs.set_attributes(id, &change).map(|_| ()).map_err(errno)
            }
            Operation::Allocate { path, offset, length, keeps_size } => {
                let mode = if *keeps_size { AllocateMode::AllocateKeepSize } else { AllocateMode::Allocate };
                allocate(path, mode, *offset, *length)
            }
            Operation::PunchHole { path, offset, length } => {
                allocate(path, AllocateMode::PunchHole, *offset, *length)
            }
            Operation::ZeroRange { path, offset, length, keeps_size } => {
                let mode =
                    if *keeps_size { AllocateMode::ZeroRangeKeepSize } else { AllocateMode::ZeroRange };
                allocate(path, mode, *offset, *length)
            }
            Operation::CloneRange { from, from_offset, to, to_offset, length } => {
                let target = self.open_to_write(to)?;
                let source = self.resolve(from)?;
                let source = fs.open_file(source).map_err(errno)?;
                fs.clone_range(&RangePair {
                    source: &source,
                    source_offset: *from_offset,
                    target: &target,
                    target_offset: *to_offset,
                    length: *length,
                })
                .map(|_| ())
                .map_err(errno)
            }
            _ => self.attributes_of(operation),
        }
    }

    fn attributes_of(&self, operation: &Operation) -> Outcome {
        let change = |path: &TreePath, change: AttributeChange| {
            let id = self.resolve(path)?;
            let is_symlink = self.attributes(id)?.kind == FileType::Symlink;
            if change.mode.is_some() && is_symlink {
                self.fs().check_writable(id).map_err(errno)?;
                return Err(Errno::NotSupported);
            }
            let after = self.fs().set_attributes(id, &change).map_err(errno)?;
            let found = self.attributes(id)?;
            assert!(found.transid >= after.transid, "{found:?} {after:?}");
            // Where others commit, contents may be brought home between the two.
            let meanwhile = Attributes { transid: found.transid, disk_bytes: found.disk_bytes, ..after };
            assert_eq!(meanwhile, found);
            Ok(())
        };
        let nothing = AttributeChange::default();
        match operation {
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
                let id = self.resolve(path)?;
                let kind = self.attributes(id)?.kind;
                self.fs().check_writable(id).map_err(errno)?;
                if name.starts_with("user.") && !matches!(kind, FileType::Regular | FileType::Directory) {
                    return Err(Errno::NotPermitted);
                }
                let mode = match rule {
                    XattrRule::Any => XattrMode::Any,
                    XattrRule::Create => XattrMode::Create,
                    XattrRule::Replace => XattrMode::Replace,
                };
                self.fs().set_xattr(id, name.as_bytes(), &value.bytes(), mode).map_err(errno)
            }
            Operation::RemoveXattr { path, name } => {
                self.fs().remove_xattr(self.resolve(path)?, name.as_bytes()).map_err(errno)
            }
            _ => self.subvolumes(operation),
        }
    }

    fn subvolumes(&self, operation: &Operation) -> Outcome {
        let fs = self.fs();
        match operation {
            Operation::CreateSubvolume { path } => {
                let (directory, name) = self.vacancy(path)?;
                fs.create_subvolume(directory, name, &NEW_SUBVOLUME).map(|_| ()).map_err(errno)
            }
            Operation::Snapshot { source, path, is_read_only } => {
                let source = self.resolve(source)?;
                if source != InodeId::root_of(source.tree) {
                    return Err(Errno::Invalid);
                }
                let (directory, name) = self.vacancy(path)?;
                fs.snapshot(source.tree, directory, name, *is_read_only).map(|_| ()).map_err(errno)
            }
            Operation::DeleteSubvolume { path } => {
                let (directory, name, id) = self.occupied(path)?;
                if self.attributes(id)?.kind != FileType::Directory {
                    return Err(Errno::NotDirectory);
                }
                fs.delete_subvolume(directory, name).map_err(errno)
            }
            _ => unreachable!("done by who calls"),
        }
    }
}

impl Target for Library {
    fn apply(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Sync => self.fs().sync().map_err(errno),
            Operation::SyncFile { path } => self.system().sync_file(path),
            Operation::Remount => {
                self.remount();
                Ok(())
            }
            _ => {
                let answer = self.system().names(operation);
                self.fs().background_step().map_err(errno)?;
                answer
            }
        }
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        Ok(Walk::of(self.fs(), Limits::NONE).expect_whole("the library"))
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        self.system().contents(path)
    }
}

/// Error number of Linux.
pub(crate) fn errno(error: FsError) -> Errno {
    match error {
        FsError::NotFound(_) | FsError::NoInode(_) | FsError::NoSubvolume(_) => Errno::NotFound,
        FsError::Exists(_) | FsError::XattrExists(_) => Errno::Exists,
        FsError::NameTooLong(_) => Errno::NameTooLong,
        FsError::NotADirectory(_) => Errno::NotDirectory,
        FsError::IsADirectory(_) => Errno::IsDirectory,
        FsError::NotEmpty(_) | FsError::NestedSubvolume(..) => Errno::NotEmpty,
        FsError::CrossSubvolume(_) => Errno::CrossDevice,
        FsError::TooManyLinks(_) => Errno::TooManyLinks,
        FsError::NotPermitted { .. } | FsError::DefaultSubvolume(_) => Errno::NotPermitted,
        FsError::NoXattr(_) => Errno::NoData,
        FsError::XattrTooLarge(_) | FsError::Tree(TreeError::NoSpace(_)) => Errno::NoSpace,
        FsError::ReadOnlySubvolume(_) => Errno::ReadOnly,
        FsError::Invalid { .. }
        | FsError::InvalidName(_)
        | FsError::NotASubvolume(_)
        | FsError::NotAFile(_) => Errno::Invalid,
        FsError::TooLarge(_) => Errno::FileTooLarge,
        FsError::Unsupported { .. } => Errno::NotSupported,
        FsError::Tree(TreeError::ReadOnly(_)) => Errno::ReadOnly,
        FsError::WriteBack { why, .. } if matches!(*why, FsError::Tree(TreeError::NoSpace(_))) => {
            Errno::NoSpace
        }
        other => {
            eprintln!("an error that only devices can cause: {other}");
            Errno::Io
        }
    }
}
