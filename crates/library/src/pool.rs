//! An open pool: paths to operations.

use crate::walk::{LastLink, Place, bytes, walk};
use crate::{Error, ErrorKind, File, PoolOptions, ReadDir};
use brindle_fs::{
    AttributeChange, Attributes, FileType, Filesystem, FsError, InodeId, NewInode, RenameMode,
    SpaceStatistics, Subvolume, Upkeep, UpkeepOptions, UpkeepOwner, Xattr, XattrMode,
};
use rustix::process::{getegid, geteuid};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Type and permissions of a new file.
const FILE_MODE: u32 = 0o100_644;
/// Type and permissions of a new directory.
const DIRECTORY_MODE: u32 = 0o040_755;
/// Type and permissions of a new symbolic link.
const LINK_MODE: u32 = 0o120_777;

/// An open pool.
///
/// Paths begin at the root directory of the chosen subvolume, with or without a slash, and may go through symbolic links and
/// `..`. Symbolic links at their end are followed, where a method does not say otherwise. What is new belongs to the user and group of
/// the process, and has mode 644, directories 755.
///
/// The pool is closed with its last [`File`] and [`ReadDir`].
#[derive(Debug)]
pub struct Pool(Arc<Shared>);

/// State shared by a pool and its files.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Ends first: it commits.
    upkeep: Option<Upkeep>,
    pub(crate) filesystem: Arc<Filesystem>,
}

/// The program, as the owner of the upkeep.
#[derive(Debug)]
struct Program {
    filesystem: Arc<Filesystem>,
    commit_interval: Duration,
}

impl UpkeepOwner for Program {
    fn commit_interval(&self) -> Duration {
        self.commit_interval
    }

    fn sync(&self) -> Result<(), FsError> {
        self.filesystem.sync()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.upkeep.take());
        if self.filesystem.is_writable() {
            if let Err(error) = self.filesystem.shutdown() {
                tracing::error!("the pool could not be closed: {error}");
            }
        }
    }
}

impl Pool {
    /// Options of opening.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }

    /// Opens the pool that lies on image files or block devices, to read it.
    ///
    /// # Errors
    /// As [`PoolOptions::open`].
    pub fn open<P: AsRef<Path>>(devices: impl IntoIterator<Item = P>) -> Result<Self, Error> {
        Self::options().open(devices)
    }

    /// A pool that is only read.
    pub(crate) fn of(filesystem: Filesystem) -> Self {
        Self(Arc::new(Shared { upkeep: None, filesystem: Arc::new(filesystem) }))
    }

    /// A pool that is written.
    pub(crate) fn kept_up(filesystem: Filesystem, commit_interval: Duration) -> Result<Self, Error> {
        let filesystem = Arc::new(filesystem);
        let owner = Arc::new(Program { filesystem: Arc::clone(&filesystem), commit_interval });
        let upkeep = Upkeep::start(Arc::clone(&filesystem), owner, UpkeepOptions::default());
        Ok(Self(Arc::new(Shared { upkeep: Some(upkeep.map_err(Error::Thread)?), filesystem })))
    }

    /// Warnings for users: damaged superblocks, missing devices, a log that is not replayed.
    pub fn warnings(&self) -> &[String] {
        self.0.filesystem.warnings()
    }

    /// The filesystem below, for what paths don't reach. Its interface changes with the engine.
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.0.filesystem
    }

    /// Sizes and free space.
    ///
    /// # Errors
    /// Damage of the pool.
    pub fn space(&self) -> Result<SpaceStatistics, Error> {
        self.0.filesystem.space().map_err(Error::of_pool)
    }

    /// Makes everything durable that was done before the call.
    ///
    /// # Errors
    /// Contents of any file that could not be written back since the last call, and devices that fail.
    pub fn sync(&self) -> Result<(), Error> {
        self.0.filesystem.sync().map_err(Error::of_pool)
    }

    /// Makes everything durable, and closes the pool as soon as the last of its files is closed.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(self) -> Result<(), Error> {
        self.0.filesystem.shutdown().map_err(Error::of_pool)
    }

    /// Opens a file, to read it and, in a pool that is written, to write it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::IsADirectory`](crate::ErrorKind::IsADirectory),
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what has no contents.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        let id = self.walk(path, LastLink::Follow)?.inode(path)?;
        self.opened(path, id)
    }

    /// Opens a file to write it anew: makes it, or cuts it off at its start.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file), and [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace).
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        if bytes(path).ends_with(b"/") {
            // No link that it may stand for is looked at.
            self.walk(path, LastLink::Name)?.name_of_file(path)?;
        }
        let place = self.walk(path, LastLink::Follow)?;
        place.name_of_file(path)?;
        if place.target.is_none() {
            match self.create_at(path, &place) {
                Err(error) if error.kind() == ErrorKind::Exists => {}
                created => return created,
            }
        }
        let file = self.open_file(path)?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists), and as [`create_file`](Self::create_file).
    pub fn create_new_file(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        self.create_at(path, &self.walk(path, LastLink::Name)?)
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file), and damage.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let mut file = self.open_file(&path)?;
        let mut contents = Vec::new();
        match file.read_to_end(&mut contents) {
            Ok(_) => Ok(contents),
            Err(error) => Err(Error::from_io(path.as_ref(), error)),
        }
    }

    /// Writes a file anew. A crash before the next sync or commit may leave the old contents, or a part of the new ones.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file).
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut file = self.create_file(&path)?;
        file.write_all(contents.as_ref()).map_err(|error| Error::from_io(path.as_ref(), error))?;
        file.close()
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::NotADirectory`](crate::ErrorKind::NotADirectory).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, Error> {
        let path = path.as_ref();
        match self.walk(path, LastLink::Follow)?.target(path)? {
            (directory, FileType::Directory) => Ok(ReadDir::new(&self.0, path.to_owned(), directory)),
            (other, _) => Err(Error::at(path)(FsError::NotADirectory(other))),
        }
    }

    /// The attributes of what a path leads to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attributes, Error> {
        let path = path.as_ref();
        self.attributes(path, LastLink::Follow)
    }

    /// The attributes of what has a name, of a symbolic link its own.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attributes, Error> {
        let path = path.as_ref();
        self.attributes(path, LastLink::Keep)
    }

    /// Changes attributes: permissions, owner, times. Returns all of them as they are then.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::NotPermitted`](crate::ErrorKind::NotPermitted) for
    /// an immutable file.
    pub fn set_metadata(
        &self,
        path: impl AsRef<Path>,
        change: &AttributeChange,
    ) -> Result<Attributes, Error> {
        let path = path.as_ref();
        let id = self.walk(path, LastLink::Follow)?.inode(path)?;
        self.0.filesystem.set_attributes(id, change).map_err(Error::at(path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists), [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the one
    /// above is not there.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.walk(path, LastLink::Name)?;
        self.create_named(path, &place, place.name_of_new(path), &new_inode(DIRECTORY_MODE))
    }

    /// Makes a directory and those above it that are not there.
    ///
    /// # Errors
    /// [`ErrorKind::NotADirectory`](crate::ErrorKind::NotADirectory), [`ErrorKind::Exists`](crate::ErrorKind::Exists) if
    /// something else has the name.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let above = match self.create_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => path.parent().ok_or(error)?,
            made => return self.unless_directory(path, made),
        };
        self.create_dir_all(above)?;
        self.unless_directory(path, self.create_dir(path))
    }

    /// Passes over an error if there is a directory already.
    fn unless_directory(&self, path: &Path, made: Result<(), Error>) -> Result<(), Error> {
        made.or_else(|error| match self.metadata(path) {
            Ok(found) if found.kind == FileType::Directory => Ok(()),
            _ => Err(error),
        })
    }

    /// Removes a file, a symbolic link or a special file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::IsADirectory`](crate::ErrorKind::IsADirectory).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.walk(path, LastLink::Name)?;
        place.target(path)?;
        self.0.filesystem.unlink(place.directory, place.name_of_file(path)?).map_err(Error::at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::NotEmpty`](crate::ErrorKind::NotEmpty),
    /// [`ErrorKind::NotADirectory`](crate::ErrorKind::NotADirectory).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.walk(path, LastLink::Name)?;
        self.0
            .filesystem
            .remove_directory(place.directory, place.name_of_removed(path)?)
            .map_err(Error::at(path))
    }

    /// Gives what has one name another one, in place of what may have that.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::NotEmpty`](crate::ErrorKind::NotEmpty) for a
    /// directory that would be replaced, [`ErrorKind::CrossSubvolume`](crate::ErrorKind::CrossSubvolume).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Error> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (old, new) = (self.walk(from, LastLink::Name)?, self.walk(to, LastLink::Name)?);
        let (old_name, new_name) = (old.name_of_renamed(from)?, new.name_of_renamed(to)?);
        let (id, kind) = old.target(from)?;
        if new.is_of_directory() && kind != FileType::Directory {
            return Err(Error::at(to)(FsError::NotADirectory(id)));
        }
        let renamed =
            self.0.filesystem.rename(old.directory, old_name, new.directory, new_name, RenameMode::Replace);
        renamed.map_err(Error::at(from))
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), [`ErrorKind::Exists`](crate::ErrorKind::Exists),
    /// [`ErrorKind::CrossSubvolume`](crate::ErrorKind::CrossSubvolume).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<(), Error> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let id = self.walk(original, LastLink::Keep)?.inode(original)?;
        let place = self.walk(link, LastLink::Name)?;
        let linked = self.0.filesystem.link(id, place.directory, place.name_of_link(link)?);
        linked.map(drop).map_err(Error::at(link))
    }

    /// Makes a symbolic link. The target need not be there.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<(), Error> {
        let link = link.as_ref();
        let place = self.walk(link, LastLink::Name)?;
        let new = NewInode { target: Some(bytes(target.as_ref())), ..new_inode(LINK_MODE) };
        self.create_named(link, &place, place.name_of_link(link), &new)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = path.as_ref();
        let id = self.walk(path, LastLink::Keep)?.inode(path)?;
        let target = self.0.filesystem.read_link(id).map_err(Error::at(path))?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
    }

    /// The extended attributes of what a path leads to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Xattr>, Error> {
        let path = path.as_ref();
        let id = self.walk(path, LastLink::Follow)?.inode(path)?;
        self.0.filesystem.xattrs(id).map_err(Error::at(path))
    }

    /// Sets an extended attribute, `user.comment` for one, or removes it.
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`](crate::ErrorKind::NoAttribute) if it is to be removed and not there,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace) if it does not fit into a tree block.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &str, value: Option<&[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let (id, name) = (self.walk(path, LastLink::Follow)?.inode(path)?, name.as_bytes());
        let changed = match value {
            Some(value) => self.0.filesystem.set_xattr(id, name, value, XattrMode::Any),
            None => self.0.filesystem.remove_xattr(id, name),
        };
        changed.map_err(Error::at(path))
    }

    /// The subvolumes and snapshots of the pool.
    ///
    /// # Errors
    /// Damage of the pool.
    pub fn subvolumes(&self) -> Result<Vec<Subvolume>, Error> {
        self.0.filesystem.subvolumes().map_err(Error::of_pool)
    }

    /// Makes a subvolume.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir).
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.walk(path, LastLink::Name)?;
        let new = new_inode(DIRECTORY_MODE);
        let made = self.0.filesystem.create_subvolume(place.directory, place.name_of_new(path)?, &new);
        made.map(drop).map_err(Error::at(path))
    }

    /// Makes a snapshot of the subvolume whose root directory a path leads to, as it is now, and commits.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `source` is no subvolume,
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists).
    pub fn snapshot(
        &self,
        source: impl AsRef<Path>,
        path: impl AsRef<Path>,
        read_only: bool,
    ) -> Result<(), Error> {
        let (source, path) = (source.as_ref(), path.as_ref());
        let id = self.walk(source, LastLink::Follow)?.inode(source)?;
        if id != InodeId::root_of(id.tree) {
            return Err(Error::at(source)(FsError::NotASubvolume(bytes(source).to_vec())));
        }
        let place = self.walk(path, LastLink::Name)?;
        let made = self.0.filesystem.snapshot(id.tree, place.directory, place.name_of_new(path)?, read_only);
        made.map(drop).map_err(Error::at(path))
    }

    /// Deletes a subvolume or snapshot with all that it holds. Its space comes back in the background.
    ///
    /// # Errors
    /// [`ErrorKind::NotEmpty`](crate::ErrorKind::NotEmpty) while it holds other subvolumes.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.walk(path, LastLink::Name)?;
        self.0
            .filesystem
            .delete_subvolume(place.directory, place.name_of_removed(path)?)
            .map_err(Error::at(path))
    }

    fn walk(&self, path: &Path, last: LastLink) -> Result<Place, Error> {
        walk(&self.0.filesystem, path, last)
    }

    fn attributes(&self, path: &Path, last: LastLink) -> Result<Attributes, Error> {
        let id = self.walk(path, last)?.inode(path)?;
        self.0.filesystem.attributes(id).map_err(Error::at(path))
    }

    fn opened(&self, path: &Path, id: InodeId) -> Result<File, Error> {
        let attributes = self.0.filesystem.attributes(id).map_err(Error::at(path))?;
        let invalid = Error::at(path);
        match attributes.kind {
            FileType::Regular => {
                let open = self.0.filesystem.open_known(&attributes).map_err(Error::at(path))?;
                Ok(File::new(&self.0, path.to_owned(), open))
            }
            FileType::Directory => Err(invalid(FsError::IsADirectory(id))),
            _ => Err(invalid(FsError::NotAFile(id))),
        }
    }

    /// Makes a regular file at a place.
    fn create_at(&self, path: &Path, place: &Place) -> Result<File, Error> {
        let name = place.name_of_file(path)?;
        let made = self.0.filesystem.create_open(place.directory, name, &new_inode(FILE_MODE));
        let (_, open) = made.map_err(Error::at(path))?;
        Ok(File::new(&self.0, path.to_owned(), open))
    }

    fn create_named(
        &self,
        path: &Path,
        place: &Place,
        name: Result<&[u8], Error>,
        new: &NewInode<'_>,
    ) -> Result<(), Error> {
        self.0.filesystem.create(place.directory, name?, new).map(drop).map_err(Error::at(path))
    }
}

/// An inode of the process's user.
fn new_inode(mode: u32) -> NewInode<'static> {
    NewInode { mode, uid: geteuid().as_raw(), gid: getegid().as_raw(), ..NewInode::default() }
}
