//! The walk over leaves: each read once, by all cores, about in the order of addresses.
//!
//! The unit of work is a node of level 1 with the leaves whose home it is, or a leaf that is a root. Within
//! it leaves come in the order of keys, so that a visitor can carry something along; leaves that
//! are at home elsewhere are named in their place. Units are sorted by address, and while one is worked on the
//! devices fetch the next ones.

use crate::Progress;
use crate::forest::{BlockId, Forest};
use crate::ledger::Ledger;
use crate::page;
use crate::parallel::parallel;
use crate::read::{Reader, beyond_bound};
use crate::roots::Tree;
use brindle_ondisk::{Logical, Node, NodeExpectation};

/// A leaf, and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    pub(crate) id: BlockId,
    pub(crate) node: &'a Node,
    /// The tree that was first to have it.
    pub(crate) tree: &'a Tree,
    /// True if its references are filed under the leaf.
    pub(crate) is_full_backref: bool,
}

/// Looks at leaves. Each thread has a state.
pub(crate) trait Visitor: Sync {
    /// State that a thread gathers.
    type State: Send;

    /// The state of a thread that begins.
    fn start(&self) -> Self::State;

    /// A leaf.
    fn leaf(&self, state: &mut Self::State, leaf: &Leaf<'_>);

    /// Here follows a leaf that is at home elsewhere, or that can't be read.
    fn elsewhere(&self, _state: &mut Self::State, _id: BlockId) {}

    /// The unit is done: the node that all leaves were children of, or the leaf that is a root.
    fn unit_done(&self, _state: &mut Self::State, _unit: BlockId) {}
}

/// Inputs of the walk.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) ledger: &'a Ledger,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) threads: usize,
    /// True if errors of leaves are reported: the first time.
    pub(crate) is_first: bool,
}

/// Number of units that are prefetched.
const AHEAD: usize = 2;
/// Leaves no further apart than this are fetched together.
const GAP_BYTES: u64 = 16 << 10;

impl Walk<'_> {
    /// Visits the leaves of trees that are wanted.
    pub(crate) fn leaves<V: Visitor>(&self, wanted: impl Fn(&Tree) -> bool, visitor: &V) -> Vec<V::State> {
        let mut units: Vec<(u64, BlockId)> = Vec::new();
        for id in self.forest.ids() {
            let block = self.forest.block(id);
            let is_unit = block.level == 1 || (block.level == 0 && block.home.is_none());
            if is_unit && wanted(self.forest.tree_of(id)) {
                units.push((self.address_of(id), id));
            }
        }
        units.sort_unstable();
        for (_, id) in units.iter().take(AHEAD) {
            self.prefetch(*id);
        }
        parallel(
            self.threads,
            units.len(),
            || visitor.start(),
            |state, job| {
                if let Some((_, id)) = units.get(job + AHEAD) {
                    self.prefetch(*id);
                }
                self.unit(units[job].1, visitor, state);
            },
        )
    }

    /// Address at which most of a unit is read: that of its first child.
    fn address_of(&self, id: BlockId) -> u64 {
        let own = self.forest.block(id).bytenr;
        let Some(node) = self.forest.node(id) else { return own };
        let home = node.children.iter().map(|child| self.forest.block(*child));
        home.filter(|child| child.home == Some(id)).map(|child| child.bytenr).min().unwrap_or(own)
    }

    fn prefetch(&self, id: BlockId) {
        let Some(node) = self.forest.node(id) else { return };
        let size = u64::from(self.reader.context.nodesize);
        let children = node.children.iter().map(|child| self.forest.block(*child));
        let mut addresses: Vec<u64> =
            children.filter(|child| child.home == Some(id)).map(|child| child.bytenr).collect();
        addresses.sort_unstable();
        let mut addresses = addresses.into_iter();
        let Some(mut start) = addresses.next() else { return };
        let mut end = start.saturating_add(size);
        for address in addresses {
            if address.saturating_sub(end) > GAP_BYTES {
                self.reader.volume.prefetch(Logical::new(start), end - start);
                start = address;
            }
            end = address.saturating_add(size);
        }
        self.reader.volume.prefetch(Logical::new(start), end.saturating_sub(start));
    }

    fn unit<V: Visitor>(&self, id: BlockId, visitor: &V, state: &mut V::State) {
        let block = self.forest.block(id);
        if block.level == 0 {
            self.visit(id, &block.expectation(), None, visitor, state);
            visitor.unit_done(state, id);
            self.progress.advance(1);
            return;
        }
        // Read a second time rather than kept: nodes of level 1 are a hundredth of all blocks.
        let Some(interior) = self.forest.node(id) else { return };
        let Some(node) = self.reader.again(&block.expectation()) else { return };
        let pointers = node.key_ptrs();
        let mut own = 1;
        for (child, slot) in interior.children.iter().zip(interior.first_slot..) {
            let Some(pointer) = pointers.get(slot) else { break };
            if self.forest.block(*child).home != Some(id) {
                visitor.elsewhere(state, *child);
                continue;
            }
            let bound = pointers.get(slot + 1).map(|next| next.key).or(interior.bound);
            self.visit(*child, &NodeExpectation::child(pointer, node.level()), bound, visitor, state);
            own += 1;
        }
        visitor.unit_done(state, id);
        self.progress.advance(own);
    }

    fn visit<V: Visitor>(
        &self,
        id: BlockId,
        expected: &NodeExpectation,
        bound: Option<brindle_ondisk::Key>,
        visitor: &V,
        state: &mut V::State,
    ) {
        let block = self.forest.block(id);
        let tree = self.forest.tree_of(id);
        let read = if self.is_first {
            self.reader.block(tree.name(), expected)
        } else {
            self.reader.again(expected)
        };
        let Some(node) = read else {
            block.mark_bad();
            return visitor.elsewhere(state, id);
        };
        if let Some(finding) = beyond_bound(tree.name(), &node, bound).filter(|_| self.is_first) {
            self.ledger.report(page::TREES, finding);
        }
        visitor.leaf(state, &Leaf { id, node: &node, tree, is_full_backref: block.has_full_backref() });
    }
}
