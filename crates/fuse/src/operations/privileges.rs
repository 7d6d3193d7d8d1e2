//! Privileges of files (set-user-id, set-group-id), which the kernel leaves to us to take away, without looking at the mode
//! afterwards.

use super::invalidations::Invalidations;
use crate::errno::number;
use crate::permission::Caller;
use brindle_fs::{AttributeChange, Attributes, Filesystem, FsError, Inode, InodeId, SetIdRight};
use rustix::io::Errno;
use std::sync::Arc;

const SET_GROUP_ID: u32 = 0o2000;

/// Privileges of files.
#[derive(Debug)]
pub(super) struct Privileges {
    filesystem: Arc<Filesystem>,
    invalidations: Arc<Invalidations>,
}

impl Privileges {
    pub(super) fn new(filesystem: Arc<Filesystem>, invalidations: Arc<Invalidations>) -> Self {
        Self { filesystem, invalidations }
    }

    /// Takes the privileges away that a file loses when its contents change.
    pub(super) fn drop_for(
        &self,
        node: u64,
        inode: &Arc<Inode>,
        right: impl FnOnce(&Attributes) -> SetIdRight,
    ) -> Result<(), FsError> {
        if self.filesystem.drop_privileges(inode, right)? {
            self.invalidations.attributes_changed(node);
        }
        Ok(())
    }

    /// Returns true if the inode has a set-group-id bit for a group that the caller is not of.
    pub(super) fn loses_set_group_id(&self, caller: Caller, id: InodeId) -> Result<bool, Errno> {
        let attributes = number(self.filesystem.attributes(id))?;
        Ok(attributes.mode & SET_GROUP_ID != 0 && !caller.may_set_group_id(attributes.gid))
    }

    /// Takes the set-group-id bit away.
    pub(super) fn drop_set_group_id(&self, node: u64, id: InodeId) -> Result<(), Errno> {
        let mode = number(self.filesystem.attributes(id))?.mode & !SET_GROUP_ID;
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        number(self.filesystem.set_attributes(id, &change))?;
        self.invalidations.attributes_changed(node);
        Ok(())
    }
}
