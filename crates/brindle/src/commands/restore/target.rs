//! Where things are restored to: directories and files, by descriptor.

use super::Context;
use super::metadata;
use super::report::count;
use anyhow::{Context as _, Result};
use brindle_fs::Attributes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory of the destination. Gets owner, mode and times when it goes, which is after everything below it.
pub(super) struct Directory<'c> {
    context: &'c Context,
    descriptor: OwnedFd,
    /// For messages, and for hard links.
    path: Vec<u8>,
    /// What it is to look like; none for one that was there and is not ours to change.
    attributes: Option<Attributes>,
    /// Kept, so that it goes later.
    _parent: Option<Arc<Directory<'c>>>,
}

impl<'c> Directory<'c> {
    /// The directory that a tree goes into; made if it is not there.
    pub(super) fn open_destination(
        context: &'c Context,
        path: &Path,
        attributes: &Attributes,
    ) -> Result<Self> {
        let failed = || format!("cannot make the directory {}", path.display());
        let is_ours = match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => context.overwrite,
            Err(error) => return Err(error).with_context(failed),
        };
        let mut directory = Self::open_existing(context, path)?;
        directory.attributes = is_ours.then_some(*attributes);
        Ok(directory)
    }

    /// A directory that is there, and stays as it is.
    pub(super) fn open_existing(context: &'c Context, path: &Path) -> Result<Self> {
        let descriptor = openat(CWD, path, DIRECTORY, Mode::empty())
            .with_context(|| format!("cannot open the directory {}", path.display()))?;
        Ok(Self { context, descriptor, path: Vec::new(), attributes: None, _parent: None })
    }

    /// Makes a directory in this one; one that is there is used.
    pub(super) fn make_directory(
        self: &Arc<Self>,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<Self, Errno> {
        let made = match mkdirat(&self.descriptor, name, Mode::RWXU) {
            Err(Errno::EXIST) if self.context.overwrite && !self.is_directory(name) => {
                unlinkat(&self.descriptor, name, AtFlags::empty())?;
                mkdirat(&self.descriptor, name, Mode::RWXU)
            }
            made => made,
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let descriptor = openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        count(&self.context.report.directories);
        Ok(Self {
            context: self.context,
            descriptor,
            path: self.path_of(name),
            attributes: Some(*attributes),
            _parent: Some(Arc::clone(self)),
        })
    }

    fn is_directory(&self, name: &[u8]) -> bool {
        openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).is_ok()
    }

    /// Makes an empty file in this directory.
    pub(super) fn make_file(&self, name: &[u8]) -> Result<File, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        self.replacing(name, || openat(&self.descriptor, name, flags, mode)).map(File::from)
    }

    /// Makes something that must not exist yet; what is in the way goes first if it may.
    pub(super) fn replacing<T>(
        &self,
        name: &[u8],
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make() {
            Err(Errno::EXIST) if self.context.overwrite => {
                unlinkat(&self.descriptor, name, AtFlags::empty())?;
                make()
            }
            made => made,
        }
    }

    /// The path of a name in this directory, from the destination on.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [&self.path, &b"/"[..], name].concat() }
    }

    /// The path of this directory, from the destination on.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }
}

impl AsFd for Directory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        if let Some(attributes) = &self.attributes {
            metadata::apply(self.context, &self.descriptor, attributes, &self.path);
        }
    }
}

/// A file of the destination. Gets owner, mode and times when it goes, which is after its last segment.
pub(super) struct OutputFile<'c> {
    context: &'c Context,
    /// The file itself.
    pub(super) file: File,
    /// What it is to look like.
    pub(super) attributes: Attributes,
    /// For messages.
    pub(super) path: Vec<u8>,
    /// Kept, so that it goes later.
    _directory: Arc<Directory<'c>>,
}

impl<'c> OutputFile<'c> {
    /// Makes a file with nothing in it; of the right size if data alone would not give it that.
    pub(super) fn make(
        context: &'c Context,
        directory: Arc<Directory<'c>>,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<Self, Errno> {
        let file = directory.make_file(name)?;
        let path = directory.path_of(name);
        let output = Self { context, file, attributes, path, _directory: directory };
        if output.may_have_holes() {
            output.set_size()?;
        }
        count(&context.report.files);
        Ok(output)
    }

    /// Whether writing all data leaves something unwritten. The bytes of an inode are those of its extents: with
    /// as many as its size it has no hole.
    pub(super) fn may_have_holes(&self) -> bool {
        self.attributes.disk_bytes < self.attributes.size
    }

    /// Gives the file its size, whatever has been written.
    pub(super) fn set_size(&self) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.file, self.attributes.size)
    }
}

impl Drop for OutputFile<'_> {
    fn drop(&mut self) {
        metadata::apply(self.context, &self.file, &self.attributes, &self.path);
    }
}
