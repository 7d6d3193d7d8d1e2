//! Inodes that are kept: an [`InodeHold`] is a counted use of an inode, which stays for as long, also without a name.
//!
//! All that keeps an inode has one. An [`OpenFile`](crate::OpenFile) has one for its file, a caller for a directory that
//! it has open, and a server for what its kernel knows by a number and may ask for after the last name is gone: working
//! directories, files that a rename has replaced.
//!
//! **States.** The count rises from 0 only while the inode has a name ([`acquire`](crate::Filesystem::acquire)), or as it is made.
//! The operation that takes the last name of an inode with a count leaves the inode in its tree, with the mark of an orphan,
//! from the same transaction on. The hold that goes last removes it: at once if it is given to
//! [`release`](crate::Filesystem::release), in the background if it is dropped, for instance by a thread that must not wait.
//!
//! **A crash** leaves the mark, and the next opening of the pool removes what bears it. So a hold costs no more than its
//! inode's space, and no longer than the mount: it is for the holder to see that holds end.
//!
//! A filesystem that is only read loses no names; its holds count nothing.

use crate::attributes::{Attributes, InodeId};
use crate::core::Core;
use crate::core::inode_hold::InodeHold;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::items::InodeItems;
use crate::orphan::Orphans;
use brindle_ondisk::item::FileType;
use std::sync::Arc;

/// Counts uses of inodes, those by open files included.
#[derive(Debug)]
pub(crate) struct Holds {
    core: Arc<Core>,
    items: Arc<InodeItems>,
    data: Arc<FileData>,
    orphans: Arc<Orphans>,
}

impl Holds {
    pub(crate) fn new(
        core: Arc<Core>,
        items: Arc<InodeItems>,
        data: Arc<FileData>,
        orphans: Arc<Orphans>,
    ) -> Self {
        Self { core, items, data, orphans }
    }

    pub(crate) fn acquire(&self, id: InodeId) -> Result<InodeHold, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let inode = self.core.inode(id);
        if self.core.orphans().is_none() {
            return Ok(InodeHold::new(inode, None));
        }
        let subvolume = self.core.subvolume_state(id.tree)?;
        // Held until the use is counted: the deletion of the subvolume, and its end, look at the count.
        let access = subvolume.hold();
        let mut names = inode.names();
        if names.opens == 0 && !id.is_empty_subvolume() {
            if access.is_gone {
                return Err(FsError::DeletedSubvolume(id.tree));
            }
            if self.items.quick_attributes(id)?.nlink == 0 {
                return Err(FsError::NoInode(id));
            }
        }
        names.opens += 1;
        drop(names);
        Ok(self.counted(inode))
    }

    /// The hold of a use that is counted already.
    pub(crate) fn counted(&self, inode: Arc<Inode>) -> InodeHold {
        InodeHold::new(inode, self.core.orphans().map(Arc::clone))
    }

    pub(crate) fn release(&self, hold: InodeHold) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let is_unnamed = !hold.is_counted() || hold.names().is_unnamed;
        let written = if is_unnamed { Ok(()) } else { self.data.write_back_replaced(&hold) };
        written.and(self.let_go(hold))
    }

    /// Like [`release`](Self::release), but contents stay in memory.
    pub(crate) fn let_go(&self, hold: InodeHold) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        match hold.end() {
            Some((inode, true)) => self.orphans.remove_unnamed(&inode),
            _ => Ok(()),
        }
    }
}

impl Holds {
    pub(crate) fn open_file(&self, id: InodeId) -> Result<OpenFile, FsError> {
        self.open_known(&self.items.quick_attributes(id)?)
    }

    pub(crate) fn open_known(&self, attributes: &Attributes) -> Result<OpenFile, FsError> {
        self.open_held(attributes, self.acquire(attributes.id)?)
    }

    pub(crate) fn close_file(&self, file: OpenFile) -> Result<(), FsError> {
        self.release(file.into_hold())
    }

    /// Ends the use of a file that was opened for one operation: as [`close_file`](Self::close_file), but for contents,
    /// which stay in memory.
    pub(crate) fn end_use(&self, file: OpenFile) -> Result<(), FsError> {
        self.let_go(file.into_hold())
    }

    /// Makes an open file of an inode that is held.
    pub(crate) fn open_held(&self, attributes: &Attributes, inode: InodeHold) -> Result<OpenFile, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        let id = attributes.id;
        match attributes.kind {
            FileType::Regular | FileType::Symlink => {}
            FileType::Directory => return Err(FsError::IsADirectory(id)),
            _ => return Err(FsError::NotAFile(id)),
        }
        if inode.data.size().is_none() {
            // Attributes read before may be older than a write by a thread that has finished with the file since;
            // from here on the inode stays in memory.
            let size =
                if self.core.is_writable() { self.items.attributes(id)?.size } else { attributes.size };
            inode.data.load(size);
        }
        Ok(OpenFile::new(id, inode))
    }
}
