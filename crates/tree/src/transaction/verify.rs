//! Comparison of everything that is counted of a pool with recounts.

use super::Transactions;
use crate::tree::{Tree, TreeState};
use brindle_ondisk::{Generation, Logical};

impl Transactions {
    /// Panics unless counts of space, changed blocks and the log agree with recounts: a costly check, for tests. No other
    /// thread uses the pool meanwhile. Of a pool whose writing has ended, nothing is asked.
    pub(crate) fn verify(&self) {
        let Ok(durable) = self.lock_commit() else { return };
        let closed = self.close_gate(durable);
        if self.check_sound().is_err() {
            return;
        }
        let dirty: usize =
            self.store.known_trees().iter().map(|tree| verify_tree(tree, closed.generation())).sum();
        assert_eq!(self.changes.pressure.nodes(), dirty, "kept and recounted number of changed blocks");
        assert!(
            self.store.unwritten().frozen.read().is_empty(),
            "blocks wait to be written, and no commit is under way"
        );
        self.changes.log.verify();
        self.changes.space.verify_at_rest();
    }
}

/// The number of a tree's changed blocks, which belong to the running transaction and are what the root reaches.
fn verify_tree(tree: &Tree, running: Generation) -> usize {
    let state = tree.read();
    for (at, node) in &state.dirty {
        assert_eq!(node.header().bytenr, *at, "tree {}: the address of a changed block", tree.id());
        assert_eq!(
            node.generation(),
            running,
            "tree {}: the block at {at} is not of this transaction",
            tree.id()
        );
    }
    let reached = reached(&state, state.root.bytenr);
    assert_eq!(reached, state.dirty.len(), "tree {}: changed blocks that its root reaches", tree.id());
    reached
}

/// The number of changed blocks from an address on.
fn reached(state: &TreeState, from: Logical) -> usize {
    let Some(node) = state.dirty.get(&from) else { return 0 };
    1 + node.key_ptrs().iter().map(|pointer| reached(state, pointer.blockptr)).sum::<usize>()
}
