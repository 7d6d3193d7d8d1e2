//! Inodes apart from their names: for what is done to an inode that was looked up before.

use super::{Errno, InodePlace, Model, TreePath};

/// An inode, by whatever names it has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(InodePlace);

impl Model {
    /// The inode at a path, to be found again when its names have changed.
    pub fn identity(&self, path: &TreePath) -> Result<Identity, Errno> {
        self.resolve(path).map(Identity)
    }

    /// A path of an inode; `None` if it has gone.
    #[must_use]
    pub fn path_of(&self, identity: Identity) -> Option<TreePath> {
        let mut walk = self.walk().into_iter();
        walk.find(|found| found.is_at(identity.0)).map(|found| found.path)
    }

    /// Returns true if nothing in the subvolume of this path can be changed.
    pub fn is_read_only(&self, path: &TreePath) -> Result<bool, Errno> {
        Ok(self.check_writable(self.resolve(path)?).is_err())
    }

    /// Makes the subvolume of this path read-only, or writable.
    pub fn set_read_only(&mut self, path: &TreePath, is_read_only: bool) -> Result<(), Errno> {
        let place = self.resolve(path)?;
        self.subvolume_mut(place.subvolume).is_read_only = is_read_only;
        Ok(())
    }
}
