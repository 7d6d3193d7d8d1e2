//! Telling the kernel to forget.

use crate::operations::KernelCache;
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// The kernel, as it can be notified.
#[derive(Debug)]
pub(crate) struct NotifiedKernel(pub(crate) Notifier);

/// Attributes alone: no range of the contents.
const NO_CONTENTS: i64 = -1;
/// Length of a range that goes up to the end.
const TO_THE_END: i64 = 0;

impl KernelCache for NotifiedKernel {
    fn entry_changed(&self, parent: u64, name: &[u8]) {
        // A kernel that knows nothing of it has nothing to forget.
        if let Err(error) = self.0.inval_entry(INodeNo(parent), OsStr::from_bytes(name)) {
            tracing::debug!("{} in node {parent}: {error}", name.escape_ascii());
        }
    }

    fn attributes_changed(&self, node: u64) {
        if let Err(error) = self.0.inval_inode(INodeNo(node), NO_CONTENTS, 0) {
            tracing::debug!("node {node}: {error}");
        }
    }

    fn contents_changed(&self, node: u64, range: &Range<u64>) {
        let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
        let end = i64::try_from(range.end).ok();
        let length = end.map_or(TO_THE_END, |end| end.saturating_sub(offset));
        if let Err(error) = self.0.inval_inode(INodeNo(node), offset, length) {
            tracing::debug!("node {node}: {error}");
        }
    }
}
