//! Files of the destination.

use super::count;
use super::durable::damaged;
use super::metadata;
use super::target::Directory;
use super::unfinished::{Unfinished, exists};
use super::{Context, Failure};
use brindle_fs::Attributes;
use rustix::io::Errno;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file of the destination. After its last part it gets owner, mode, times and its names; or, if one of its parts was not
/// done, nothing is left of it.
pub(super) struct OutputFile<'c> {
    pub(super) context: &'c Context<'c>,
    unfinished: Unfinished,
    /// Attributes of the finished file.
    pub(super) attributes: Attributes,
    /// For messages.
    pub(super) path: Vec<u8>,
    name: Vec<u8>,
    parts_left: AtomicU64,
    /// Something of it could not be read.
    is_damaged: AtomicBool,
    links: SharedLinks<'c>,
    /// Kept, so that it goes later.
    directory: Arc<Directory<'c>>,
}

/// The other names of a file that may not be there yet.
pub(super) type SharedLinks<'c> = Arc<Mutex<Links<'c>>>;

/// A further name of a file: its directory, and its name there.
pub(super) type WaitingName<'c> = (Arc<Directory<'c>>, Vec<u8>);

/// State of a file, for threads that give it another name.
pub(super) enum Links<'c> {
    /// Filling; the file gets these names when that is done.
    Waiting(Vec<WaitingName<'c>>),
    /// Finished; the file has its first name.
    Published,
    /// Failed; the file could not be made.
    Lost,
}

impl<'c> OutputFile<'c> {
    /// Makes an empty file, to be filled in `parts` parts; of the right size if data alone would not give it that.
    pub(super) fn make(
        context: &'c Context<'c>,
        directory: Arc<Directory<'c>>,
        name: &[u8],
        attributes: Attributes,
        parts: u64,
    ) -> Result<Self, Errno> {
        // It will be found out in the end, but better before all is copied.
        if !context.options.replaces() && !directory.is_new() && exists(&*directory, name) {
            return Err(Errno::EXIST);
        }
        let output = Self {
            context,
            unfinished: Unfinished::make(&*directory, context.unnamed_files.load(Ordering::Relaxed))?,
            attributes,
            path: directory.path_of(name),
            name: name.to_vec(),
            parts_left: AtomicU64::new(parts),
            is_damaged: AtomicBool::new(false),
            links: Arc::new(Mutex::new(Links::Waiting(Vec::new()))),
            directory,
        };
        if output.may_have_holes() {
            output.set_size()?;
        }
        Ok(output)
    }

    /// The file itself.
    pub(super) fn file(&self) -> &File {
        &self.unfinished.file
    }

    /// State for threads that find other names of the file.
    pub(super) fn links(&self) -> SharedLinks<'c> {
        Arc::clone(&self.links)
    }

    /// Returns true if writing all data leaves something unwritten. The bytes of an inode are those of its extents:
    /// with as many as its size it has no hole.
    pub(super) fn may_have_holes(&self) -> bool {
        self.attributes.disk_bytes < self.attributes.size
    }

    /// Gives the file its size, whatever has been written.
    pub(super) fn set_size(&self) -> Result<(), Errno> {
        rustix::fs::ftruncate(self.file(), self.attributes.size)
    }

    /// One of its parts is done: written, but for what can't be read.
    pub(super) fn part_is_done(&self) {
        self.parts_left.fetch_sub(1, Ordering::Relaxed);
    }

    /// Something of it can't be read: it is not whole, whatever its size.
    pub(super) fn is_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Makes its contents durable, where that has to be done file by file.
    fn sync(&self) -> Result<(), Errno> {
        if self.context.syncs_each.load(Ordering::Relaxed) { rustix::fs::fsync(self.file()) } else { Ok(()) }
    }

    /// Gives the file its name; returns true if it has it.
    fn publish(&mut self) -> bool {
        if *self.parts_left.get_mut() > 0 {
            if let Err(error) = self.unfinished.discard(&*self.directory) {
                self.context.fail(&self.path, Failure::Discard(error));
            }
            return false;
        }
        metadata::apply_but_times(self.context, self.file(), &self.attributes, &self.path);
        let replaces = self.context.options.replaces();
        let published =
            self.sync().and_then(|()| self.unfinished.publish(&*self.directory, &self.name, replaces));
        match published {
            Ok(()) => {
                count(&self.context.counts.files);
                let is_damaged = *self.is_damaged.get_mut();
                let attributes = if is_damaged { damaged(&self.attributes) } else { self.attributes };
                self.directory.has_finished(&self.name, attributes);
            }
            Err(error) => {
                // It can't be left under another name either.
                let _ = self.unfinished.discard(&*self.directory);
                self.context.fail(&self.path, Failure::Make(error));
                return false;
            }
        }
        true
    }

    /// Gives the file its name, or leaves nothing of it; returns true if it has it, and the further names that have been
    /// waiting for that.
    pub(super) fn finish(&mut self) -> (bool, Vec<WaitingName<'c>>) {
        let is_published = self.publish();
        let after = if is_published { Links::Published } else { Links::Lost };
        match std::mem::replace(&mut *lock(&self.links), after) {
            Links::Waiting(names) => (is_published, names),
            Links::Published | Links::Lost => (is_published, Vec::new()),
        }
    }

    /// Gives the finished file a further name; true if it has not had it before.
    pub(super) fn link(&self, directory: &Directory<'c>, name: &[u8]) -> Result<bool, Errno> {
        directory.link(name, &*self.directory, &self.name)
    }
}

/// State of a file's names; a thread that panicked has left nothing half done there.
pub(super) fn lock<'a, 'c>(links: &'a SharedLinks<'c>) -> std::sync::MutexGuard<'a, Links<'c>> {
    links.lock().unwrap_or_else(PoisonError::into_inner)
}
