//! Changing what directories hold.

use super::{Operations, number};
use crate::attributes::Stat;
use crate::handles::{Handle, Opened};
use crate::permission::{Caller, Ids};
use brindle_fs::{Attributes, InodeHold, InodeId, NewInode, RenameMode};
use rustix::io::Errno;

/// `renameat2`'s flags.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// A name, and the node of the directory that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
}

/// Request for a rename.
#[derive(Clone, Debug)]
pub(crate) struct Rename {
    pub(crate) caller: Caller,
    pub(crate) from: Place,
    pub(crate) to: Place,
    /// `renameat2`'s.
    pub(crate) flags: u32,
}

impl Operations {
    /// Makes a file, directory, symbolic link or special file. The kernel remembers it.
    pub(crate) fn create(&self, parent: u64, name: &[u8], new: &NewInode<'_>) -> Result<Stat, Errno> {
        let parent = self.inode(parent)?;
        let made = number(self.filesystem.create(parent, name, new))?;
        self.settle_names(&[parent])?;
        Ok(self.remembered(&made))
    }

    /// Makes a file and opens it, perhaps to write it. The kernel remembers both.
    pub(crate) fn create_open(
        &self,
        parent: u64,
        name: &[u8],
        new: &NewInode<'_>,
        how: Opened,
    ) -> Result<(Stat, u64), Errno> {
        let parent = self.inode(parent)?;
        let (made, file) = number(self.filesystem.create_open(parent, name, new))?;
        let handle = self.handles.add(Handle::new(file, how));
        if let Err(error) = self.settle_names(&[parent]) {
            self.close(handle);
            return Err(error);
        }
        Ok((self.remembered(&made), handle))
    }

    /// Makes a file without a name and opens it (`O_TMPFILE`). The kernel remembers both. The file stays until the kernel has
    /// forgotten it, or gets a name by [`link`](Self::link).
    pub(crate) fn create_unnamed(
        &self,
        parent: u64,
        new: &NewInode<'_>,
        how: Opened,
    ) -> Result<(Stat, u64), Errno> {
        let (made, hold) = number(self.filesystem.create_unnamed(self.inode(parent)?, new))?;
        let file = match number(self.filesystem.open_known(&made)) {
            Ok(file) => file,
            Err(error) => {
                number(self.filesystem.release(hold))?;
                return Err(error);
            }
        };
        let stat = self.remembered(&made);
        self.nameless.keep(stat.ino, hold);
        Ok((stat, self.handles.add(Handle::new(file, how))))
    }

    /// Gives a node one more name. The kernel is told of it once more.
    pub(crate) fn link(&self, node: u64, parent: u64, name: &[u8]) -> Result<Stat, Errno> {
        let (id, parent) = (self.inode(node)?, self.inode(parent)?);
        let linked = number(self.filesystem.link(id, parent, name))?;
        self.settle_names(&[parent])?;
        Ok(self.remembered(&linked))
    }

    pub(crate) fn unlink(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.inode(parent)?;
        let leaving = self.hold_leaving(parent, name);
        number(self.filesystem.unlink(parent, name))?;
        self.keep_nameless(leaving);
        self.settle_names(&[parent])
    }

    pub(crate) fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.inode(parent)?;
        let leaving = self.hold_leaving(parent, name);
        number(self.filesystem.remove_directory(parent, name))?;
        self.keep_nameless(leaving);
        self.settle_names(&[parent])
    }

    pub(crate) fn rename(&self, rename: &Rename) -> Result<(), Errno> {
        let Rename { from, to, .. } = rename;
        let mode = rename.mode().ok_or(Errno::INVAL)?;
        let (from_parent, to_parent) = (self.inode(from.parent)?, self.inode(to.parent)?);
        let replaces = matches!(mode, RenameMode::Replace | RenameMode::Whiteout { .. });
        let leaving = if replaces { self.hold_leaving(to_parent, &to.name) } else { None };
        number(self.filesystem.rename(from_parent, &from.name, to_parent, &to.name, mode))?;
        self.keep_nameless(leaving);
        self.settle_names(&[from_parent, to_parent])
    }

    /// Holds the inode of a name that is about to go, with its node; `None` if there is none, or the kernel can't know it.
    fn hold_leaving(&self, parent: InodeId, name: &[u8]) -> Option<(u64, InodeHold)> {
        if !self.is_written {
            return None;
        }
        // Whatever fails here the operation itself is to tell.
        let entry = self.filesystem.lookup(parent, name).ok()??;
        let node = self.numbers.known(entry.inode)?;
        Some((node, self.filesystem.acquire(entry.inode).ok()?))
    }

    /// Keeps an inode whose name has gone, if that was its last one.
    fn keep_nameless(&self, left: Option<(u64, InodeHold)>) {
        if let Some((node, hold)) = left
            && self.filesystem.attributes(hold.id()).is_ok_and(|attributes| attributes.nlink == 0)
        {
            self.nameless.keep(node, hold);
        }
    }

    /// The nodes that this rename would give the name of another, and of which the kernel may have pages that it has not
    /// written back to us yet.
    pub(crate) fn unwritten_movers(&self, rename: &Rename) -> Vec<u64> {
        if rename.flags & RENAME_NOREPLACE != 0 || !self.handles.has_writers() {
            return Vec::new();
        }
        let find = |place: &Place| {
            let entry = self.filesystem.lookup(self.inode(place.parent).ok()?, &place.name).ok()??;
            Some(entry.inode)
        };
        let Some((source, target)) = find(&rename.from).zip(find(&rename.to)) else {
            return Vec::new();
        };
        let is_exchange = rename.flags & RENAME_EXCHANGE != 0;
        let moved = [Some(source), is_exchange.then_some(target)].into_iter().flatten();
        moved.filter(|id| self.handles.has_writer(*id)).filter_map(|id| self.numbers.known(id)).collect()
    }

    fn remembered(&self, attributes: &Attributes) -> Stat {
        Stat::new(self.numbers.remember(attributes.id), attributes)
    }
}

impl Rename {
    fn mode(&self) -> Option<RenameMode> {
        match self.flags {
            0 => Some(RenameMode::Replace),
            RENAME_NOREPLACE => Some(RenameMode::NoReplace),
            RENAME_EXCHANGE => Some(RenameMode::Exchange),
            RENAME_WHITEOUT => {
                let Ids { uid, gid } = self.caller.maker();
                Some(RenameMode::Whiteout { uid, gid })
            }
            _ => None,
        }
    }
}
