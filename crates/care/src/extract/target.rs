//! Target directories, by descriptor.

use super::count;
use super::listing::joined;
use super::metadata;
use super::standing::kind_name;
use super::unfinished::is_temporary_name;
use super::{Context, ExtractError, Failure};
use brindle_fs::Attributes;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, chmodat, flock, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A file that has its name, and gets its times when it is durable.
pub(super) struct Finished<'c> {
    pub(super) directory: Arc<Directory<'c>>,
    pub(super) name: Vec<u8>,
    pub(super) attributes: Attributes,
}

/// Message to the thread that makes files durable.
pub(super) enum Message<'c> {
    /// A file is finished.
    Finished(Finished<'c>),
    /// There are no more.
    End,
}

/// Sender that sends the last message when it goes.
pub(super) struct LastMessage<'c>(pub(super) SyncSender<Message<'c>>);

impl Drop for LastMessage<'_> {
    fn drop(&mut self) {
        // Without a receiver it is not needed.
        let _ = self.0.send(Message::End);
    }
}

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
    /// The way of finished files to the thread that makes them durable.
    finished: SyncSender<Message<'c>>,
    /// Kept, so that it goes later.
    _parent: Option<Arc<Directory<'c>>>,
}

impl<'c> Directory<'c> {
    /// The directory that a tree goes into; made if it is not there.
    pub(super) fn open_destination(
        context: &'c Context<'c>,
        finished: SyncSender<Message<'c>>,
        path: &Path,
        attributes: &Attributes,
    ) -> Result<Self, ExtractError> {
        let is_ours = match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => context.options.replaces(),
            Err(source) => return Err(ExtractError::Make { path: path.to_owned(), source }),
        };
        let mut directory = Self::open_existing(context, finished, path)?;
        directory.claim(path)?;
        directory.clean();
        directory.attributes = is_ours.then_some(*attributes);
        Ok(directory)
    }

    /// Keeps other extractions off, if this one goes on with what is there, and such a one off otherwise.
    fn claim(&self, path: &Path) -> Result<(), ExtractError> {
        let wish = match self.context.options.resume {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match flock(&self.descriptor, wish) {
            Err(Errno::WOULDBLOCK) => Err(ExtractError::Busy(path.to_owned())),
            // Not every filesystem has locks.
            _ => Ok(()),
        }
    }

    /// Removes unfinished files of an extraction that was killed, if this one goes on with it.
    fn clean(&self) {
        if !self.context.options.resume {
            return;
        }
        let names = Dir::read_from(&self.descriptor).into_iter().flatten().flatten();
        for entry in names.filter(|entry| is_temporary_name(entry.file_name().to_bytes())) {
            let name = entry.file_name();
            let is_file =
                self.stat(name.to_bytes()).is_some_and(|found| kind_of(&found) == FileType::RegularFile);
            if is_file {
                if let Err(error) = unlinkat(&self.descriptor, name, AtFlags::empty()) {
                    self.context.fail(&self.path_of(name.to_bytes()), Failure::Discard(error));
                }
            }
        }
    }

    /// Tells that a file has its name, and is to be made durable.
    pub(super) fn has_finished(self: &Arc<Self>, name: &[u8], attributes: Attributes) {
        let file = Finished { directory: Arc::clone(self), name: name.to_vec(), attributes };
        self.finished.send(Message::Finished(file)).expect("the receiver outlives all that finish files");
    }

    /// A directory that is there, and stays as it is.
    pub(super) fn open_existing(
        context: &'c Context<'c>,
        finished: SyncSender<Message<'c>>,
        path: &Path,
    ) -> Result<Self, ExtractError> {
        let descriptor = openat(CWD, path, DIRECTORY, Mode::empty())
            .map_err(|source| ExtractError::Open { path: path.to_owned(), source })?;
        Ok(Self {
            context,
            descriptor,
            path: Vec::new(),
            is_new: false,
            attributes: None,
            finished,
            _parent: None,
        })
    }

    /// Makes a directory in this one; one that is there is used.
    pub(super) fn make_directory(
        self: &Arc<Self>,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<Self, Failure> {
        let made = match mkdirat(&self.descriptor, name, Mode::RWXU) {
            Err(Errno::EXIST) => self.open_way(name)?,
            made => made.map(|()| true),
        };
        let is_new = made.map_err(Failure::Make)?;
        let descriptor = openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
            .map_err(Failure::Make)?;
        count(&self.context.counts.directories);
        let made = Self {
            context: self.context,
            descriptor,
            path: self.path_of(name),
            is_new,
            attributes: Some(*attributes),
            finished: self.finished.clone(),
            _parent: Some(Arc::clone(self)),
        };
        made.clean();
        Ok(made)
    }

    /// Makes a directory of a name that is taken, or makes the one of that name accessible; true if it is new.
    fn open_way(&self, name: &[u8]) -> Result<Result<bool, Errno>, Failure> {
        let options = self.context.options;
        match self.stat(name) {
            Some(found) if kind_of(&found) == FileType::Directory => {
                // A finished one may keep its owner out, unless that is root.
                let mode = Mode::from_raw_mode(found.st_mode & 0o7777);
                if options.resume && !options.is_root && !mode.contains(Mode::RWXU) {
                    let opened = chmodat(&self.descriptor, name, mode | Mode::RWXU, AtFlags::empty());
                    return Ok(opened.map(|()| false));
                }
                Ok(Ok(false))
            }
            Some(_) if options.overwrite => {
                let removed = unlinkat(&self.descriptor, name, AtFlags::empty());
                Ok(removed.and_then(|()| mkdirat(&self.descriptor, name, Mode::RWXU)).map(|()| true))
            }
            Some(found) => Err(Failure::InTheWay {
                found: kind_name(kind_of(&found)),
                advice: "; --overwrite replaces it",
            }),
            None => Ok(Err(Errno::EXIST)),
        }
    }

    fn stat(&self, name: &[u8]) -> Option<Stat> {
        statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Gives something a further name in this directory; true if it has not had it before.
    pub(super) fn link(&self, name: &[u8], from: impl AsFd, from_name: &[u8]) -> Result<bool, Errno> {
        let from = from.as_fd();
        if self.context.options.resume {
            if let (Some(found), Ok(wanted)) =
                (self.stat(name), statat(from, from_name, AtFlags::SYMLINK_NOFOLLOW))
            {
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) {
                    return Ok(false);
                }
            }
        }
        self.replacing(name, || rustix::fs::linkat(from, from_name, self, name, AtFlags::empty()))?;
        Ok(true)
    }

    /// Makes something that must not exist yet; what is in the way goes first if it may.
    pub(super) fn replacing<T>(
        &self,
        name: &[u8],
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make() {
            Err(Errno::EXIST) if self.context.options.replaces() => {
                unlinkat(&self.descriptor, name, AtFlags::empty())?;
                make()
            }
            made => made,
        }
    }

    /// The path of a name in this directory, from the destination on.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        joined(&self.path, name)
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

fn kind_of(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
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
