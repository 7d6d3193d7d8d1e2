//! Any mounted btrfs as a target: the kernel's, or ours through FUSE.

use super::{Operation, Target};
use crate::manifest::Manifest;
use crate::model::{Errno, Node, RenameRule, TreePath, XattrRule};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags, makedev,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A mount point whose filesystem is told what to do by the system's own calls, by `btrfs` where these are
/// ioctls on subvolumes, and by `xfs_io` for reflinks. Needs the rights for all that.
pub struct MountedTarget {
    root: PathBuf,
    remount: Box<dyn FnMut() + Send>,
}

type Outcome = Result<(), Errno>;

impl MountedTarget {
    /// Target mounted at `root`, the top of a pool. `remount` unmounts it and mounts it again.
    pub fn new(root: &Path, remount: impl FnMut() + Send + 'static) -> Self {
        Self { root: root.to_owned(), remount: Box::new(remount) }
    }

    fn at(&self, path: &TreePath) -> PathBuf {
        if path.is_top() { self.root.clone() } else { self.root.join(OsStr::from_bytes(path.bytes())) }
    }

    fn open(&self, path: &TreePath, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(CWD, self.at(path), flags, Mode::empty())?))
    }

    fn names(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { path, mode } => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(CWD, self.at(path), flags, Mode::empty())?;
                Ok(rustix::fs::fchmod(file, mode_of(*mode))?)
            }
            Operation::MakeDirectory { path, mode } => {
                rustix::fs::mkdirat(CWD, self.at(path), Mode::empty())?;
                self.chmod(path, *mode)
            }
            Operation::Symlink { path, target } => {
                Ok(rustix::fs::symlinkat(target.as_str(), CWD, self.at(path))?)
            }
            Operation::MakeNode { path, node, mode } => {
                let (kind, device) = match node {
                    Node::Fifo => (FileType::Fifo, 0),
                    Node::Socket => (FileType::Socket, 0),
                    Node::Char(rdev) => (FileType::CharacterDevice, makedev(rdev.major, rdev.minor)),
                    Node::Block(rdev) => (FileType::BlockDevice, makedev(rdev.major, rdev.minor)),
                };
                rustix::fs::mknodat(CWD, self.at(path), kind, Mode::empty(), device)?;
                self.chmod(path, *mode)
            }
            Operation::Link { existing, path } => {
                Ok(rustix::fs::linkat(CWD, self.at(existing), CWD, self.at(path), AtFlags::empty())?)
            }
            Operation::Unlink { path } => Ok(rustix::fs::unlinkat(CWD, self.at(path), AtFlags::empty())?),
            Operation::RemoveDirectory { path } => {
                Ok(rustix::fs::unlinkat(CWD, self.at(path), AtFlags::REMOVEDIR)?)
            }
            Operation::Rename { from, to, rule } => {
                let flags = match rule {
                    RenameRule::Replace => RenameFlags::empty(),
                    RenameRule::NoReplace => RenameFlags::NOREPLACE,
                    RenameRule::Exchange => RenameFlags::EXCHANGE,
                    RenameRule::Whiteout => RenameFlags::WHITEOUT,
                };
                Ok(rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags)?)
            }
            _ => self.contents_of_files(operation),
        }
    }

    fn contents_of_files(&self, operation: &Operation) -> Outcome {
        let allocate = |path: &TreePath, mode: FallocateFlags, offset: u64, length: u64| {
            Ok(rustix::fs::fallocate(self.open(path, OFlags::WRONLY)?, mode, offset, length)?)
        };
        let keep = |keeps_size: bool| {
            if keeps_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
        };
        match operation {
            Operation::Write { path, offset, data } => {
                Ok(self.open(path, OFlags::WRONLY)?.write_all_at(&data.bytes(), *offset)?)
            }
            Operation::Truncate { path, size } => {
                Ok(rustix::fs::ftruncate(self.open(path, OFlags::WRONLY)?, *size)?)
            }
            Operation::Allocate { path, offset, length, keeps_size } => {
                allocate(path, keep(*keeps_size), *offset, *length)
            }
            Operation::PunchHole { path, offset, length } => {
                allocate(path, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *offset, *length)
            }
            Operation::ZeroRange { path, offset, length, keeps_size } => {
                allocate(path, FallocateFlags::ZERO_RANGE | keep(*keeps_size), *offset, *length)
            }
            Operation::CloneRange { from, from_offset, to, to_offset, length } => {
                let target = self.open(to, OFlags::RDWR)?;
                let source = self.open(from, OFlags::RDONLY)?;
                // By its number here, for a name may hold anything.
                let named = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
                let command = format!("reflink {} {from_offset} {to_offset} {length}", named(&source));
                answer(Command::new("xfs_io").args(["-c", &command]).arg(named(&target)).output())
            }
            _ => self.attributes(operation),
        }
    }

    fn attributes(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::SetMode { path, mode } => self.chmod(path, *mode),
            Operation::SetOwner { path, uid, gid } => {
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                Ok(rustix::fs::chownat(CWD, self.at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Operation::SetTimes { path, mtime } => {
                let time = Timespec { tv_sec: mtime.sec, tv_nsec: mtime.nsec.into() };
                let times = Timestamps { last_access: time, last_modification: time };
                Ok(rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Operation::SetXattr { path, name, value, rule } => {
                let flags = match rule {
                    XattrRule::Any => XattrFlags::empty(),
                    XattrRule::Create => XattrFlags::CREATE,
                    XattrRule::Replace => XattrFlags::REPLACE,
                };
                Ok(rustix::fs::lsetxattr(self.at(path), name.as_str(), &value.bytes(), flags)?)
            }
            Operation::RemoveXattr { path, name } => {
                Ok(rustix::fs::lremovexattr(self.at(path), name.as_str())?)
            }
            _ => self.subvolumes(operation),
        }
    }

    fn subvolumes(&self, operation: &Operation) -> Outcome {
        let btrfs = |words: &[&str], paths: &[PathBuf]| {
            answer(Command::new("btrfs").arg("subvolume").args(words).args(paths).output())
        };
        match operation {
            Operation::CreateSubvolume { path } => btrfs(&["create"], &[self.at(path)]),
            Operation::Snapshot { source, path, is_read_only } => {
                // The command would make it in a directory that is there.
                if rustix::fs::lstat(self.at(path)).is_ok() {
                    return Err(Errno::Unknown);
                }
                let words: &[&str] = if *is_read_only { &["snapshot", "-r"] } else { &["snapshot"] };
                btrfs(words, &[self.at(source), self.at(path)])
            }
            Operation::DeleteSubvolume { path } => btrfs(&["delete"], &[self.at(path)]),
            _ => unreachable!("handled by the caller"),
        }
    }

    fn chmod(&self, path: &TreePath, mode: u16) -> Outcome {
        Ok(rustix::fs::chmodat(CWD, self.at(path), mode_of(mode), AtFlags::empty())?)
    }
}

impl Target for MountedTarget {
    fn apply(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Sync => Ok(rustix::fs::syncfs(File::open(&self.root)?)?),
            Operation::SyncFile { path } => Ok(self.open(path, OFlags::RDONLY)?.sync_all()?),
            Operation::Remount => {
                (self.remount)();
                Ok(())
            }
            _ => self.names(operation),
        }
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        Manifest::of_directory(&self.root).map_err(|error| error.to_string())
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        std::fs::read(self.at(path)).ok()
    }
}

fn mode_of(mode: u16) -> Mode {
    Mode::from_bits_truncate(mode.into())
}

/// Result of a program that reports its errors in words, and not always the same.
fn answer(output: std::io::Result<Output>) -> Outcome {
    let output = output?;
    // `xfs_io` exits with 0 whatever happens.
    let is_done = output.status.success() && output.stderr.is_empty();
    if is_done { Ok(()) } else { Err(Errno::Unknown) }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::from_code(errno.raw_os_error())
    }
}
