//! Changing attributes, extended ones too.

use super::{Operations, number};
use crate::attributes::Stat;
use crate::permission::Caller;
use brindle_fs::{
    AttributeChange, Attributes, FileFlags, FsError, Inode, InodeFlags, InodeId, SetIdRight, XattrMode,
};
use rustix::io::Errno;
use std::sync::Arc;

const SET_GROUP_ID: u32 = 0o2000;

/// `setxattr`'s flags.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Names of extended attributes begin so, or are an ACL.
const XATTR_PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"btrfs."];
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// An extended attribute to be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xattr<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Those of setxattr(2).
    pub(crate) flags: i32,
    /// True if an access list takes the set-group-id bit away; `None` if the kernel does not tell.
    pub(crate) drops_set_group_id: Option<bool>,
}

impl Operations {
    pub(crate) fn set_attributes(
        &self,
        caller: Caller,
        node: u64,
        by_handle: bool,
        change: &AttributeChange,
    ) -> Result<Stat, Errno> {
        let id = self.inode(node)?;
        let drop_set_group_id = change.drop_privileges && self.loses_set_group_id(caller, id)?;
        let change =
            &AttributeChange { drop_set_group_id, by_writer: by_handle && change.size.is_some(), ..*change };
        if change.size.is_some() {
            number(self.filesystem.check_change(id, change))?;
            let right = |before: &Attributes| caller.set_id_right(before.gid);
            number(self.drop_privileges(node, &self.filesystem.inode(id), right))?;
        }
        match number(self.filesystem.set_attributes(id, change)) {
            Ok(attributes) => {
                // Times that the kernel brings home are synced by the FSYNC that made it do so, if any.
                if !brings_times_home(change) {
                    self.settle_inode(&attributes)?;
                }
                Ok(Stat::new(self.shown(id), &attributes))
            }
            // Times that the kernel has kept come home when the last name is gone already (replaced by `rename`, say).
            // They are invisible now; an error would be reported to the next sync of the filesystem.
            Err(Errno::NOENT | Errno::STALE) if brings_times_home(change) => Ok(Stat::gone(self.shown(id))),
            // Or when the file has become immutable or append-only while it is being written. We have the times of
            // the writes; an error would be reported by fsync, as if they were lost. (A program that sets the times
            // of a path names no handle.)
            Err(Errno::PERM)
                if by_handle
                    && brings_times_home(change)
                    && change.accessed.is_none()
                    && self.handles.has_writer(id) =>
            {
                Ok(Stat::new(self.shown(id), &number(self.filesystem.attributes(id))?))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the privileges away that a file loses when its contents change.
    pub(super) fn drop_privileges(
        &self,
        node: u64,
        inode: &Arc<Inode>,
        right: impl FnOnce(&Attributes) -> SetIdRight,
    ) -> Result<(), FsError> {
        let is_changed = self.filesystem.drop_privileges(inode, right)?;
        self.privileges_changed(is_changed, node);
        Ok(())
    }

    /// Returns true if the inode has a set-group-id bit for a group that the caller is not of.
    fn loses_set_group_id(&self, caller: Caller, id: InodeId) -> Result<bool, Errno> {
        let attributes = number(self.filesystem.attributes(id))?;
        Ok(attributes.mode & SET_GROUP_ID != 0 && !caller.may_set_group_id(attributes.gid))
    }

    pub(crate) fn set_xattr(&self, caller: Caller, node: u64, xattr: &Xattr<'_>) -> Result<(), Errno> {
        let Xattr { name, value, flags, drops_set_group_id } = *xattr;
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        check_name(name)?;
        let id = self.inode(node)?;
        number(self.filesystem.set_xattr(id, name, value, mode))?;
        // A list says what the mode says, and changing it is a kind of chmod.
        let drops = || drops_set_group_id.map_or_else(|| self.loses_set_group_id(caller, id), Ok);
        if name == ACCESS_LISTS[0] && drops()? {
            let mode = number(self.filesystem.attributes(id))?.mode & !SET_GROUP_ID;
            let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
            number(self.filesystem.set_attributes(id, &change))?;
            self.privileges_changed(true, node);
        }
        self.settle_inode(&number(self.filesystem.attributes(id))?)
    }

    pub(crate) fn remove_xattr(&self, node: u64, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let id = self.inode(node)?;
        number(self.filesystem.remove_xattr(id, name))?;
        self.settle_inode(&number(self.filesystem.attributes(id))?)
    }

    /// The attributes that `lsattr` shows.
    pub(super) fn inode_flags(&self, node: u64) -> Result<InodeFlags, Errno> {
        Ok(number(self.filesystem.attributes(self.inode(node)?))?.flags)
    }

    /// Changes the attributes that `chattr` names. The kernel has checked the permission.
    pub(super) fn set_flags(
        &self,
        node: u64,
        wanted: impl FnOnce(FileFlags) -> Result<FileFlags, Errno>,
    ) -> Result<(), Errno> {
        let id = self.inode(node)?;
        let wanted = wanted(number(self.filesystem.flags(id))?)?;
        number(self.filesystem.set_flags(id, wanted))?;
        self.settle_inode(&number(self.filesystem.attributes(id))?)
    }
}

/// Returns true for a request of the kernel itself: programs cannot set the time of the last change.
fn brings_times_home(change: &AttributeChange) -> bool {
    let AttributeChange { mode: None, uid: None, gid: None, size: None, changed, .. } = change else {
        return false;
    };
    changed.is_some()
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    let is_known = XATTR_PREFIXES.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    if is_known || ACCESS_LISTS.contains(&name) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}
