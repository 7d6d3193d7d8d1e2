//! Nodes: inodes by the numbers that the kernel knows them by, for as long as it does.

use super::incoming::Incoming;
use super::mode::MountMode;
use crate::attributes::Stat;
use crate::errno::number;
use crate::inode_number::InodeNumbers;
use crate::nameless::NamelessNodes;
use brindle_fs::{Attributes, FileType, Filesystem, InodeHold, InodeId};
use rustix::io::Errno;
use std::sync::Arc;

/// The number shown for an inode that has none yet (libfuse's `FUSE_UNKNOWN_INO`).
const UNKNOWN_INO: u64 = 0xffff_ffff;

/// The kernel's nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    filesystem: Arc<Filesystem>,
    mode: Arc<MountMode>,
    incoming: Arc<Incoming>,
    numbers: InodeNumbers,
    nameless: NamelessNodes,
}

/// An inode whose name is about to go, with its node.
pub(super) struct Leaving {
    node: u64,
    hold: InodeHold,
}

impl Nodes {
    pub(super) fn new(filesystem: Arc<Filesystem>, mode: Arc<MountMode>, incoming: Arc<Incoming>) -> Self {
        let numbers = InodeNumbers::new(filesystem.root());
        Self { filesystem, mode, incoming, numbers, nameless: NamelessNodes::default() }
    }

    /// The inode of a node.
    pub(super) fn inode(&self, node: u64) -> Result<InodeId, Errno> {
        self.numbers.inode(node).ok_or(Errno::STALE)
    }

    /// Returns true if the kernel is to keep nothing of a node: its subvolume is being received, or was when the kernel was told of
    /// the node.
    pub(crate) fn is_incoming(&self, node: u64) -> bool {
        self.is_received(node) || self.numbers.is_incoming(node)
    }

    fn is_received(&self, node: u64) -> bool {
        self.incoming.is_any() && self.inode(node).is_ok_and(|id| self.incoming.has(id.tree))
    }

    /// Refuses to change contents by a node that a file had while its subvolume was being received, afterwards: the kernel has
    /// another one for the file, whose pages and size would not follow.
    pub(super) fn check_changeable(&self, node: u64) -> Result<(), Errno> {
        if !self.numbers.is_incoming(node) || self.is_received(node) {
            return Ok(());
        }
        let is_read_only = number(self.filesystem.is_subvolume_read_only(self.inode(node)?.tree))?;
        Err(if is_read_only { Errno::ROFS } else { Errno::IO })
    }

    /// Node of an inode; `None` if the kernel can't know it.
    pub(super) fn known(&self, id: InodeId) -> Option<u64> {
        let incoming = if self.incoming.has(id.tree) { self.numbers.incoming(id) } else { None };
        incoming.or_else(|| self.numbers.known(id))
    }

    /// The number that stat(2) and listings show.
    pub(super) fn shown(&self, id: InodeId) -> u64 {
        self.numbers.shown(id).unwrap_or(UNKNOWN_INO)
    }

    /// Attributes of a node.
    pub(crate) fn stat(&self, node: u64) -> Result<Stat, Errno> {
        let id = self.inode(node)?;
        let attributes = number(self.filesystem.attributes(id))?;
        Ok(self.stat_of(node, &attributes))
    }

    /// Attributes of a node, which are known.
    pub(super) fn stat_of(&self, node: u64, attributes: &Attributes) -> Stat {
        Stat { node, ..Stat::new(self.shown(attributes.id), attributes) }
    }

    /// Node of an inode that the kernel is told of, and remembers.
    pub(super) fn remember(&self, id: InodeId, kind: FileType) -> u64 {
        if kind == FileType::Regular && self.incoming.has(id.tree) {
            self.numbers.remember_incoming(id)
        } else {
            self.numbers.remember(id)
        }
    }

    /// Attributes for an answer by which the kernel remembers the node.
    pub(super) fn remembered(&self, attributes: &Attributes) -> Stat {
        self.stat_of(self.remember(attributes.id, attributes.kind), attributes)
    }

    /// Notes that the kernel has forgotten a node this many times. Returns the hold that was kept for it, to be
    /// [released](Self::release).
    pub(super) fn forget(&self, node: u64, lookups: u64) -> Option<InodeHold> {
        self.numbers.forget(node, lookups);
        self.nameless.take(node)
    }

    /// Forgets a lookup whose answer the kernel did not get. It may know the node by others.
    pub(crate) fn forget_unanswered(&self, node: u64) {
        self.numbers.forget(node, 1);
    }

    /// Keeps an inode without a name until the kernel forgets the node.
    pub(super) fn keep(&self, node: u64, hold: InodeHold) {
        self.nameless.keep(node, hold);
    }

    /// Holds the inode of a name that is about to go; `None` if there is none, or the kernel can't know it.
    pub(super) fn hold_leaving(&self, parent: InodeId, name: &[u8]) -> Option<Leaving> {
        if !self.mode.is_written() {
            return None;
        }
        // Whatever fails here the operation itself is to tell.
        let entry = self.filesystem.lookup(parent, name).ok()??;
        let node = self.known(entry.inode)?;
        Some(Leaving { node, hold: self.filesystem.acquire(entry.inode).ok()? })
    }

    /// Keeps an inode whose name has gone, if that was its last one.
    pub(super) fn keep_nameless(&self, left: Option<Leaving>) {
        if let Some(Leaving { node, hold }) = left {
            if self.filesystem.attributes(hold.id()).is_ok_and(|attributes| attributes.nlink == 0) {
                self.keep(node, hold);
            }
        }
    }

    /// Removes an inode that has no name, and that the kernel has forgotten.
    pub(crate) fn release(&self, hold: InodeHold) {
        // The kernel does not wait for an answer; what fails here the next opening of the pool does.
        number(self.filesystem.release(hold)).ok();
    }

    /// Removes what was kept for the kernel, which asks for nothing any more.
    pub(super) fn release_all(&self) {
        self.nameless.take_all().into_iter().for_each(|hold| self.release(hold));
    }
}
