//! Contents that were not taken: which writers are told, and until when.

use super::files::Files;
use super::invalidations::Invalidations;
use super::nodes::Nodes;
use crate::errno::number;
use crate::refusals::{Refusal, Refusals};
use brindle_fs::{Filesystem, InodeFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Refusals of contents that the kernel had taken from programs.
#[derive(Debug)]
pub(crate) struct WriteRefusals {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    invalidations: Arc<Invalidations>,
    refusals: Refusals,
}

impl WriteRefusals {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        files: Arc<Files>,
        invalidations: Arc<Invalidations>,
    ) -> Self {
        Self { filesystem, nodes, files, invalidations, refusals: Refusals::default() }
    }

    /// Data was not taken that the kernel had taken from a program: the next write to the file is to tell that. (Of an
    /// append-only file all is taken that was added, and another program may be the next to write. The next sync tells.)
    pub(crate) fn note(&self, node: u64, errno: Errno, bytes: u64) {
        if errno != Errno::PERM {
            self.refusals.note(node, Refusal { errno, bytes });
        }
        self.invalidations.attributes_changed(node);
    }

    /// Returns true if something was refused of a file, so that the kernel is to ask us before each write.
    pub(crate) fn has(&self, node: u64) -> bool {
        self.refusals.get(node).is_some()
    }

    /// The error to report to this handle before its next write. May take long.
    pub(crate) fn error_for(&self, node: u64, handle: u64) -> Option<Errno> {
        let refusal = self.refusals.get(node)?;
        if !self.files.get(handle)?.writes() {
            return None;
        }
        let error = match self.still_refused(node, refusal) {
            Ok(error) => error,
            Err(error) => Some(error),
        };
        let is_told_again = match error {
            Some(Errno::NOSPC | Errno::DQUOT) => !self.may_need_no_room(node),
            Some(Errno::ROFS) => true,
            // What is no matter of space or of the whole mount may be otherwise the next time: it is told once.
            _ => false,
        };
        if !is_told_again {
            self.refusals.forget(node);
        }
        error
    }

    /// Returns true if some parts of a file may be written in place. The kernel does not say which part it asks for,
    /// so the error is reported once to writers of such a file, and does not keep them from writes that need no room.
    fn may_need_no_room(&self, node: u64) -> bool {
        let attributes = self.nodes.inode(node).and_then(|id| number(self.filesystem.attributes(id)));
        let in_place = InodeFlags::NODATACOW | InodeFlags::PREALLOC;
        attributes.is_ok_and(|attributes| attributes.flags.intersects(in_place))
    }

    /// The error that what was refused would meet with now.
    fn still_refused(&self, node: u64, refusal: Refusal) -> Result<Option<Errno>, Errno> {
        let is_over = match refusal.errno {
            Errno::NOSPC | Errno::DQUOT => {
                number(self.filesystem.has_room(self.nodes.inode(node)?, refusal.bytes))?
            }
            Errno::ROFS => {
                let tree = self.nodes.inode(node)?.tree;
                self.filesystem.is_writable() && !number(self.filesystem.is_subvolume_read_only(tree))?
            }
            _ => false,
        };
        Ok((!is_over).then_some(refusal.errno))
    }

    /// Forgets a node, as the kernel does.
    pub(super) fn forget(&self, node: u64) {
        self.refusals.forget(node);
    }
}
