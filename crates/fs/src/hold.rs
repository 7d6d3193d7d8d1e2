//! Inodes that are kept: an [`InodeHold`] is a counted use of an inode, which stays for as long, also without a name.
//!
//! All that keeps an inode has one. An [`OpenFile`](crate::OpenFile) has one for its file, a caller for a directory that
//! it has open, and a server for what its kernel knows by a number and may ask for after the last name is gone: working
//! directories, files that a rename has replaced.
//!
//! **States.** The count rises from 0 only while the inode has a name ([`acquire`](Filesystem::acquire)), or as it is made.
//! The operation that takes the last name of an inode with a count leaves the inode in its tree, with the mark of an orphan,
//! from the same transaction on. The hold that goes last removes it: at once if it is given to
//! [`release`](Filesystem::release), in the background if it is dropped, for instance by a thread that must not wait.
//!
//! **A crash** leaves the mark, and the next opening of the pool removes what bears it. So a hold costs no more than its
//! inode's space, and no longer than the mount: it is for the holder to see that holds end.
//!
//! A filesystem that is only read loses no names; its holds count nothing.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inodes::Inode;
use crate::orphan::OrphanQueue;
use std::ops::Deref;
use std::sync::Arc;

/// A counted use of an inode.
#[derive(Debug)]
#[must_use = "the inode is kept as long as this lasts"]
pub struct InodeHold {
    inode: Arc<Inode>,
    /// The place for an inode that has to go; `None` if nothing is counted.
    orphans: Option<Arc<OrphanQueue>>,
}

impl InodeHold {
    /// Gives the count back. Returns the inode, and true if it has to be removed; `None` if nothing was counted.
    fn end(mut self) -> Option<(Arc<Inode>, bool)> {
        self.orphans.take()?;
        let has_to_go = self.inode.give_back();
        Some((Arc::clone(&self.inode), has_to_go))
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        if let Some(orphans) = self.orphans.take()
            && self.inode.give_back()
        {
            orphans.look_at(self.inode.id().tree);
        }
    }
}

impl Deref for InodeHold {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Filesystem {
    /// Keeps an inode that has a name, or is kept already.
    pub fn acquire(&self, id: InodeId) -> Result<InodeHold, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let inode = self.core.inode(id);
        if self.core.orphans().is_none() {
            return Ok(InodeHold { inode, orphans: None });
        }
        let subvolume = self.core.subvolume_state(id.tree)?;
        // Held until the use is counted: the deletion of the subvolume looks at the count.
        let access = subvolume.hold();
        let mut names = inode.names();
        if names.opens == 0 && !id.is_empty_subvolume() {
            if access.is_deleted {
                return Err(FsError::DeletedSubvolume(id.tree));
            }
            if self.quick_attributes(id)?.nlink == 0 {
                return Err(FsError::NoInode(id));
            }
        }
        names.opens += 1;
        drop(names);
        Ok(self.counted(inode))
    }

    /// The hold of a use that is counted already.
    pub(crate) fn counted(&self, inode: Arc<Inode>) -> InodeHold {
        InodeHold { inode, orphans: self.core.orphans().map(Arc::clone) }
    }

    /// Ends a use; the last one removes an inode that has no name. Contents that replace all earlier ones are written
    /// back.
    pub fn release(&self, hold: InodeHold) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let is_unnamed = hold.orphans.is_none() || hold.names().is_unnamed;
        let written = if is_unnamed { Ok(()) } else { self.write_back_replaced(&hold) };
        written.and(self.let_go(hold))
    }

    /// Like [`release`](Self::release), but contents stay in memory.
    pub(crate) fn let_go(&self, hold: InodeHold) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        match hold.end() {
            Some((inode, true)) => self.remove_unnamed(&inode),
            _ => Ok(()),
        }
    }
}
