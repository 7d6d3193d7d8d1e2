//! Names in directories: looked up, made, moved, removed.

use super::durability::Durability;
use super::files::Files;
use super::nodes::Nodes;
use super::openings::Openings;
use crate::attributes::Stat;
use crate::errno::number;
use crate::handles::Opened;
use crate::permission::{Caller, Ids};
use brindle_fs::{Filesystem, InodeId, NewInode, RenameMode};
use rustix::io::Errno;
use std::sync::Arc;

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

/// Names of the mount.
#[derive(Debug)]
pub(crate) struct Names {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    durability: Arc<Durability>,
    openings: Arc<Openings>,
}

impl Names {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        files: Arc<Files>,
        durability: Arc<Durability>,
        openings: Arc<Openings>,
    ) -> Self {
        Self { filesystem, nodes, files, durability, openings }
    }

    /// A name in a directory; `None` if there is no such. The kernel remembers what it is told of. By `.` it asks for a node
    /// that it has only a file handle of, and by `..` for the parent of such a directory.
    pub(crate) fn lookup(&self, directory: u64, name: &[u8]) -> Result<Option<Stat>, Errno> {
        let directory = self.nodes.inode(directory)?;
        if let b"." | b".." = name {
            return self.lookup_by_handle(directory, name == b"..");
        }
        let Some(entry) = number(self.filesystem.lookup(directory, name))? else {
            return Ok(None);
        };
        let attributes = number(self.filesystem.attributes(entry.inode))?;
        Ok(Some(self.nodes.remembered(&attributes)))
    }

    fn lookup_by_handle(&self, id: InodeId, is_parent_asked: bool) -> Result<Option<Stat>, Errno> {
        let id = match is_parent_asked {
            true if id == self.filesystem.root() => id,
            true => number(self.filesystem.parent_directory(id))?.ok_or(Errno::STALE)?,
            false => id,
        };
        let attributes = number(self.filesystem.attributes(id))?;
        // Nothing that the kernel knows holds it: it is on its way out.
        if attributes.nlink == 0 {
            return Err(Errno::STALE);
        }
        Ok(Some(self.nodes.remembered(&attributes)))
    }

    /// Makes a file, directory, symbolic link or special file. The kernel remembers it.
    pub(crate) fn create(&self, parent: u64, name: &[u8], new: &NewInode<'_>) -> Result<Stat, Errno> {
        let parent = self.nodes.inode(parent)?;
        let made = number(self.filesystem.create(parent, name, new))?;
        self.durability.settle_names(&[parent])?;
        Ok(self.nodes.remembered(&made))
    }

    /// Makes a file and opens it, perhaps to write it. The kernel remembers both.
    pub(crate) fn create_open(
        &self,
        parent: u64,
        name: &[u8],
        new: &NewInode<'_>,
        how: Opened,
    ) -> Result<(Stat, u64), Errno> {
        let how = self.opened_in(parent, how)?;
        let parent = self.nodes.inode(parent)?;
        let (made, file) = number(self.filesystem.create_open(parent, name, new))?;
        let handle = self.files.add(file, how);
        if let Err(error) = self.durability.settle_names(&[parent]) {
            self.openings.close(handle);
            return Err(error);
        }
        Ok((self.nodes.remembered(&made), handle))
    }

    /// Makes a file without a name and opens it (`O_TMPFILE`). The kernel remembers both. The file stays until the kernel has
    /// forgotten it, or gets a name by [`link`](Self::link).
    pub(crate) fn create_unnamed(
        &self,
        parent: u64,
        new: &NewInode<'_>,
        how: Opened,
    ) -> Result<(Stat, u64), Errno> {
        let how = self.opened_in(parent, how)?;
        let (made, hold) = number(self.filesystem.create_unnamed(self.nodes.inode(parent)?, new))?;
        let file = match number(self.filesystem.open_known(&made)) {
            Ok(file) => file,
            Err(error) => {
                number(self.filesystem.release(hold))?;
                return Err(error);
            }
        };
        let stat = self.nodes.remembered(&made);
        self.nodes.keep(stat.node, hold);
        Ok((stat, self.files.add(file, how)))
    }

    /// Way in which a file is opened that is made in this directory.
    fn opened_in(&self, parent: u64, mut how: Opened) -> Result<Opened, Errno> {
        how.is_past_cache |= self.nodes.is_incoming(parent)
            || how.writes && self.openings.is_near_limit(self.nodes.inode(parent)?.tree);
        Ok(how)
    }

    /// Gives a node one more name. The kernel is told of it once more.
    pub(crate) fn link(&self, node: u64, parent: u64, name: &[u8]) -> Result<Stat, Errno> {
        let (id, parent) = (self.nodes.inode(node)?, self.nodes.inode(parent)?);
        let linked = number(self.filesystem.link(id, parent, name))?;
        self.durability.settle_names(&[parent])?;
        Ok(self.nodes.remembered(&linked))
    }

    pub(crate) fn unlink(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.nodes.inode(parent)?;
        let leaving = self.nodes.hold_leaving(parent, name);
        number(self.filesystem.unlink(parent, name))?;
        self.nodes.keep_nameless(leaving);
        self.durability.settle_names(&[parent])
    }

    pub(crate) fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.nodes.inode(parent)?;
        let leaving = self.nodes.hold_leaving(parent, name);
        number(self.filesystem.remove_directory(parent, name))?;
        self.nodes.keep_nameless(leaving);
        self.durability.settle_names(&[parent])
    }

    pub(crate) fn rename(&self, rename: &Rename) -> Result<(), Errno> {
        let Rename { from, to, .. } = rename;
        let mode = rename.mode().ok_or(Errno::INVAL)?;
        let (from_parent, to_parent) = (self.nodes.inode(from.parent)?, self.nodes.inode(to.parent)?);
        let replaces = matches!(mode, RenameMode::Replace | RenameMode::Whiteout { replaces: true, .. });
        let leaving = if replaces { self.nodes.hold_leaving(to_parent, &to.name) } else { None };
        number(self.filesystem.rename(from_parent, &from.name, to_parent, &to.name, mode))?;
        self.nodes.keep_nameless(leaving);
        self.durability.settle_names(&[from_parent, to_parent])
    }

    /// The nodes that this rename would give the name of another, and of which the kernel may have pages that it has not
    /// written back to us yet.
    pub(crate) fn unwritten_movers(&self, rename: &Rename) -> Vec<u64> {
        if rename.flags & RENAME_NOREPLACE != 0 || !self.files.has_writers() {
            return Vec::new();
        }
        let find = |place: &Place| {
            let entry = self.filesystem.lookup(self.nodes.inode(place.parent).ok()?, &place.name).ok()??;
            Some(entry.inode)
        };
        let Some((source, target)) = find(&rename.from).zip(find(&rename.to)) else {
            return Vec::new();
        };
        let is_exchange = rename.flags & RENAME_EXCHANGE != 0;
        let moved = [Some(source), is_exchange.then_some(target)].into_iter().flatten();
        moved.filter(|id| self.files.is_written(*id)).filter_map(|id| self.nodes.known(id)).collect()
    }
}

impl Rename {
    fn mode(&self) -> Option<RenameMode> {
        match self.flags {
            0 => Some(RenameMode::Replace),
            RENAME_NOREPLACE => Some(RenameMode::NoReplace),
            RENAME_EXCHANGE => Some(RenameMode::Exchange),
            flags if flags & !RENAME_NOREPLACE == RENAME_WHITEOUT => {
                let Ids { uid, gid } = self.caller.maker();
                Some(RenameMode::Whiteout { replaces: flags & RENAME_NOREPLACE == 0, uid, gid })
            }
            _ => None,
        }
    }
}
