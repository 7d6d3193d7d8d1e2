//! Files of a subvolume on a mount of the kernel, by the paths of a stream.

use brindle_care::receive::{PathParts, ReceiveProblem, check_path, split};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, listxattr, open, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Paths lead below the root through directories of this mount alone.
const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// The root of a subvolume, and what the last commands were about.
#[derive(Debug)]
pub(super) struct Place {
    root: OwnedFd,
    device: u64,
    opened: Option<(Vec<u8>, File)>,
    directory: Option<(Vec<u8>, OwnedFd)>,
    /// The inode of the last command, for several are about the same in a row.
    inode: Option<(Vec<u8>, Inode)>,
    /// True if the root, in which a stream makes most inodes first, passes attributes on; `None` if that is to be looked up.
    root_passes_on: Option<bool>,
}

/// An inode, for calls that need it not opened.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) file: OwnedFd,
    pub(super) kind: FileType,
}

impl Place {
    pub(super) fn new(root: &OwnedFd) -> Result<Self, ReceiveProblem> {
        let root = root.try_clone()?;
        let device = fstat(&root).map_err(io::Error::from)?.st_dev;
        Ok(Self { root, device, opened: None, directory: None, inode: None, root_passes_on: None })
    }

    /// Forgets the file and the directory of the last commands: a path may lead elsewhere from now on.
    pub(super) fn forget(&mut self) {
        (self.opened, self.directory, self.inode) = (None, None, None);
    }

    /// The inode of a path, a symbolic link itself included.
    pub(super) fn inode(&mut self, path: &[u8]) -> Result<&Inode, ReceiveProblem> {
        if self.inode.as_ref().is_none_or(|(known, _)| known != path) {
            self.inode = Some((path.to_vec(), self.find(path)?));
        }
        Ok(&self.inode.as_ref().expect("it was just found").1)
    }

    fn find(&self, path: &[u8]) -> Result<Inode, ReceiveProblem> {
        check_path(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name: &[u8] = if path.is_empty() { b"." } else { path };
        let found = openat2(&self.root, name, flags, Mode::empty(), INSIDE).map_err(|error| match error {
            Errno::XDEV | Errno::LOOP => {
                ReceiveProblem::Path { path: path.to_vec(), why: "leads out of the subvolume" }
            }
            error => io::Error::from(error).into(),
        })?;
        let stat = fstat(&found).map_err(io::Error::from)?;
        if stat.st_dev != self.device {
            return Err(ReceiveProblem::Path { path: path.to_vec(), why: "leads into another subvolume" });
        }
        Ok(Inode { file: found, kind: FileType::from_raw_mode(stat.st_mode) })
    }

    /// The directory of a path, which mostly is that of the command before, and the last name.
    pub(super) fn parts<'p>(&mut self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), ReceiveProblem> {
        let PathParts { directory, name } = split(path)?;
        if let Some((_, known)) = self.directory.as_ref().filter(|(known, _)| known == directory) {
            return Ok((known.try_clone()?, name));
        }
        let Inode { file: found, kind } = self.find(directory)?;
        if kind != FileType::Directory {
            return Err(ReceiveProblem::Path { path: directory.to_vec(), why: "is no directory" });
        }
        self.directory = Some((directory.to_vec(), found.try_clone()?));
        Ok((found, name))
    }

    /// The open file of a path, to be written.
    pub(super) fn file(&mut self, path: &[u8]) -> Result<&File, ReceiveProblem> {
        if self.opened.as_ref().is_none_or(|(known, _)| known != path) {
            self.opened = None;
            let file = self.open(path, OFlags::RDWR)?;
            self.opened = Some((path.to_vec(), file));
        }
        Ok(&self.opened.as_ref().expect("it was just opened").1)
    }

    /// Opens a regular file. What else there is under its path would do something when it is opened.
    pub(super) fn open(&mut self, path: &[u8], access: OFlags) -> Result<File, ReceiveProblem> {
        let inode = self.inode(path)?;
        if inode.kind != FileType::RegularFile {
            return Err(ReceiveProblem::NotAFile);
        }
        let file = open(name_of(&inode.file), access | OFlags::CLOEXEC, Mode::empty());
        Ok(file.map_err(io::Error::from)?.into())
    }

    /// Returns true if the directory of a path may pass attributes on to what is made in it.
    pub(super) fn passes_on(&mut self, path: &[u8]) -> Result<bool, ReceiveProblem> {
        if path.contains(&b'/') {
            return Ok(true);
        }
        if let Some(known) = self.root_passes_on {
            return Ok(known);
        }
        let mut nothing: [u8; 0] = [];
        let bytes = listxattr(name_of(&self.root), &mut nothing[..]).map_err(io::Error::from)?;
        self.root_passes_on = Some(bytes > 0);
        Ok(bytes > 0)
    }

    /// Attributes of an inode change: those of the root are to be looked up again.
    pub(super) fn note_attributes(&mut self, path: &[u8]) {
        if path.is_empty() {
            self.root_passes_on = None;
        }
    }
}

/// A path by which the inode of a descriptor is found, whatever names it has.
pub(super) fn name_of(inode: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", inode.as_fd().as_raw_fd())
}
