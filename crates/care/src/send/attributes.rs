//! Owners, permissions, extended attributes and times.
//!
//! Contents come first, for writing takes the set-id bits and capabilities away; then the owner, for that does too; then permissions,
//! attributes, times. A capability that is gone is removed before contents: not each receiver loses it with them, and btrfs-progs fail
//! to remove what is not there. Attributes that a directory passes on to what is made in it (default ACLs, properties of btrfs) are set at the very
//! end, with its times.

use crate::send::contents::Outgoing;
use crate::send::error::SendError;
use crate::send::view::Inode;
use crate::send::{ReadySender, changes::Change};
use brindle_fs::FileType;
use brindle_ondisk::ObjectId;
use brindle_ondisk::item::Timespec;
use brindle_policy::tier::files::{MARK, SMALL_FILES};
use brindle_stream::{Command, StreamTime};

const PERMISSIONS: u32 = 0o7777;
const SET_ID: u32 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";

/// Time at which an extended attribute is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before contents: the properties of a file, such as compression and the mark of its tier; capabilities that are removed.
    BeforeContents,
    /// At the turn of the inode.
    Turn,
    /// When nothing more is made in the directory.
    End,
}

/// The phase of an attribute.
fn phase(name: &[u8], kind: FileType) -> Phase {
    let is_property =
        name.starts_with(b"btrfs.") || kind != FileType::Directory && [MARK, SMALL_FILES].contains(&name);
    match (is_property, kind) {
        (true, FileType::Directory) => Phase::End,
        (true, _) => Phase::BeforeContents,
        (false, FileType::Directory) if name == b"system.posix_acl_default" => Phase::End,
        _ => Phase::Turn,
    }
}

/// The phase in which an attribute is removed.
fn phase_of_removal(name: &[u8], kind: FileType) -> Phase {
    if name == CAPABILITY { Phase::BeforeContents } else { phase(name, kind) }
}

impl ReadySender<'_, '_> {
    /// Sends what has changed in the attributes of an inode, but for times of directories. `is_written` if contents have changed.
    pub(super) fn attributes(
        &mut self,
        file: &Outgoing<'_>,
        change: &Change,
        is_written: bool,
    ) -> Result<(), SendError> {
        let (path, after) = (file.path, &file.inode.item);
        let before = file.before.as_ref().map(|before| &before.item);
        let is_given = before.is_none_or(|before| (before.uid, before.gid) != (after.uid, after.gid));
        if is_given {
            self.out.write(&Command::Chown {
                path,
                uid: after.uid.get().into(),
                gid: after.gid.get().into(),
            })?;
        }
        let has_lost = is_given || is_written;
        let mode = after.mode.get();
        let is_other = before.is_none_or(|before| before.mode != after.mode);
        if file.inode.kind != FileType::Symlink && (is_other || has_lost && mode & SET_ID != 0) {
            self.out.write(&Command::Chmod { path, mode: (mode & PERMISSIONS).into() })?;
        }
        if change.has_xattrs || has_lost {
            self.xattrs(file, Phase::Turn, has_lost)?;
        }
        if file.inode.kind != FileType::Directory {
            self.times(path, &file.inode)?;
        }
        Ok(())
    }

    /// Sends the attributes of a phase in which an inode differs from before; capabilities also if they were lost.
    pub(super) fn xattrs(&mut self, file: &Outgoing<'_>, of: Phase, has_lost: bool) -> Result<(), SendError> {
        let (kind, path) = (file.inode.kind, file.path);
        let after = self.names.new.xattrs(file.number)?;
        let before = match (self.names.old, file.before) {
            (Some(old), Some(_)) => old.xattrs(file.number)?,
            _ => Vec::new(),
        };
        for gone in before.iter().filter(|xattr| phase_of_removal(&xattr.name, kind) == of) {
            if !after.iter().any(|xattr| xattr.name == gone.name) {
                self.out.write(&Command::RemoveXattr { path, name: &gone.name })?;
            }
        }
        for xattr in after.iter().filter(|xattr| phase(&xattr.name, kind) == of) {
            if !before.contains(xattr) || has_lost && xattr.name == CAPABILITY {
                self.out.write(&Command::SetXattr { path, name: &xattr.name, value: &xattr.value })?;
            }
        }
        Ok(())
    }

    /// Sets the times, and what directories pass on, of all directories that have changed.
    pub(super) fn finish_directories(&mut self) -> Result<(), SendError> {
        for number in std::mem::take(&mut self.names.touched) {
            let Some(inode) = self.names.new.inode(number)? else { continue };
            let path = &self.names.settle(number, self.out)?;
            let file = Outgoing { number, path, inode, before: self.before(number)? };
            self.xattrs(&file, Phase::End, false)?;
            self.times(path, &inode)?;
        }
        Ok(())
    }

    /// The inode in the parent, if it is kept.
    pub(super) fn before(&self, number: ObjectId) -> Result<Option<Inode>, SendError> {
        match self.names.old {
            Some(old) if self.names.is_kept(number)? => old.inode(number),
            _ => Ok(None),
        }
    }

    fn times(&mut self, path: &[u8], inode: &Inode) -> Result<(), SendError> {
        let item = &inode.item;
        self.out.write(&Command::Times {
            path,
            accessed: time(&item.atime),
            modified: time(&item.mtime),
            changed: time(&item.ctime),
            created: (self.out.version() >= 2).then(|| time(&item.otime)),
        })
    }
}

fn time(time: &Timespec) -> StreamTime {
    StreamTime { seconds: time.sec.get(), nanoseconds: time.nsec.get() }
}
