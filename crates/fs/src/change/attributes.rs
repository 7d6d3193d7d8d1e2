//! Changing what `stat` tells.

use crate::acl::{self, Acl};
use crate::attributes::{Attributes, InodeId, Timestamp};
use crate::change::InodeChanges;
use crate::directory::entry::frozen_flags;
use crate::error::FsError;
use crate::write_options::AtimeMode;
use brindle_ondisk::item::{FileType, InodeFlags, InodeItem, Timespec};
use brindle_tree::{Need, TreeError};

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const PERMISSIONS: u32 = 0o7777;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Greatest lag of the access time, in seconds (`relatime`).
const ACCESS_LAG_SECONDS: i64 = 24 * 60 * 60;

/// Change of an inode's attributes; a field that is `None` stays.
///
/// Any change moves the time of change. Clearing the set-user-id and set-group-id bits when the owner or the contents
/// change is the VFS' job, which does it by asking for a mode (under FUSE, unless `FUSE_HANDLE_KILLPRIV` was
/// agreed; with version 2 of that, the request says [`drop_privileges`](Self::drop_privileges)).
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
    /// Take away set-group-id also where the group may not execute: the caller is not of the group.
    pub drop_set_group_id: bool,
    /// The size changes by a descriptor that writes the file: one that is older than the flag of an immutable file goes on
    /// to write it, as in the kernel.
    pub by_writer: bool,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// Present time of the clock.
    Now,
    /// This one.
    At(Timestamp),
}

impl NewTime {
    fn at(self, now: Timespec) -> Timespec {
        match self {
            Self::Now => now,
            Self::At(time) => time.into(),
        }
    }
}

impl AttributeChange {
    /// Returns true if anything but the size is to change.
    fn changes_item(&self) -> bool {
        let rest = Self { size: None, by_writer: false, ..*self };
        rest != Self::default()
    }

    /// Returns true if nothing but times is to change.
    fn is_of_times(&self) -> bool {
        let rest = Self { accessed: None, modified: None, changed: None, ..*self };
        rest == Self::default()
    }

    /// Returns true if a descriptor that writes the file changes its size, and the times with it.
    fn is_truncation_by_writer(&self) -> bool {
        self.by_writer && self.is_truncation()
    }

    /// Returns true if it changes the size, and nothing else but times.
    fn is_truncation(&self) -> bool {
        self.size.is_some() && self.mode.is_none() && self.uid.is_none() && self.gid.is_none()
    }

    /// Returns true if this is allowed of an append-only inode: both times become the present one (`utimes` without times), or
    /// none is set.
    fn is_harmless(&self) -> bool {
        let rest = Self { accessed: None, modified: None, changed: None, ..*self };
        let sets_no_other = rest == Self { drop_privileges: self.drop_privileges, ..Self::default() };
        // Under FUSE the kernel keeps the time of a file's last change, and sends the present one as the time of both changes.
        let is_present = match (self.modified, self.changed) {
            (Some(NewTime::Now), _) => true,
            (Some(NewTime::At(modified)), Some(changed)) => modified == changed,
            _ => false,
        };
        let times = match (self.accessed, self.modified) {
            (None, None) => true,
            (accessed, _) => accessed == Some(NewTime::Now) && is_present,
        };
        sets_no_other && times
    }

    fn apply(&self, item: &mut InodeItem, now: Timespec) {
        let mut mode = self.mode.map_or(item.mode.get(), |mode| item.mode.get() & TYPE | mode & PERMISSIONS);
        if self.drop_privileges {
            mode = without_privileges(mode);
        }
        if self.drop_set_group_id && mode & TYPE != DIRECTORY {
            mode &= !SET_GROUP_ID;
        }
        item.mode.set(mode);
        item.uid.set(self.uid.unwrap_or(item.uid.get()));
        item.gid.set(self.gid.unwrap_or(item.gid.get()));
        item.atime = self.accessed.map_or(item.atime, |time| time.at(now));
        item.mtime = self.modified.map_or(item.mtime, |time| time.at(now));
        item.otime = self.created.map_or(item.otime, Timespec::from);
        item.ctime = self.changed.map_or(now, Timespec::from);
    }
}

fn without_privileges(mode: u32) -> u32 {
    // Without the right of the group to execute, the bit meant mandatory locking.
    let dropped = if mode & GROUP_EXECUTE != 0 { SET_USER_ID | SET_GROUP_ID } else { SET_USER_ID };
    if mode & TYPE == DIRECTORY { mode } else { mode & !dropped }
}

impl InodeChanges {
    pub(crate) fn set_attributes(
        &self,
        id: InodeId,
        change: &AttributeChange,
    ) -> Result<Attributes, FsError> {
        let before = self.check_change(id, change)?;
        if let Some(size) = change.size {
            if before.kind != FileType::Regular {
                return Err(FsError::NotAFile(id));
            }
            let file = self.holds.open_known(&before)?;
            let truncated = self.data.truncate(&file, size);
            truncated.and(self.holds.end_use(file))?;
        }
        // The place of a subvolume in a snapshot has no item: as with the kernel, whose inode forgets the change when
        // it is dropped from memory, this is no error.
        if change.changes_item() && !id.is_empty_subvolume() {
            match self.change_item(id, change) {
                // A kernel tells the times of a file as it lets go of it, also if it has no name any more.
                Err(FsError::Tree(TreeError::NoSpace(_))) if before.nlink == 0 && change.is_of_times() => {}
                // The file has its size, and the time of that: an error would say that nothing has changed.
                Err(FsError::Tree(TreeError::NoSpace(_))) if change.is_truncation() => {}
                changed => changed?,
            }
        }
        self.items.attributes(id)
    }

    pub(crate) fn check_change(&self, id: InodeId, change: &AttributeChange) -> Result<Attributes, FsError> {
        let _writing = self.core.writing()?;
        let before = self.items.attributes(id)?;
        check_allowed(&before, change)?;
        Ok(before)
    }

    pub(crate) fn is_append_only(&self, id: InodeId) -> Result<bool, FsError> {
        Ok(self.items.quick_attributes(id)?.flags.contains(InodeFlags::APPEND))
    }

    pub(crate) fn check_overwritable(&self, id: InodeId) -> Result<(), FsError> {
        frozen_flags(&self.items.attributes(id)?)
    }

    pub(crate) fn check_writable(&self, id: InodeId) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_write()?;
        if self.items.attributes(id)?.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(FsError::NotPermitted { file: id, why: "it is immutable" });
        }
        Ok(())
    }

    fn change_item(&self, id: InodeId, change: &AttributeChange) -> Result<(), FsError> {
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_write()?;
        let inode = self.core.inode(id);
        // The list and the mode say the same, and change together.
        let _names = inode.names();
        if change.mode.is_some() {
            inode.may_have_privileges();
        }
        let list = match change.mode {
            Some(mode) => self.access_list(id)?.map(|list| list.with_mode(mode)),
            None => None,
        };
        self.items.attributes(id)?;
        self.core.change(Need::items(2), |edit| {
            if let Some(list) = &list {
                edit.replace_xattr(subvolume.tree(), id, acl::ACCESS, &list.to_value())?;
            }
            edit.inode(subvolume.tree(), id.number, |item| {
                if change.modified.is_some() || change.changed.is_some() {
                    inode.data.replace_times(item, change.modified.is_some());
                }
                change.apply(item, edit.now);
            })
        })
    }

    /// The access ACL of an inode, if it has one.
    fn access_list(&self, id: InodeId) -> Result<Option<Acl>, FsError> {
        let value = self.items.xattr(id, acl::ACCESS)?;
        Ok(value.and_then(|value| Acl::parse(&value).ok().flatten()))
    }

    pub(crate) fn note_access(&self, id: InodeId) -> Result<(), FsError> {
        let writing = self.core.writing()?;
        let options = &writing.options;
        if options.atime == AtimeMode::Never || id.is_empty_subvolume() {
            return Ok(());
        }
        let before = self.items.attributes(id)?;
        if !needs_access_time(&before, options.atime, options.host.now()) {
            return Ok(());
        }
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = match subvolume.begin_write() {
            Ok(access) => access,
            // Reading from a snapshot changes nothing.
            Err(FsError::ReadOnlySubvolume(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let inode = self.core.inode(id);
        let _names = inode.names();
        self.items.attributes(id)?;
        self.core.change_aside(Need::items(1), |edit| {
            edit.inode(subvolume.tree(), id.number, |item| item.atime = edit.now)
        })
    }
}

fn check_allowed(before: &Attributes, change: &AttributeChange) -> Result<(), FsError> {
    if change.is_truncation_by_writer() && !before.flags.contains(InodeFlags::APPEND) {
        return Ok(());
    }
    // What is only to be added to may still be touched.
    if change.is_harmless() && !before.flags.contains(InodeFlags::IMMUTABLE) {
        return Ok(());
    }
    frozen_flags(before)
}

/// Returns true if an access now updates the access time.
fn needs_access_time(before: &Attributes, mode: AtimeMode, now: Timestamp) -> bool {
    if before.flags.intersects(InodeFlags::NOATIME | InodeFlags::IMMUTABLE) || before.accessed >= now {
        return false;
    }
    match mode {
        AtimeMode::Never => false,
        AtimeMode::Strict => true,
        AtimeMode::Relative => {
            before.accessed <= before.modified
                || before.accessed <= before.changed
                || now.seconds.saturating_sub(before.accessed.seconds) >= ACCESS_LAG_SECONDS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::RootId;
    use zerocopy::FromZeros;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn attributes(accessed: i64, changed: i64) -> Attributes {
        let empty = Attributes::empty_subvolume(InodeId::root_of(RootId::FS_TREE));
        Attributes { accessed: at(accessed), changed: at(changed), modified: at(changed), ..empty }
    }

    #[test]
    fn relatime_keeps_a_time_that_says_whether_the_change_was_seen() {
        let needs = |accessed, changed, now| {
            needs_access_time(&attributes(accessed, changed), AtimeMode::Relative, at(now))
        };
        assert!(needs(100, 100, 200), "not read since it was changed");
        assert!(!needs(150, 100, 200), "read since");
        assert!(needs(150, 100, 150 + ACCESS_LAG_SECONDS), "a day ago");
        assert!(!needs(300, 100, 200), "never back in time");
    }

    #[test]
    fn atime_modes_and_flags() {
        let read = attributes(150, 100);
        assert!(needs_access_time(&read, AtimeMode::Strict, at(200)));
        assert!(!needs_access_time(&attributes(100, 100), AtimeMode::Never, at(200)));
        let flagged = Attributes { flags: InodeFlags::NOATIME, ..read };
        assert!(!needs_access_time(&flagged, AtimeMode::Strict, at(200)));
    }

    #[test]
    fn attributes_not_named_in_a_change_stay() {
        let mut item = InodeItem::new_zeroed();
        item.mode.set(0o106_755);
        item.uid.set(1);
        item.atime = at(5).into();
        let change = AttributeChange { gid: Some(9), drop_privileges: true, ..AttributeChange::default() };
        change.apply(&mut item, at(7).into());
        assert_eq!((item.mode.get(), item.uid.get(), item.gid.get()), (0o100_755, 1, 9));
        assert_eq!((item.atime, item.ctime), (at(5).into(), at(7).into()));
        let change = AttributeChange { mode: Some(0o044_711), accessed: Some(NewTime::Now), ..change };
        change.apply(&mut item, at(8).into());
        assert_eq!((item.mode.get(), item.atime), (0o100_711, at(8).into()));
        let (mode, drop_privileges) = (Some(0o2644), true);
        let change = AttributeChange { mode, drop_privileges, ..AttributeChange::default() };
        change.apply(&mut item, at(9).into());
        assert_eq!(item.mode.get(), 0o102_644, "without the right to execute it stays");
        let change = AttributeChange { drop_set_group_id: true, ..change };
        change.apply(&mut item, at(9).into());
        assert_eq!(item.mode.get(), 0o100_644, "but not for those outside the group");
    }

    #[test]
    fn append_only_may_be_touched_and_immutable_not() {
        let now = Some(NewTime::Now);
        let touch = AttributeChange { accessed: now, modified: now, ..AttributeChange::default() };
        let set = AttributeChange { modified: Some(NewTime::At(at(1))), ..AttributeChange::default() };
        let with = |flags| Attributes { flags, ..attributes(1, 1) };
        assert!(check_allowed(&with(InodeFlags::APPEND), &touch).is_ok());
        assert!(check_allowed(&with(InodeFlags::APPEND), &set).is_err());
        let half = AttributeChange { accessed: None, ..touch };
        assert!(check_allowed(&with(InodeFlags::APPEND), &half).is_err(), "as the kernel has it");
        let by_the_kernel = |modified, changed| AttributeChange {
            modified: Some(NewTime::At(at(modified))),
            changed: Some(at(changed)),
            ..touch
        };
        assert!(check_allowed(&with(InodeFlags::APPEND), &by_the_kernel(7, 7)).is_ok());
        assert!(check_allowed(&with(InodeFlags::APPEND), &by_the_kernel(6, 7)).is_err());
        assert!(check_allowed(&with(InodeFlags::IMMUTABLE), &touch).is_err());
        assert!(check_allowed(&with(InodeFlags::empty()), &set).is_ok());
    }
}
