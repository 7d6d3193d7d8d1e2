//! Roots of trees.

use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, Logical, NodeExpectation, RootId, Superblock};

/// Root of a tree: all that a reader needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRoot {
    /// Id of the tree.
    pub id: RootId,
    /// Address of its root node.
    pub bytenr: Logical,
    /// The transaction that wrote the root node.
    pub generation: Generation,
    /// The level of the root node.
    pub level: u8,
}

impl TreeRoot {
    /// The root that a root item tells of.
    pub fn from_item(id: RootId, item: &RootItem) -> Self {
        Self { id, bytenr: item.bytenr, generation: item.generation, level: item.level }
    }

    /// The tree of tree roots.
    pub fn root_tree(superblock: &Superblock) -> Self {
        Self {
            id: RootId::ROOT_TREE,
            bytenr: superblock.root,
            generation: superblock.generation,
            level: superblock.root_level,
        }
    }

    /// The chunk tree.
    pub fn chunk_tree(superblock: &Superblock) -> Self {
        Self {
            id: RootId::CHUNK_TREE,
            bytenr: superblock.chunk_root,
            generation: superblock.chunk_root_generation,
            level: superblock.chunk_root_level,
        }
    }

    /// The tree of log trees, if the last fsyncs left one.
    pub fn log_root_tree(superblock: &Superblock) -> Option<Self> {
        (superblock.log_root.get() != 0).then(|| Self {
            id: RootId::TREE_LOG,
            bytenr: superblock.log_root,
            generation: Generation::new(superblock.generation.get().saturating_add(1)),
            level: superblock.log_root_level,
        })
    }

    /// Expectation of the root node.
    pub(crate) fn expectation(&self) -> NodeExpectation {
        NodeExpectation::root(self.bytenr, self.generation, self.level)
    }
}
