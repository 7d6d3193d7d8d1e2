//! Attributes of inodes.

use super::access_times::AccessTimes;
use super::durability::Durability;
use super::files::Files;
use super::invalidations::Invalidations;
use super::nodes::Nodes;
use super::privileges::Privileges;
use crate::attributes::Stat;
use crate::errno::number;
use crate::permission::Caller;
use brindle_fs::{AttributeChange, Attributes, FileFlags, Filesystem, InodeFlags, InodeId};
use rustix::io::Errno;
use std::sync::Arc;

/// Attributes of the mount's inodes.
#[derive(Debug)]
pub(crate) struct InodeAttributes {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    privileges: Arc<Privileges>,
    durability: Arc<Durability>,
    access_times: Arc<AccessTimes>,
    invalidations: Arc<Invalidations>,
}

impl InodeAttributes {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        files: Arc<Files>,
        privileges: Arc<Privileges>,
        durability: Arc<Durability>,
        access_times: Arc<AccessTimes>,
        invalidations: Arc<Invalidations>,
    ) -> Self {
        Self { filesystem, nodes, files, privileges, durability, access_times, invalidations }
    }

    pub(crate) fn read_link(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let id = self.nodes.inode(node)?;
        self.access_times.note_link(id);
        number(self.filesystem.read_link(id))
    }

    pub(crate) fn set(
        &self,
        caller: Caller,
        node: u64,
        by_handle: bool,
        change: &AttributeChange,
    ) -> Result<Stat, Errno> {
        let id = self.nodes.inode(node)?;
        let drop_set_group_id = change.drop_privileges && self.privileges.loses_set_group_id(caller, id)?;
        let change =
            &AttributeChange { drop_set_group_id, by_writer: by_handle && change.size.is_some(), ..*change };
        if change.size.is_some() {
            self.nodes.check_changeable(node)?;
            number(self.filesystem.check_change(id, change))?;
            let right = |before: &Attributes| caller.set_id_right(before.gid);
            number(self.privileges.drop_for(node, &self.filesystem.inode(id), right))?;
        }
        match number(self.filesystem.set_attributes(id, change)) {
            Ok(attributes) => {
                // Times that the kernel brings home are synced by the FSYNC that made it do so, if any.
                if !brings_times_home(change) {
                    self.durability.settle_inode(&attributes)?;
                }
                Ok(self.nodes.stat_of(node, &attributes))
            }
            // Times that the kernel has kept come home when the last name is gone already (replaced by `rename`, say).
            // They are invisible now; an error would be reported to the next sync of the filesystem.
            Err(Errno::NOENT | Errno::STALE) if brings_times_home(change) => {
                Ok(Stat::gone(self.nodes.shown(id)))
            }
            // Or when the file has become immutable or append-only while it is being written. We have the times of
            // the writes; an error would be reported by fsync, as if they were lost. (A program that sets the times
            // of a path names no handle.)
            Err(Errno::PERM)
                if by_handle
                    && brings_times_home(change)
                    && change.accessed.is_none()
                    && self.files.is_written(id) =>
            {
                Ok(self.nodes.stat_of(node, &number(self.filesystem.attributes(id))?))
            }
            Err(error) => Err(error),
        }
    }

    /// The attributes that `lsattr` shows.
    pub(super) fn flags(&self, node: u64) -> Result<InodeFlags, Errno> {
        Ok(number(self.filesystem.attributes(self.inode_with_item(node)?))?.flags)
    }

    /// The generation that `lsattr -v` shows.
    pub(super) fn version(&self, node: u64) -> Result<u32, Errno> {
        let generation = number(self.filesystem.attributes(self.inode_with_item(node)?))?.generation;
        // The kernel keeps as much.
        Ok(u32::try_from(generation & u64::from(u32::MAX)).expect("the lower half"))
    }

    /// The inode of a node. The place of a subvolume in a snapshot has no item, and knows no ioctls.
    fn inode_with_item(&self, node: u64) -> Result<InodeId, Errno> {
        let id = self.nodes.inode(node)?;
        if id.is_empty_subvolume() { Err(Errno::NOTTY) } else { Ok(id) }
    }

    /// Changes the attributes that `chattr` names. The kernel has checked the permission.
    pub(super) fn set_flags(
        &self,
        node: u64,
        wanted: impl FnOnce(FileFlags) -> Result<FileFlags, Errno>,
    ) -> Result<(), Errno> {
        let id = self.inode_with_item(node)?;
        let wanted = wanted(number(self.filesystem.flags(id))?)?;
        number(self.filesystem.set_flags(id, wanted))?;
        // The kernel does not know that this is a change; of a regular file it goes by the time that it has itself.
        self.invalidations.attributes_changed(node);
        self.durability.settle_inode(&number(self.filesystem.attributes(id))?)
    }
}

/// Returns true for a request of the kernel itself: programs cannot set the time of the last change.
fn brings_times_home(change: &AttributeChange) -> bool {
    let sets_times =
        change.mode.is_none() && change.uid.is_none() && change.gid.is_none() && change.size.is_none();
    sets_times && !change.drop_privileges && change.changed.is_some()
}
