//! Changing what directories hold.

use super::{Operations, number};
use crate::attributes::Stat;
use crate::permission::Caller;
use brindle_fs::{Attributes, NewInode, RenameMode};
use rustix::io::Errno;

/// `renameat2`'s flags.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Operations {
    /// Makes a file, directory, symbolic link or special file. The kernel remembers it.
    pub(crate) fn create(&self, parent: u64, name: &[u8], new: &NewInode<'_>) -> Result<Stat, Errno> {
        let parent = self.inode(parent)?;
        let made = number(self.filesystem.create(parent, name, new))?;
        Ok(self.remembered(&made))
    }

    /// Makes a file and opens it, perhaps to write it. The kernel remembers both.
    pub(crate) fn create_open(
        &self,
        parent: u64,
        name: &[u8],
        new: &NewInode<'_>,
        writes: bool,
    ) -> Result<(Stat, u64), Errno> {
        let parent = self.inode(parent)?;
        let made = number(self.filesystem.create(parent, name, new))?;
        let handle = self.open_known(&made, writes)?;
        Ok((self.remembered(&made), handle))
    }

    /// Gives a node one more name. The kernel is told of it once more.
    pub(crate) fn link(&self, node: u64, parent: u64, name: &[u8]) -> Result<Stat, Errno> {
        let (id, parent) = (self.inode(node)?, self.inode(parent)?);
        let linked = number(self.filesystem.link(id, parent, name))?;
        Ok(self.remembered(&linked))
    }

    pub(crate) fn unlink(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        number(self.filesystem.unlink(self.inode(parent)?, name))
    }

    pub(crate) fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        number(self.filesystem.remove_directory(self.inode(parent)?, name))
    }

    pub(crate) fn rename(
        &self,
        caller: Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let mode = rename_mode(caller, flags).ok_or(Errno::INVAL)?;
        let (from_parent, to_parent) = (self.inode(from.0)?, self.inode(to.0)?);
        number(self.filesystem.rename(from_parent, from.1, to_parent, to.1, mode))
    }

    /// The nodes that this rename would give the name of another, and of which the kernel may have pages that it has not
    /// written back to us yet.
    pub(crate) fn unwritten_movers(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Vec<u64> {
        if flags & RENAME_NOREPLACE != 0 || !self.handles.has_writers() {
            return Vec::new();
        }
        let find = |(parent, name): (u64, &[u8])| {
            let entry = self.filesystem.lookup(self.inode(parent).ok()?, name).ok()??;
            Some(entry.inode)
        };
        let Some((source, target)) = find(from).zip(find(to)) else {
            return Vec::new();
        };
        let is_exchange = flags & RENAME_EXCHANGE != 0;
        let moved = [Some(source), is_exchange.then_some(target)].into_iter().flatten();
        moved.filter(|id| self.handles.has_writer(*id)).filter_map(|id| self.numbers.known(id)).collect()
    }

    fn remembered(&self, attributes: &Attributes) -> Stat {
        Stat::new(self.numbers.remember(attributes.id), attributes)
    }
}

fn rename_mode(caller: Caller, flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        RENAME_EXCHANGE => Some(RenameMode::Exchange),
        RENAME_WHITEOUT => Some(RenameMode::Whiteout { uid: caller.uid, gid: caller.gid }),
        _ => None,
    }
}
