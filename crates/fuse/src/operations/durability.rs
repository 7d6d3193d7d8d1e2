//! Durability that is asked for before an operation: by how its file was opened (`O_SYNC`, `O_DSYNC`), how the mount was made
//! (`sync`, `dirsync`), or by attributes of inodes (`chattr +S`, `+D`). Such an operation is durable before it is answered.
//! The syncs are those of fsync(2), which callers that come together share.
//!
//! Pages that the kernel writes back from its cache are never synced here: after a write(2) that asks for durability, and
//! after msync(2), the kernel sends an FSYNC. It sends none after a write around its cache, whose `flags` tell. It knows
//! nothing of `chattr +S`, so that such a file is opened past the cache. Names and attributes are changed without any word
//! of durability.

use super::{Operations, number};
use crate::options::Synchronous;
use brindle_fs::{Attributes, FileType, FsError, InodeFlags, InodeId};
use brindle_uapi::verb::Effect;
use rustix::io::Errno;

impl Operations {
    /// Makes contents that have just changed durable, if the request or the file is one for which that is due.
    pub(crate) fn settle_contents(&self, node: u64, handle: u64, is_asked: bool) -> Result<(), Errno> {
        let is_due = is_asked
            || self.synchronous == Synchronous::Everything
            || self.handles.get(handle).is_some_and(|handle| handle.is_synchronous());
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
        if attributes.kind != FileType::Regular {
            return number(self.filesystem.sync_attributes(attributes.id));
        }
        let file = match self.filesystem.open_known(attributes) {
            // Without a name, it does not outlive a crash.
            Err(FsError::NoInode(_)) => return Ok(()),
            opened => number(opened)?,
        };
        let synced = number(self.filesystem.sync_file(&file));
        number(self.filesystem.close_file(file)).and(synced)
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
