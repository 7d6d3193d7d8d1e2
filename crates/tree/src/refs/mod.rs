//! Delayed references: who refers to an extent, collected in memory, merged, and applied to the extent tree.

use crate::{Editor, Tree, TreeError};
use brindle_ondisk::item::{ExtentDataRef, ExtentFlags};
use brindle_ondisk::{Logical, Node, RootId};
use std::sync::Arc;

/// A range of data on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Where it begins.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
}

/// Changes of references that the extent tree does not have yet.
#[derive(Debug, Default)]
pub(crate) struct DelayedRefs {}

/// Who refers to a block, as the extent tree will have it once everything delayed is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockReferences {
    pub(crate) count: u64,
    pub(crate) flags: ExtentFlags,
}

impl DelayedRefs {
    /// How many extents have changes waiting.
    pub(crate) fn len(&self) -> usize {
        todo!()
    }
}

impl Editor<'_> {
    /// A file of a subvolume refers to an extent: `reference.count` times more. `is_new`: the extent was reserved
    /// and never referred to before.
    pub fn add_data_reference(&self, range: DataRange, reference: &ExtentDataRef, is_new: bool) {
        let _ = (range, reference, is_new);
        todo!()
    }

    /// A file of a subvolume refers to an extent `reference.count` times less. The last one frees it, with its
    /// checksums.
    pub fn drop_data_reference(&self, range: DataRange, reference: &ExtentDataRef) {
        let _ = (range, reference);
        todo!()
    }

    /// How many references an extent of data has, those not applied yet included; 0 if it is not known.
    pub fn data_references(&self, range: DataRange) -> Result<u64, TreeError> {
        let _ = range;
        todo!()
    }

    /// Adds checksums of consecutive sectors, one after the other.
    pub fn insert_checksums(&self, start: Logical, checksums: &[u8]) -> Result<(), TreeError> {
        let _ = (start, checksums);
        todo!()
    }

    /// Removes the checksums of a range.
    pub fn remove_checksums(&self, range: DataRange) -> Result<(), TreeError> {
        let _ = range;
        todo!()
    }

    /// `new` (virtual) takes the place of `old` in a tree. `may_be_shared`: `old` is not the root, and old enough to be
    /// part of a snapshot.
    pub(crate) fn block_copied(
        &self,
        tree: RootId,
        old: &Arc<Node>,
        new: &Node,
        may_be_shared: bool,
    ) -> Result<(), TreeError> {
        let _ = (tree, old, new, may_be_shared);
        todo!()
    }

    /// A block with a real address leaves its tree, after it has been copied (so that nobody shares it).
    pub(crate) fn block_dropped(&self, tree: RootId, block: &Node) {
        let _ = (tree, block);
        todo!()
    }

    /// A new block has got its real address.
    pub(crate) fn block_assigned(&self, tree: RootId, block: &Node) {
        let _ = (tree, block);
        todo!()
    }

    /// Who refers to a block of a real address.
    pub(crate) fn block_references(&self, at: Logical, level: u8) -> Result<BlockReferences, TreeError> {
        let _ = (at, level);
        todo!()
    }

    /// Applies what waits, at most `limit` extents; how many it were.
    pub(crate) fn run_delayed_refs(&self, limit: usize) -> Result<usize, TreeError> {
        let _ = limit;
        todo!()
    }

    /// Every block and extent that a node refers to gets one more reference of a new tree (a snapshot's root).
    pub(crate) fn share_children(&self, copy: &Node) -> Result<(), TreeError> {
        let _ = copy;
        todo!()
    }

    /// Drops part of a deleted tree: at most about `budget` blocks, progress kept in its root item; whether it is
    /// gone (its root item too).
    pub fn drop_tree(&self, tree: &Tree, budget: usize) -> Result<bool, TreeError> {
        let _ = (tree, budget);
        todo!()
    }
}
