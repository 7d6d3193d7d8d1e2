//! Operations on a filesystem, as values: made up by a seed, done to the model and to a [`Target`] at once,
//! and cut down to the few that matter when the two disagree.

mod choose;
mod data;
mod generator;
mod hoist;
mod inventory;
mod mix;
mod mounted;
mod shrink;
mod target;
mod trial;

#[cfg(test)]
mod tests;

pub use data::{Data, Texture};
pub use generator::Generator;
pub use mix::Mix;
pub use mounted::MountedTarget;
pub use shrink::shrink;
pub use target::{Target, compare};
pub use trial::{Disagreement, Trial, apply_both, replay};

use crate::manifest::Time;
use crate::model::{Errno, Model, Node, RenameRule, TreePath, XattrRule};

/// One thing that can be done to a filesystem. Nothing follows a symbolic link.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the model's methods")]
pub enum Operation {
    /// An empty file, which must be new.
    Create { path: TreePath, mode: u16 },
    /// An empty directory.
    MakeDirectory { path: TreePath, mode: u16 },
    /// A symbolic link.
    Symlink { path: TreePath, target: String },
    /// A pipe, socket or device.
    MakeNode { path: TreePath, node: Node, mode: u16 },
    /// A hard link.
    Link { existing: TreePath, path: TreePath },
    /// Takes a name of anything but a directory.
    Unlink { path: TreePath },
    /// Removes an empty directory.
    RemoveDirectory { path: TreePath },
    /// Moves a name.
    Rename { from: TreePath, to: TreePath, rule: RenameRule },
    /// Writes into a file.
    Write { path: TreePath, offset: u64, data: Data },
    /// Sets a file's size.
    Truncate { path: TreePath, size: u64 },
    /// `fallocate`.
    Allocate { path: TreePath, offset: u64, length: u64, keeps_size: bool },
    /// `FALLOC_FL_PUNCH_HOLE`.
    PunchHole { path: TreePath, offset: u64, length: u64 },
    /// `FALLOC_FL_ZERO_RANGE`.
    ZeroRange { path: TreePath, offset: u64, length: u64, keeps_size: bool },
    /// `FICLONERANGE`; a length of 0 means to the end.
    CloneRange { from: TreePath, from_offset: u64, to: TreePath, to_offset: u64, length: u64 },
    /// Permissions.
    SetMode { path: TreePath, mode: u16 },
    /// Owner and group.
    SetOwner { path: TreePath, uid: u32, gid: u32 },
    /// Time of last change; the time of last access too, for targets that keep one.
    SetTimes { path: TreePath, mtime: Time },
    /// An extended attribute.
    SetXattr { path: TreePath, name: String, value: Data, rule: XattrRule },
    /// Removes an extended attribute.
    RemoveXattr { path: TreePath, name: String },
    /// An empty subvolume.
    CreateSubvolume { path: TreePath },
    /// A snapshot of the subvolume whose root is `source`.
    Snapshot { source: TreePath, path: TreePath, is_read_only: bool },
    /// Deletes a subvolume, whatever is in it.
    DeleteSubvolume { path: TreePath },
    /// Makes everything durable.
    Sync,
    /// `fsync` of a file or directory.
    SyncFile { path: TreePath },
    /// Unmounts and mounts again.
    Remount,
}

impl Operation {
    /// The path that it is about: for two of them, the one that changes.
    #[must_use]
    pub fn path(&self) -> Option<&TreePath> {
        match self {
            Self::Create { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::Symlink { path, .. }
            | Self::MakeNode { path, .. }
            | Self::Link { path, .. }
            | Self::Unlink { path }
            | Self::RemoveDirectory { path }
            | Self::Rename { to: path, .. }
            | Self::Write { path, .. }
            | Self::Truncate { path, .. }
            | Self::Allocate { path, .. }
            | Self::PunchHole { path, .. }
            | Self::ZeroRange { path, .. }
            | Self::CloneRange { to: path, .. }
            | Self::SetMode { path, .. }
            | Self::SetOwner { path, .. }
            | Self::SetTimes { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::CreateSubvolume { path }
            | Self::Snapshot { path, .. }
            | Self::DeleteSubvolume { path }
            | Self::SyncFile { path } => Some(path),
            Self::Sync | Self::Remount => None,
        }
    }

    /// Returns true if it changes bytes of a file.
    #[must_use]
    pub fn changes_contents(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::Truncate { .. }
                | Self::Allocate { .. }
                | Self::PunchHole { .. }
                | Self::ZeroRange { .. }
                | Self::CloneRange { .. }
        )
    }
}

impl Model {
    /// Does it, if it can be done; what is refused changes nothing.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            Operation::Create { path, mode } => self.create(path, *mode),
            Operation::MakeDirectory { path, mode } => self.make_directory(path, *mode),
            Operation::Symlink { path, target } => self.symlink(path, target),
            Operation::MakeNode { path, node, mode } => self.make_node(path, *node, *mode),
            Operation::Link { existing, path } => self.link(existing, path),
            Operation::Unlink { path } => self.unlink(path),
            Operation::RemoveDirectory { path } => self.remove_directory(path),
            Operation::Rename { from, to, rule } => self.rename(from, to, *rule),
            Operation::Write { path, offset, data } => self.write(path, *offset, &data.bytes()),
            Operation::Truncate { path, size } => self.truncate(path, *size),
            Operation::Allocate { path, offset, length, keeps_size } => {
                self.allocate(path, *offset, *length, *keeps_size)
            }
            Operation::PunchHole { path, offset, length } => self.punch_hole(path, *offset, *length),
            Operation::ZeroRange { path, offset, length, keeps_size } => {
                self.zero_range(path, *offset, *length, *keeps_size)
            }
            Operation::CloneRange { from, from_offset, to, to_offset, length } => {
                self.clone_range(from, *from_offset, to, *to_offset, *length)
            }
            Operation::SetMode { path, mode } => self.set_mode(path, *mode),
            Operation::SetOwner { path, uid, gid } => self.set_owner(path, *uid, *gid),
            Operation::SetTimes { path, mtime } => self.set_times(path, *mtime),
            Operation::SetXattr { path, name, value, rule } => {
                self.set_xattr(path, name, &value.bytes(), *rule)
            }
            Operation::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Operation::CreateSubvolume { path } => self.create_subvolume(path),
            Operation::Snapshot { source, path, is_read_only } => self.snapshot(source, path, *is_read_only),
            Operation::DeleteSubvolume { path } => self.delete_subvolume(path),
            Operation::SyncFile { path } => self.inode(path).map(|_| ()),
            Operation::Sync | Operation::Remount => Ok(()),
        }
    }
}
