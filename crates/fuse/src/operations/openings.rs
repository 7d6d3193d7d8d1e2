//! Opening and closing files.

use super::attributes::InodeAttributes;
use super::files::Files;
use super::invalidations::Invalidations;
use super::nodes::Nodes;
use crate::errno::number;
use crate::handles::Opened;
use crate::permission::Caller;
use brindle_fs::{AttributeChange, Attributes, Filesystem, InodeFlags, RootId};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;

/// Room below a limit of quotas from which on writes are handed over at once. The kernel's cache takes contents for which there may be
/// no room any more: of a mount by FUSE a hundredth of what may be dirty, which is a fifth of the memory.
const NEAR_LIMIT_BYTES: u64 = 256 << 20;

/// Openings of files.
#[derive(Debug)]
pub(crate) struct Openings {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    invalidations: Arc<Invalidations>,
    attributes: Arc<InodeAttributes>,
}

impl Openings {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        files: Arc<Files>,
        invalidations: Arc<Invalidations>,
        attributes: Arc<InodeAttributes>,
    ) -> Self {
        Self { filesystem, nodes, files, invalidations, attributes }
    }

    /// Opens a file. Answers its handle, and whether the kernel is to hand over each read and write at once, past its cache.
    pub(crate) fn open(&self, caller: Caller, node: u64, flags: OFlags) -> Result<(u64, bool), Errno> {
        let attributes = number(self.filesystem.attributes(self.nodes.inode(node)?))?;
        let is_truncated = flags.contains(OFlags::TRUNC);
        if is_truncated || flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            self.nodes.check_changeable(node)?;
            self.require_writable(&attributes, flags)?;
        }
        let is_marked = attributes.flags.contains(InodeFlags::SYNC);
        let mut how = Opened::from(flags);
        how.is_synchronous |= is_marked;
        let is_past_cache = how.writes && (is_marked || self.is_near_limit(attributes.id.tree))
            || self.nodes.is_incoming(node);
        how.is_past_cache |= is_past_cache;
        let handle = self.files.open_known(&attributes, how)?;
        if is_truncated {
            let change = AttributeChange { size: Some(0), ..AttributeChange::default() };
            if let Err(error) = self.attributes.set(caller, node, true, &change) {
                self.close(handle);
                return Err(error);
            }
            self.invalidations.note_write(node);
        }
        Ok((handle, is_past_cache))
    }

    /// Returns true if files of a subvolume are to be written past the kernel's cache, so that write(2) itself gets `EDQUOT`. What the
    /// cache has taken is refused too late: close(2) knows `ENOSPC` and `EIO` alone.
    pub(super) fn is_near_limit(&self, subvolume: RootId) -> bool {
        self.filesystem.pool().is_near_quota_limit(subvolume, NEAR_LIMIT_BYTES)
    }

    /// Ends the use of a handle. A request that still uses it closes the file when it is done.
    pub(crate) fn close(&self, handle: u64) {
        let Some(handle) = self.files.remove(handle) else { return };
        handle.end();
        if handle.writes() {
            // Before it closes a file, the kernel writes its pages back and tells their times.
            number(self.filesystem.confirm_times(handle.file.inode())).ok();
            if let Some(node) = self.nodes.known(handle.file.id()) {
                self.invalidations.correct_attributes(node);
            }
        }
        if let Some(handle) = Arc::into_inner(handle) {
            // The kernel does not wait for an answer.
            number(self.filesystem.close_file(handle.file)).ok();
        }
    }

    /// Refuses writes that the kernel does not know to refuse.
    fn require_writable(&self, attributes: &Attributes, flags: OFlags) -> Result<(), Errno> {
        if attributes.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM);
        }
        let only_adds = flags.contains(OFlags::APPEND) && !flags.contains(OFlags::TRUNC);
        if attributes.flags.contains(InodeFlags::APPEND) && !only_adds {
            return Err(Errno::PERM);
        }
        if !self.filesystem.is_writable() {
            return Err(Errno::ROFS);
        }
        let is_read_only = number(self.filesystem.is_subvolume_read_only(attributes.id.tree))?;
        if is_read_only { Err(Errno::ROFS) } else { Ok(()) }
    }
}
