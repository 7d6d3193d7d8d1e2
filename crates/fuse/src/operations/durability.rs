//! Durability that is asked for before an operation: by how its file was opened (`O_SYNC`, `O_DSYNC`), how the mount was made
//! (`sync`, `dirsync`), or by attributes of inodes (`chattr +S`, `+D`). Such an operation is durable before it is answered.
//! The syncs are those of fsync(2), which callers that come together share.
//!
//! Pages that the kernel writes back from its cache are never synced here: after a write(2) that asks for durability, and
//! after msync(2), the kernel sends an FSYNC. It sends none after a write around its cache, whose `flags` tell. It knows
//! nothing of `chattr +S`, so that such a file is opened past the cache. Names and attributes are changed without any word
//! of durability.

use super::files::Files;
use super::invalidations::Invalidations;
use super::nodes::Nodes;
use super::pages::KernelPages;
use crate::control_thread::OwnThread;
use crate::errno::number;
use crate::options::Synchronous;
use brindle_fs::{Attributes, Filesystem, FsError, InodeFlags, InodeId};
use brindle_uapi::verb::Effect;
use rustix::io::Errno;
use std::sync::Arc;

/// Durability of what the mount changes.
#[derive(Debug)]
pub(crate) struct Durability {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    invalidations: Arc<Invalidations>,
    pages: Arc<KernelPages>,
    synchronous: Synchronous,
}

impl Durability {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        files: Arc<Files>,
        invalidations: Arc<Invalidations>,
        pages: Arc<KernelPages>,
        synchronous: Synchronous,
    ) -> Self {
        Self { filesystem, nodes, files, invalidations, pages, synchronous }
    }

    /// Makes a file durable.
    pub(crate) fn sync(&self, node: u64, handle: u64) -> Result<(), Errno> {
        self.files.with_file(node, handle, |file| {
            // The kernel has told the times of all that it has written back.
            self.filesystem.confirm_times(file.inode())?;
            self.filesystem.sync_file(file)
        })?;
        self.invalidations.correct_attributes(node);
        Ok(())
    }

    /// Makes a directory durable, and everything that was done to the names in it.
    pub(crate) fn sync_directory(&self, node: u64) -> Result<(), Errno> {
        number(self.filesystem.sync_directory(self.nodes.inode(node)?))
    }

    /// Makes everything durable that the kernel has told us of.
    pub(super) fn sync_all(&self) -> Result<(), FsError> {
        let round = self.invalidations.begin_round();
        self.filesystem.sync()?;
        self.invalidations.end_round(round);
        Ok(())
    }

    /// Makes everything durable, for syncfs(2): the kernel has written back its pages before.
    pub(crate) fn sync_filesystem(&self) -> Result<(), Errno> {
        number(self.sync_all())
    }

    /// Makes everything durable, what the kernel holds of open files included.
    pub(super) fn sync_with_pages(&self, own: &OwnThread) -> Result<(), Errno> {
        self.pages.gather(own, None);
        number(self.filesystem.sync())
    }

    /// Makes everything durable as [`sync_with_pages`](Self::sync_with_pages) does. Returns the generation of the commit.
    pub(super) fn start_sync(&self, own: &OwnThread) -> Result<u64, Errno> {
        self.sync_with_pages(own)?;
        Ok(self.filesystem.pool().superblock().generation.get())
    }

    /// Makes contents that have just changed durable, if the request or the file is one for which that is due.
    pub(crate) fn settle_contents(&self, node: u64, handle: u64, is_asked: bool) -> Result<(), Errno> {
        let is_due = is_asked
            || self.synchronous == Synchronous::Everything
            || self.files.get(handle).is_some_and(|handle| handle.is_synchronous());
        if is_due { self.sync(node, handle) } else { Ok(()) }
    }

    /// Makes a change of names in these directories durable, if that is due.
    pub(super) fn settle_names(&self, directories: &[InodeId]) -> Result<(), Errno> {
        let is_marked = |id: &InodeId| {
            let marks = InodeFlags::SYNC | InodeFlags::DIRSYNC;
            self.filesystem.attributes(*id).is_ok_and(|attributes| attributes.flags.intersects(marks))
        };
        let is_due = self.synchronous != Synchronous::Nothing || directories.iter().any(is_marked);
        let mut due = directories.iter().filter(|_| is_due);
        due.try_for_each(|directory| number(self.filesystem.sync_directory(*directory)))
    }

    /// Makes a change of an inode durable, if that is due.
    pub(super) fn settle_inode(&self, attributes: &Attributes) -> Result<(), Errno> {
        let is_marked = attributes.flags.contains(InodeFlags::SYNC);
        if !is_marked && self.synchronous != Synchronous::Everything {
            return Ok(());
        }
        number(self.filesystem.sync_attributes(attributes.id))
    }

    /// Makes durable what an ioctl has changed, if that is due.
    pub(super) fn settle_ioctl(&self, effect: Effect) -> Result<(), Errno> {
        let is_due = match effect {
            Effect::Nothing | Effect::Change => false,
            Effect::Subvolume => self.synchronous == Synchronous::Everything,
            Effect::Names => self.synchronous != Synchronous::Nothing,
        };
        if is_due { number(self.filesystem.commit()) } else { Ok(()) }
    }
}
