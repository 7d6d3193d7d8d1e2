//! Inodes: their use, attributes, flags and extended attributes.

use crate::attributes::{Attributes, InodeId};
use crate::change::attributes::AttributeChange;
use crate::change::privileges::SetIdRight;
use crate::change::xattr::XattrMode;
use crate::core::inode_hold::InodeHold;
use crate::core::inodes::Inode;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::file_flags::FileFlags;
use crate::filesystem::Filesystem;
use crate::items::xattr::Xattr;
use std::sync::Arc;

impl Filesystem {
    /// Attributes of an inode.
    pub fn attributes(&self, id: InodeId) -> Result<Attributes, FsError> {
        self.parts.items.attributes(id)
    }

    /// Attributes of several inodes, in the order asked for. Faster than one by one where their numbers lie together.
    pub fn attributes_of(&self, ids: &[InodeId]) -> Vec<Result<Attributes, FsError>> {
        self.parts.items.attributes_of(ids)
    }

    /// The flags of an inode (`FS_IOC_GETFLAGS`).
    pub fn flags(&self, id: InodeId) -> Result<FileFlags, FsError> {
        self.parts.items.flags(id)
    }

    /// The value of an extended attribute, if there is one.
    pub fn xattr(&self, id: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        self.parts.items.xattr(id, name)
    }

    /// Every extended attribute, in the order of the hashes of their names.
    pub fn xattrs(&self, id: InodeId) -> Result<Vec<Xattr>, FsError> {
        self.parts.items.xattrs(id)
    }

    /// Keeps an inode that has a name, or is kept already.
    pub fn acquire(&self, id: InodeId) -> Result<InodeHold, FsError> {
        self.parts.holds.acquire(id)
    }

    /// Ends a use; the last one removes an inode that has no name. Contents that replace all earlier ones are written
    /// back.
    pub fn release(&self, hold: InodeHold) -> Result<(), FsError> {
        self.parts.holds.release(hold)
    }

    /// Opens a regular file, or a symbolic link to read its target.
    pub fn open_file(&self, id: InodeId) -> Result<OpenFile, FsError> {
        self.parts.holds.open_file(id)
    }

    /// Opens a file whose attributes the caller has just read; [`FsError::NoInode`] if it has lost its last name since.
    pub fn open_known(&self, attributes: &Attributes) -> Result<OpenFile, FsError> {
        self.parts.holds.open_known(attributes)
    }

    /// Closes a file: removes an inode that has lost its last name if this was its last opening, and writes contents back
    /// that replace all earlier ones.
    pub fn close_file(&self, file: OpenFile) -> Result<(), FsError> {
        self.parts.holds.close_file(file)
    }

    /// Changes attributes, and returns all of them as they are then.
    pub fn set_attributes(&self, id: InodeId, change: &AttributeChange) -> Result<Attributes, FsError> {
        self.parts.changes.set_attributes(id, change)
    }

    /// Refuses a change of attributes that the inode's flags forbid; returns the attributes as they are.
    pub fn check_change(&self, id: InodeId, change: &AttributeChange) -> Result<Attributes, FsError> {
        self.parts.changes.check_change(id, change)
    }

    /// Returns true if the inode may only be added to.
    pub fn is_append_only(&self, id: InodeId) -> Result<bool, FsError> {
        self.parts.changes.is_append_only(id)
    }

    /// Refuses if existing contents of the inode can't be changed: it is immutable or append-only.
    pub fn check_overwritable(&self, id: InodeId) -> Result<(), FsError> {
        self.parts.changes.check_overwritable(id)
    }

    /// Refuses if the inode's contents or attributes can't be changed: what an open to write asks.
    pub fn check_writable(&self, id: InodeId) -> Result<(), FsError> {
        self.parts.changes.check_writable(id)
    }

    /// Updates the access time after a read of the inode, if the mount wants that.
    pub fn note_access(&self, id: InodeId) -> Result<(), FsError> {
        self.parts.changes.note_access(id)
    }

    /// Sets the flags of an inode (`FS_IOC_SETFLAGS`). Permissions are the caller's business.
    pub fn set_flags(&self, id: InodeId, flags: FileFlags) -> Result<(), FsError> {
        self.parts.changes.set_flags(id, flags)
    }

    /// Takes away the privileges that a regular file loses when its contents change. To be called before the change;
    /// `right` is asked only if the file has a set-user-id or set-group-id bit. Returns true if anything was taken away.
    pub fn drop_privileges(
        &self,
        inode: &Arc<Inode>,
        right: impl FnOnce(&Attributes) -> SetIdRight,
    ) -> Result<bool, FsError> {
        self.parts.changes.drop_privileges(inode, right)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, id: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<(), FsError> {
        self.parts.changes.set_xattr(id, name, value, mode)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, id: InodeId, name: &[u8]) -> Result<(), FsError> {
        self.parts.changes.remove_xattr(id, name)
    }
}
