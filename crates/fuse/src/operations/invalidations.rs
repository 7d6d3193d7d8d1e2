//! Changes that the kernel is told of, for they happen without its doing.

use super::nodes::Nodes;
use crate::attributes::Stat;
use crate::control_thread::OwnThread;
use crate::recent_writes::RecentWrites;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Cache of the kernel, of which it must drop what changes without its doing.
pub(crate) trait KernelCache: fmt::Debug + Send + Sync {
    /// Drops a name. May wait for threads that work in that directory.
    fn entry_changed(&self, own: &OwnThread, parent: u64, name: &[u8]);
    /// Drops the attributes of a node. Does not wait.
    fn attributes_changed(&self, node: u64);
    /// Drops contents of a node, to the end if the range ends with the last number there is. Unwritten pages are
    /// written back first. Waits for those that are being read or written.
    fn contents_changed(&self, own: &OwnThread, node: u64, range: &Range<u64>);
}

/// Cache of the kernel, and what it was told of files that were written lately.
#[derive(Debug)]
pub(crate) struct Invalidations {
    nodes: Arc<Nodes>,
    /// Set as soon as the mount is served.
    cache: OnceLock<Box<dyn KernelCache>>,
    recent_writes: RecentWrites,
}

/// Round of writes that are being made durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round(u64);

impl Invalidations {
    pub(super) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, cache: OnceLock::new(), recent_writes: RecentWrites::default() }
    }

    /// Sets the cache of the kernel, which can be told of changes from now on.
    pub(crate) fn set_kernel_cache(&self, cache: Box<dyn KernelCache>) {
        assert!(self.cache.set(cache).is_ok(), "a mount is served once");
    }

    /// Drops a name, and what depends on it in the attributes of its directory.
    pub(super) fn entry_changed(&self, own: &OwnThread, parent: u64, name: &[u8]) {
        if let Some(cache) = self.cache.get() {
            cache.entry_changed(own, parent, name);
            cache.attributes_changed(parent);
        }
    }

    /// Drops the attributes of a node.
    pub(super) fn attributes_changed(&self, node: u64) {
        if let Some(cache) = self.cache.get() {
            cache.attributes_changed(node);
        }
    }

    /// Drops contents of a range: the kernel writes back to us what it has changed, and forgets the rest.
    pub(super) fn contents_changed(&self, own: &OwnThread, node: u64, range: &Range<u64>) {
        if let Some(cache) = self.cache.get() {
            cache.contents_changed(own, node, range);
        }
    }

    /// Notes a write: the kernel must not keep what it knows of the space that this file takes.
    pub(super) fn note_write(&self, node: u64) {
        if self.recent_writes.note(node) {
            self.attributes_changed(node);
        }
    }

    /// Notes that the kernel is told attributes of a file. Returns true if the file was written lately.
    pub(super) fn note_told(&self, stat: &Stat) -> bool {
        self.recent_writes.tell(stat.node, stat.blocks)
    }

    /// Makes the kernel drop the allocated size of a file, if it was told another.
    pub(super) fn correct_attributes(&self, node: u64) {
        if let Some(cache) = self.cache.get() {
            if self.recent_writes.is_told(node) {
                if let Ok(stat) = self.nodes.stat(node) {
                    if self.recent_writes.begin_correction(node, stat.blocks, Instant::now()) {
                        cache.attributes_changed(node);
                    }
                }
            }
        }
    }

    /// Begins a round, before all that was written is brought to the devices. Returns the one that ends.
    pub(super) fn begin_round(&self) -> Round {
        Round(self.recent_writes.begin_round())
    }

    /// Ends a round: what was written in it or before is on the devices.
    pub(super) fn end_round(&self, round: Round) {
        self.recent_writes.forget_until(round.0);
    }
}
