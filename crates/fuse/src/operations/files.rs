//! Files in use: those that the kernel has opened, and those that it reads without.

use super::mode::MountMode;
use super::nodes::Nodes;
use crate::errno::number;
use crate::handles::{Handle, Handles, Opened};
use crate::open_files::OpenFiles;
use brindle_fs::{Attributes, Filesystem, FsError, InodeId, OpenFile, RootId};
use rustix::io::Errno;
use std::sync::Arc;

/// Files in use.
#[derive(Debug)]
pub(crate) struct Files {
    filesystem: Arc<Filesystem>,
    mode: Arc<MountMode>,
    nodes: Arc<Nodes>,
    /// Files that have been opened.
    handles: Handles,
    /// Files that are read without having been opened.
    unopened: OpenFiles,
}

impl Files {
    pub(super) fn new(filesystem: Arc<Filesystem>, mode: Arc<MountMode>, nodes: Arc<Nodes>) -> Self {
        Self { filesystem, mode, nodes, handles: Handles::default(), unopened: OpenFiles::default() }
    }

    /// Opens a file whose attributes are known. Returns its handle.
    pub(super) fn open_known(&self, attributes: &Attributes, how: Opened) -> Result<u64, Errno> {
        let file = number(self.filesystem.open_known(attributes))?;
        Ok(self.add(file, how))
    }

    /// Gives an open file a handle.
    pub(super) fn add(&self, file: OpenFile, how: Opened) -> u64 {
        self.handles.add(Handle::new(file, how))
    }

    /// Takes a handle back.
    pub(super) fn remove(&self, handle: u64) -> Option<Arc<Handle>> {
        self.handles.remove(handle)
    }

    /// The open file of a handle.
    pub(super) fn get(&self, handle: u64) -> Option<Arc<Handle>> {
        self.handles.get(handle)
    }

    /// The open file that a request names; `None` if it names none.
    pub(super) fn handle(&self, handle: u64) -> Result<Option<Arc<Handle>>, Errno> {
        if handle == 0 { Ok(None) } else { self.handles.get(handle).map(Some).ok_or(Errno::BADF) }
    }

    /// Does something with an open file; with one opened for the occasion, if the kernel names no handle.
    pub(super) fn with_file<T>(
        &self,
        node: u64,
        handle: u64,
        act: impl FnOnce(&OpenFile) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        match self.handle(handle)? {
            Some(handle) => number(act(&handle.file)),
            None => number(act(&*self.without_handle(node)?)),
        }
    }

    /// The same with an open file that is about to be changed.
    pub(super) fn with_changed_file<T>(
        &self,
        node: u64,
        handle: u64,
        act: impl FnOnce(&OpenFile) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        self.nodes.check_changeable(node)?;
        self.with_file(node, handle, act)
    }

    /// The file of a node, opened if need be. It is kept for the next request only where no file can lose its name: an
    /// open file keeps its inode.
    pub(super) fn without_handle(&self, node: u64) -> Result<Arc<OpenFile>, Errno> {
        let id = self.nodes.inode(node)?;
        let open = || self.filesystem.open_file(id);
        number(if self.mode.is_written() { open().map(Arc::new) } else { self.unopened.get(node, open) })
    }

    /// Returns true if the kernel may have pages of a node that it has not written back to us yet.
    pub(crate) fn has_writer(&self, node: u64) -> Result<bool, Errno> {
        Ok(self.mode.is_written() && self.is_written(self.nodes.inode(node)?))
    }

    /// Returns true if an inode is open to be written.
    pub(super) fn is_written(&self, id: InodeId) -> bool {
        self.handles.has_writer(id)
    }

    /// Returns true if anything is open to be written.
    pub(super) fn has_writers(&self) -> bool {
        self.handles.has_writers()
    }

    /// Returns true if an inode is open to be written, and not only to append.
    pub(super) fn has_overwriter(&self, id: InodeId) -> bool {
        self.handles.has_overwriter(id)
    }

    /// The inodes that are open to be written, each once; of one subvolume, if one is named.
    pub(super) fn written(&self, only: Option<RootId>) -> Vec<InodeId> {
        self.handles.written(only)
    }

    /// Returns true if reads and writes by this handle go past the kernel's page cache.
    pub(crate) fn is_past_cache(&self, handle: u64) -> bool {
        self.handles.get(handle).is_some_and(|handle| handle.is_past_cache())
    }

    /// Returns true if pages of the kernel's cache may have become older than what was written by this handle: another
    /// opening may have filled them while the write was under way.
    pub(crate) fn writes_behind_cache(&self, handle: u64) -> bool {
        self.handles.get(handle).is_some_and(|handle| handle.writes_behind_cache())
    }

    /// Files that are kept open without a handle.
    #[cfg(test)]
    pub(super) fn unopened_count(&self) -> usize {
        self.unopened.len()
    }
}
