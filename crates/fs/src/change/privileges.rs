//! Privileges that a file loses when its contents change: set-user-id, set-group-id and file capabilities.
//!
//! The VFS does this for a filesystem in the kernel. Under FUSE with `FUSE_HANDLE_KILLPRIV_V2` it is left to the server for
//! all that does not pass through the page cache. That a file has nothing to lose is kept with the inode, for each write
//! asks.

use crate::attributes::Attributes;
use crate::change::InodeChanges;
use crate::change::xattr::CAPABILITY;
use crate::core::inodes::Inode;
use crate::error::FsError;
use brindle_ondisk::item::FileType;
use brindle_tree::Need;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The rights of the caller that changes a file's contents, as far as they concern the file's privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIdRight {
    /// The process has `CAP_FSETID`: both bits stay.
    Keep,
    /// The process belongs to the file's group: set-group-id stays where the group may not execute.
    GroupMember,
    /// None: both bits go.
    None,
}

impl SetIdRight {
    /// The mode of a file after a caller with this right has changed its contents.
    fn mode_after(self, mode: u32) -> u32 {
        match self {
            Self::Keep => mode,
            Self::GroupMember if mode & GROUP_EXECUTE == 0 => mode & !SET_USER_ID,
            Self::GroupMember | Self::None => mode & !(SET_USER_ID | SET_GROUP_ID),
        }
    }
}

impl InodeChanges {
    pub(crate) fn drop_privileges(
        &self,
        inode: &Arc<Inode>,
        right: impl FnOnce(&Attributes) -> SetIdRight,
    ) -> Result<bool, FsError> {
        if inode.is_unprivileged.load(Ordering::Acquire) {
            return Ok(false);
        }
        let _writing = self.core.writing()?;
        let id = inode.id();
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_write()?;
        let _names = inode.names();
        let before = self.items.attributes(id)?;
        if before.kind != FileType::Regular {
            return Ok(false);
        }
        let has_set_ids = before.mode & (SET_USER_ID | SET_GROUP_ID) != 0;
        let mode = if has_set_ids { right(&before).mode_after(before.mode) } else { before.mode };
        let has_capability = self.items.xattr(id, CAPABILITY)?.is_some();
        if mode == before.mode && !has_capability {
            inode.is_unprivileged.store(!has_set_ids, Ordering::Release);
            return Ok(false);
        }
        self.core.change(Need::items(2), |edit| {
            if has_capability {
                edit.drop_xattr(subvolume.tree(), id, CAPABILITY)?;
            }
            edit.inode(subvolume.tree(), id.number, |item| {
                item.mode.set(mode);
                item.ctime = edit.now;
            })
        })?;
        Ok(true)
    }
}

impl Inode {
    /// The inode gets privileges, perhaps. For the holder of its names' lock.
    pub(crate) fn may_have_privileges(&self) {
        self.is_unprivileged.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_without_execution_stays_for_members_of_the_group() {
        for (mode, member, stranger) in
            [(0o6777, 0o777, 0o777), (0o2666, 0o2666, 0o666), (0o4766, 0o766, 0o766), (0o640, 0o640, 0o640)]
        {
            assert_eq!(SetIdRight::GroupMember.mode_after(mode), member);
            assert_eq!(SetIdRight::None.mode_after(mode), stranger);
            assert_eq!(SetIdRight::Keep.mode_after(mode), mode);
        }
    }
}
