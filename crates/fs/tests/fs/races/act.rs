//! Acts: what one thread does in a race, and what it sees.

use brindle_testing::model::{Errno, TreePath};
use brindle_testing::operations::Operation;
use std::collections::BTreeSet;

/// One act of a race. Directories and inodes are looked up before the race begins, as a program has them open or the
/// kernel remembers them; names are looked up by the act itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// An operation of the model.
    Do(Operation),
    /// A new file of a name that may be taken, written and closed (`O_CREAT | O_EXCL`).
    CreateOpen(TreePath),
    /// A name for the inode that was made without one.
    LinkUnnamed(TreePath),
    /// Looks a name up.
    Lookup(TreePath),
    /// Sees type, permissions, owner, names and size.
    Stat(TreePath),
    /// Sees the names in a directory.
    List(TreePath),
    /// Reads all of a file in one request.
    Read(TreePath),
    /// Sees the value of an extended attribute.
    GetXattr(TreePath, &'static str),
    /// Opens and closes.
    OpenClose(TreePath),
    /// Sets flags of an inode that say nothing of its contents.
    SetFlags(TreePath),
    /// Sets an access control list.
    SetAcl(TreePath),
    /// Makes the subvolume of a path read-only, or writable.
    SetReadOnly(TreePath, bool),
    /// Commits the transaction.
    Commit,
    /// Makes everything durable.
    Sync,
    /// A step of the background work.
    Background,
    /// Moves a block group, one after the other.
    Relocate,
    /// Copies a piece of the metadata.
    Defragment,
    /// Makes a snapshot of the subvolume in which the race takes place, outside of it.
    SnapshotOutside,
}

/// An answer of an act that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Bytes(Vec<u8>),
    Names(BTreeSet<Vec<u8>>),
    /// True if a name exists.
    There(bool),
    Stat {
        mode: u16,
        owner: (u32, u32),
        nlink: u32,
        size: u64,
    },
}

pub(super) type Answer = Result<Seen, Errno>;

/// The access control list that is set: of the owner, a user, the group, the mask and all others.
const LIST: [(u16, u16, u32); 5] =
    [(1, 7, u32::MAX), (2, 5, 1000), (4, 4, u32::MAX), (MASK, 6, u32::MAX), (OTHER, 1, u32::MAX)];
const OWNER: u16 = 1;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The name of the attribute that keeps it.
pub(super) const ACL: &str = "system.posix_acl_access";
/// The permissions that it comes to.
pub(super) const ACL_MODE: u16 = 0o761;

/// The value of the attribute when the permissions are these.
pub(super) fn acl(mode: u16) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in LIST {
        let permissions = match tag {
            OWNER => mode >> 6 & 7,
            MASK => mode >> 3 & 7,
            OTHER => mode & 7,
            _ => permissions,
        };
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

impl Act {
    /// The directory or file whose subvolume has to be writable.
    pub(super) fn written(&self) -> Option<TreePath> {
        let above = |path: &TreePath| path.split().map(|(above, _)| above);
        match self {
            Self::Do(Operation::Sync | Operation::SyncFile { .. } | Operation::Remount) => None,
            Self::Do(operation) if operation.changes_contents() => operation.path().cloned(),
            Self::Do(
                Operation::SetMode { path, .. }
                | Operation::SetOwner { path, .. }
                | Operation::SetTimes { path, .. }
                | Operation::SetXattr { path, .. }
                | Operation::RemoveXattr { path, .. },
            ) => Some(path.clone()),
            Self::Do(operation) => operation.path().and_then(above),
            Self::CreateOpen(path) | Self::LinkUnnamed(path) => above(path),
            Self::SetFlags(path) | Self::SetAcl(path) => Some(path.clone()),
            _ => None,
        }
    }
}
