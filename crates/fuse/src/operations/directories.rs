//! Open directories, and listing what they hold.

use super::access_times::AccessTimes;
use super::nodes::Nodes;
use crate::attributes::{Stat, offset_behind};
use crate::directory_handles::{DirectoryHandle, DirectoryHandles};
use crate::errno::{errno_of, number};
use brindle_fs::{DirectoryEntry, FileType, Filesystem, InodeId};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Number of entries of a directory that are fetched at once. A buffer of 32 KiB, the size that C libraries use,
/// holds some 190 entries with their attributes.
pub(super) const DIRECTORY_BATCH: usize = 64;

/// An entry of a directory, as a listing shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: u64,
    pub(crate) kind: FileType,
    /// Offset at which the listing goes on after it.
    pub(crate) offset: u64,
    /// Its attributes, if they were asked for and can be had.
    pub(crate) stat: Option<Stat>,
}

/// Takes an entry; breaks when it has no room for it.
pub(crate) type Emit<'a> = dyn FnMut(Listed<'_>) -> ControlFlow<()> + 'a;

/// Directories of the mount.
#[derive(Debug)]
pub(crate) struct Directories {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    access_times: Arc<AccessTimes>,
    handles: DirectoryHandles,
}

impl Directories {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        access_times: Arc<AccessTimes>,
    ) -> Self {
        Self { filesystem, nodes, access_times, handles: DirectoryHandles::default() }
    }

    /// Opens a directory, which stays until it is closed. Answers its handle, and whether the kernel is to keep what is
    /// listed by it.
    pub(crate) fn open(&self, node: u64) -> Result<(u64, bool), Errno> {
        let handle = DirectoryHandle::new(number(self.filesystem.acquire(self.nodes.inode(node)?))?);
        let fills_cache = handle.fills_cache() && !self.nodes.is_incoming(node);
        Ok((self.handles.add(handle), fills_cache))
    }

    /// Ends the use of a directory's handle.
    pub(crate) fn close(&self, handle: u64) {
        if let Some(handle) = self.handles.remove(handle) {
            handle.end();
            // A listing that is under way ends the use when it is done, in the background.
            if let Some(handle) = Arc::into_inner(handle) {
                // The kernel does not wait for an answer.
                number(self.filesystem.release(handle.inode)).ok();
            }
        }
    }

    /// Lists a directory from `offset` on, up to the handle's bound (0 stands for no handle, and no bound). With
    /// attributes, the kernel remembers every node that was taken, but for `.` and `..`.
    pub(crate) fn list(
        &self,
        (node, handle): (u64, u64),
        offset: u64,
        with_attributes: bool,
        emit: &mut Emit<'_>,
    ) -> Result<(), Errno> {
        let directory = self.nodes.inode(node)?;
        if offset == 0 {
            self.access_times.note_listing(directory);
        }
        // Before anything is listed: what the kernel keeps has all that was there when it asked.
        let bound = match self.handles.get(handle) {
            Some(handle) => handle.bound(offset, || number(self.filesystem.last_index(directory)))?,
            None => u64::MAX,
        };
        if offset < 2 && self.list_dots(directory, offset, emit)?.is_break() {
            return Ok(());
        }
        let mut after = offset.max(2) - 1;
        loop {
            let entries = match self.entries(directory, after) {
                Err(_) if after >= offset.max(2) => return Ok(()),
                entries => entries?,
            };
            let entries = &entries[..entries.partition_point(|entry| entry.index <= bound)];
            let is_stopped = if with_attributes {
                self.list_with_attributes(entries, emit)
            } else {
                self.list_names(entries, emit)
            };
            match entries.last() {
                Some(last) if is_stopped.is_continue() && entries.len() == DIRECTORY_BATCH => {
                    after = last.index;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Entries behind an index. Those before a place that can't be read are told first; then the listing fails there.
    fn entries(&self, directory: InodeId, after: u64) -> Result<Vec<DirectoryEntry>, Errno> {
        let error = match self.filesystem.read_directory(directory, after, DIRECTORY_BATCH) {
            Ok(entries) => return Ok(entries),
            Err(error) => errno_of(&error),
        };
        let (entries, _) = self.filesystem.read_damaged_directory(directory, after, DIRECTORY_BATCH);
        if entries.is_empty() { Err(error) } else { Ok(entries) }
    }

    fn list_dots(
        &self,
        directory: InodeId,
        offset: u64,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>, Errno> {
        let mut show = |name, id, offset| {
            let ino = self.nodes.shown(id);
            emit(Listed { name, ino, kind: FileType::Directory, offset, stat: None })
        };
        if offset == 0 && show(b".", directory, 1).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let parent = if directory == self.filesystem.root() {
            Ok(Some(directory))
        } else {
            self.filesystem.parent_directory(directory)
        };
        // A directory without a place still has entries to list.
        let parent = parent.map_err(|error| errno_of(&error))?.unwrap_or(directory);
        Ok(show(b"..", parent, 2))
    }

    fn list_names(&self, entries: &[DirectoryEntry], emit: &mut Emit<'_>) -> ControlFlow<()> {
        for entry in entries {
            let (ino, offset) = (self.nodes.shown(entry.inode), offset_behind(entry));
            emit(Listed { name: &entry.name, ino, kind: entry.kind, offset, stat: None })?;
        }
        ControlFlow::Continue(())
    }

    fn list_with_attributes(&self, entries: &[DirectoryEntry], emit: &mut Emit<'_>) -> ControlFlow<()> {
        let inodes: Vec<_> = entries.iter().map(|entry| entry.inode).collect();
        let attributes = self.filesystem.attributes_of(&inodes);
        for (entry, attributes) in entries.iter().zip(attributes) {
            let node = self.nodes.remember(entry.inode, entry.kind);
            let ino = self.nodes.shown(entry.inode);
            let stat = match attributes {
                Ok(attributes) => Some(self.nodes.stat_of(node, &attributes)),
                Err(error) => {
                    errno_of(&error);
                    // The kernel is not told of the node.
                    self.nodes.forget_unanswered(node);
                    None
                }
            };
            let offset = offset_behind(entry);
            let taken = emit(Listed { name: &entry.name, ino, kind: entry.kind, offset, stat });
            if taken.is_break() {
                if stat.is_some() {
                    self.nodes.forget_unanswered(node);
                }
                return taken;
            }
        }
        ControlFlow::Continue(())
    }
}
