//! Blocks of a log, for the editor: they have no references, and are not shared.

use crate::editor::Editor;
use crate::editor::blocks::Blocks;
use crate::error::TreeError;
use brindle_ondisk::{Generation, Logical, Node, NodeExpectation, RootId};
use std::sync::Arc;

/// An editor's blocks, without what becomes of references.
#[derive(Clone, Copy)]
pub(super) struct LogBlocks<'p>(pub(super) Editor<'p>);

impl Blocks for LogBlocks<'_> {
    fn generation(&self) -> Generation {
        self.0.generation
    }

    fn in_memory(&self, expected: &NodeExpectation) -> Option<Arc<Node>> {
        self.0.store.unwritten().block_of_log(expected.bytenr)
    }

    fn read(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError> {
        self.0.store.read_node(expected)
    }

    fn prefetch(&self, _: impl Iterator<Item = Logical>) {}

    fn next_address(&self) -> Logical {
        self.0.changes.next_virtual(self.0.store.nodesize())
    }

    fn copied(&self, _: RootId, _: &Arc<Node>, _: &Node, _: bool) -> Result<(), TreeError> {
        Ok(())
    }

    fn is_shared(&self, _: &Node) -> Result<bool, TreeError> {
        Ok(false)
    }

    fn dropped(&self, _: RootId, _: &Node) {}

    fn dirtied(&self) {}

    fn vanished(&self) {}
}
