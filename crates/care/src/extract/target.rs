//! Target directories, by descriptor.

use super::count;
use super::metadata;
use super::{Context, ExtractError};
use brindle_fs::Attributes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory of the destination. Gets owner, mode and times when it goes, which is after everything below it.
pub(super) struct Directory<'c> {
    context: &'c Context<'c>,
    descriptor: OwnedFd,
    /// For messages, and for hard links.
    path: Vec<u8>,
    /// True if it was made just now, so that no foreign file can be in the way.
    is_new: bool,
    /// Attributes of the finished directory; `None` for one that existed and is not ours to change.
    attributes: Option<Attributes>,
    /// Kept, so that it goes later.
    _parent: Option<Arc<Directory<'c>>>,
}

impl<'c> Directory<'c> {
    /// The directory that a tree goes into; made if it is not there.
    pub(super) fn open_destination(
        context: &'c Context<'c>,
        path: &Path,
        attributes: &Attributes,
    ) -> Result<Self, ExtractError> {
        let is_ours = match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => context.options.overwrite,
            Err(source) => return Err(ExtractError::Make { path: path.to_owned(), source }),
        };
        let mut directory = Self::open_existing(context, path)?;
        directory.attributes = is_ours.then_some(*attributes);
        Ok(directory)
    }

    /// A directory that is there, and stays as it is.
    pub(super) fn open_existing(context: &'c Context<'c>, path: &Path) -> Result<Self, ExtractError> {
        let descriptor = openat(CWD, path, DIRECTORY, Mode::empty())
            .map_err(|source| ExtractError::Open { path: path.to_owned(), source })?;
        Ok(Self { context, descriptor, path: Vec::new(), is_new: false, attributes: None, _parent: None })
    }

    /// Makes a directory in this one; one that is there is used.
    pub(super) fn make_directory(
        self: &Arc<Self>,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<Self, Errno> {
        let made = match mkdirat(&self.descriptor, name, Mode::RWXU) {
            Err(Errno::EXIST) if self.context.options.overwrite && !self.is_directory(name) => {
                unlinkat(&self.descriptor, name, AtFlags::empty())?;
                mkdirat(&self.descriptor, name, Mode::RWXU)
            }
            made => made,
        };
        let is_new = match made {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error),
        };
        let descriptor = openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        count(&self.context.counts.directories);
        Ok(Self {
            context: self.context,
            descriptor,
            path: self.path_of(name),
            is_new,
            attributes: Some(*attributes),
            _parent: Some(Arc::clone(self)),
        })
    }

    fn is_directory(&self, name: &[u8]) -> bool {
        openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).is_ok()
    }

    /// Makes something that must not exist yet; what is in the way goes first if it may.
    pub(super) fn replacing<T>(
        &self,
        name: &[u8],
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make() {
            Err(Errno::EXIST) if self.context.options.overwrite => {
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

    /// Returns true if only our files can be in it.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
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
