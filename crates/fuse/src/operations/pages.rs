//! Pages of files that the kernel has in its cache.

use super::files::Files;
use super::invalidations::Invalidations;
use super::nodes::Nodes;
use crate::attributes::Stat;
use crate::control_thread::OwnThread;
use brindle_fs::RootId;
use std::ops::Range;
use std::sync::Arc;

/// Pages in the kernel's cache.
#[derive(Debug)]
pub(crate) struct KernelPages {
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    invalidations: Arc<Invalidations>,
}

impl KernelPages {
    pub(super) fn new(nodes: Arc<Nodes>, files: Arc<Files>, invalidations: Arc<Invalidations>) -> Self {
        Self { nodes, files, invalidations }
    }

    /// Makes the kernel drop contents of a range: it writes back to us what it has changed, and forgets the rest.
    pub(crate) fn forget(&self, own: &OwnThread, node: u64, range: &Range<u64>) {
        self.invalidations.contents_changed(own, node, range);
    }

    /// Makes the kernel hand over the pages that it holds of files open to be written, of one subvolume if one is named. The
    /// kernel's own syncfs(2) only begins that on a FUSE mount, and returns with the requests under way.
    pub(super) fn gather(&self, own: &OwnThread, only: Option<RootId>) {
        for id in self.files.written(only) {
            if let Some(node) = self.nodes.known(id) {
                self.forget(own, node, &(0..u64::MAX));
            }
        }
    }

    /// Notes that the kernel is told attributes of a file. Returns true if they may change without the kernel's doing: the file
    /// was written lately, or may be without our knowing.
    pub(crate) fn tells_unsettled(&self, stat: &Stat) -> bool {
        self.invalidations.note_told(stat) || self.files.has_writer(stat.node).unwrap_or(false)
    }
}
