//! Changing what `stat` tells.

use crate::{Attributes, Filesystem, FsError, InodeId, Timestamp};

/// What is to change of an inode's attributes; what is `None` stays.
///
/// Changing mode or owner moves the time of change. Clearing the set-user-id and set-group-id bits when the owner
/// or the contents change is the VFS' job, which does it by asking for a mode (under FUSE, unless
/// `FUSE_HANDLE_KILLPRIV` was agreed; with version 2 of that, the request says
/// [`drop_privileges`](Self::drop_privileges)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// Permissions, as in `st_mode`; type bits are not regarded. An access ACL follows.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes of a regular file: what is behind it is cut off, what it lacks reads as zeros.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<NewTime>,
    /// Last change of the contents.
    pub modified: Option<NewTime>,
    /// Last change of the inode; now, if anything changes.
    pub changed: Option<Timestamp>,
    /// Creation.
    pub created: Option<Timestamp>,
    /// Take away set-user-id, and set-group-id where the group may execute.
    pub drop_privileges: bool,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// What the clock says.
    Now,
    /// This one.
    At(Timestamp),
}

impl Filesystem {
    /// Changes attributes, and returns all of them as they are then.
    pub fn set_attributes(&self, id: InodeId, change: &AttributeChange) -> Result<Attributes, FsError> {
        let _ = (id, change);
        todo!()
    }

    /// Somebody has read from the inode: moves the time of the last access if the mount wants that.
    pub fn note_access(&self, id: InodeId) -> Result<(), FsError> {
        let _ = id;
        todo!()
    }
}
