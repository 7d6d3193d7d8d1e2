//! Locations of the leaves of a tree, taken from the blocks above them.

use super::Defragmenter;
use crate::error::TreeError;
use crate::refs::References;
use crate::store::Store;
use crate::store::cursor::Readahead;
use crate::store::cursor::may_be_shared;
use crate::tree::Tree;
use brindle_ondisk::{Generation, Key, KeyPtr, Logical};
use brindle_policy::defragment::{Leaf, Scatter};
use std::sync::Arc;

/// Leaves that follow each other.
#[derive(Default)]
pub(super) struct Stretch {
    pub(super) leaves: Vec<Leaf>,
    /// The same, with their first keys.
    pub(super) places: Vec<(Logical, Key)>,
}

/// Scatter of the leaves of a tree. Changed blocks that have no place yet count as scattered.
pub(crate) fn scatter(store: &Store, tree: &Arc<Tree>) -> Result<Scatter, TreeError> {
    let mut scatter = Scatter::default();
    let nodesize = store.nodesize().into();
    let mut next = Some(Key::MIN);
    while let Some(from) = next {
        let mut cursor = store.cursor(tree, Readahead::None);
        next = cursor.seek_above_leaves(&from)?;
        match cursor.lowest() {
            Some(node) if node.is_leaf() => scatter.add(node.header().bytenr.get(), nodesize),
            Some(node) => {
                node.key_ptrs().iter().for_each(|child| scatter.add(child.blockptr.get(), nodesize));
            }
            None => {}
        }
    }
    Ok(scatter)
}

impl Defragmenter<'_> {
    /// Adds the leaves below the block that lies just above that of a key; the first key behind that.
    pub(super) fn look_over(
        &self,
        tree: &Arc<Tree>,
        from: &Key,
        stretch: &mut Stretch,
    ) -> Result<Option<Key>, TreeError> {
        let mut cursor = self.store.cursor(tree, Readahead::None);
        let next = cursor.seek_above_leaves(from)?;
        let Some(parent) = cursor.lowest().filter(|node| !node.is_leaf()).map(Arc::clone) else {
            return Ok(next);
        };
        let last_snapshot = tree.read().last_snapshot;
        let references = self.transactions.editor(Generation::new(0)).references();
        // The root is not shared.
        let mut is_shared = false;
        for node in cursor.nodes().skip(1) {
            is_shared |= may_be_shared(node, last_snapshot) && references.is_block_shared(node)?;
        }
        for child in parent.key_ptrs() {
            let may_move = !is_shared && !is_child_shared(&references, child, last_snapshot)?;
            stretch.leaves.push(Leaf { at: child.blockptr.get(), may_move });
            stretch.places.push((child.blockptr, child.key));
        }
        Ok(next)
    }
}

fn is_child_shared(
    references: &References<'_>,
    child: &KeyPtr,
    last_snapshot: Generation,
) -> Result<bool, TreeError> {
    Ok(child.generation <= last_snapshot && references.of_block(child.blockptr, 0)?.count > 1)
}
