//! Items on their way into a tree.

use brindle_ondisk::Key;
use std::ops::Range;

/// Items that are to enter a tree, in order.
#[derive(Debug, Default)]
pub(super) struct ItemQueue {
    pub(super) items: Vec<(Key, Range<usize>)>,
    pub(super) bytes: Vec<u8>,
}

impl ItemQueue {
    /// Adds an item behind the others.
    pub(super) fn push(&mut self, key: Key, parts: &[&[u8]]) {
        let start = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.items.push((key, start..self.bytes.len()));
    }

    /// The room that they take in leaves.
    pub(super) fn space(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<brindle_ondisk::ItemHeader>()
    }
}
