//! Interface of the editor to the rest of the pool.

use super::Editor;
use crate::error::TreeError;
use brindle_ondisk::{Generation, Logical, Node, NodeExpectation, RootId};
use std::sync::Arc;

/// Source of blocks, and observer of their fate. A pool, or a model of one.
pub(crate) trait Blocks {
    /// The running transaction.
    fn generation(&self) -> Generation;

    /// A block that the transaction has not changed, if it is in memory.
    fn in_memory(&self, expected: &NodeExpectation) -> Option<Arc<Node>>;

    /// The same from a device, if need be. Never called with a tree locked.
    fn read(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError>;

    /// Prefetches blocks that will be read soon.
    fn prefetch(&self, addresses: impl Iterator<Item = Logical>);

    /// An address for a block that has no place yet.
    fn next_address(&self) -> Logical;

    /// `new` takes the place of `old` in a tree.
    fn copied(&self, tree: RootId, old: &Arc<Node>, new: &Node, may_be_shared: bool)
    -> Result<(), TreeError>;

    /// Returns true if a block that may be part of another tree too is.
    fn is_shared(&self, block: &Node) -> Result<bool, TreeError>;

    /// A block with a place, which is not shared, leaves its tree.
    fn dropped(&self, tree: RootId, block: &Node);

    /// Counts one more block that is not on disk.
    fn dirtied(&self);

    /// Counts one block less.
    fn vanished(&self);
}

impl Blocks for Editor<'_> {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn in_memory(&self, expected: &NodeExpectation) -> Option<Arc<Node>> {
        self.store.node_in_memory(expected)
    }

    fn read(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError> {
        self.store.read_node(expected)
    }

    fn prefetch(&self, addresses: impl Iterator<Item = Logical>) {
        self.store.prefetch_nodes(addresses);
    }

    fn next_address(&self) -> Logical {
        self.changes.next_virtual(self.store.volume().tree_context().nodesize)
    }

    fn copied(
        &self,
        tree: RootId,
        old: &Arc<Node>,
        new: &Node,
        may_be_shared: bool,
    ) -> Result<(), TreeError> {
        self.references().block_copied(tree, old, new, may_be_shared)
    }

    fn is_shared(&self, block: &Node) -> Result<bool, TreeError> {
        self.references().is_block_shared(block)
    }

    fn dropped(&self, tree: RootId, block: &Node) {
        self.references().block_dropped(tree, block);
    }

    fn dirtied(&self) {
        self.changes.pressure.dirtied();
    }

    fn vanished(&self) {
        self.changes.pressure.vanished(1);
    }
}
