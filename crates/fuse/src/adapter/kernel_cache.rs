//! Telling the kernel to forget.

use crate::control_thread::OwnThread;
use crate::operations::invalidations::KernelCache;
use brindle_transport::Notifier;
use std::ops::Range;

/// The kernel, as it can be notified.
#[derive(Debug)]
pub(crate) struct NotifiedKernel(pub(crate) Notifier);

impl KernelCache for NotifiedKernel {
    fn entry_changed(&self, _: &OwnThread, parent: u64, name: &[u8]) {
        // A kernel that knows nothing of it has nothing to forget.
        if let Err(error) = self.0.entry_changed(parent, name) {
            tracing::debug!("{} in node {parent}: {error}", name.escape_ascii());
        }
    }

    fn attributes_changed(&self, node: u64) {
        if let Err(error) = self.0.attributes_changed(node) {
            tracing::debug!("node {node}: {error}");
        }
    }

    fn contents_changed(&self, _: &OwnThread, node: u64, range: &Range<u64>) {
        if let Err(error) = self.0.contents_changed(node, range) {
            tracing::debug!("node {node}: {error}");
        }
    }
}
