//! Reading tree blocks: through the gate, counted, and what is bad about any copy written down.

use crate::ledger::Ledger;
use crate::page;
use crate::{Finding, Statistics, TreeName};
use brindle_ondisk::{CorruptNode, Key, KeyPtr, Logical, Node, NodeExpectation, TreeContext, to_usize};
use brindle_volume::Volume;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Shift of the backref revision in the flags of a block (`BTRFS_BACKREF_REV_SHIFT`).
const REVISION_SHIFT: u32 = 56;
/// The only revision since 2009 (`BTRFS_MIXED_BACKREF_REV`).
const MIXED_BACKREF_REVISION: u64 = 1;

/// Reads tree blocks.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) context: TreeContext,
    ledger: &'a Ledger,
    all_copies: bool,
    blocks: AtomicU64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(volume: &'a Volume, ledger: &'a Ledger, all_copies: bool) -> Self {
        Self { volume, context: volume.tree_context().clone(), ledger, all_copies, blocks: AtomicU64::new(0) }
    }

    /// Reads a block of a tree and reports what is wrong with it; `None` if no copy is good.
    pub(crate) fn block(&self, tree: TreeName, expected: &NodeExpectation) -> Option<Node> {
        let bad = RefCell::new(Vec::new());
        let validate = |bytes| {
            Node::check(bytes, &self.context, expected).inspect_err(|corrupt: &CorruptNode| {
                bad.borrow_mut().push(corrupt.to_string());
            })
        };
        self.blocks.fetch_add(1, Relaxed);
        let at = expected.bytenr;
        match self.volume.read_block(at, self.context.nodesize, validate) {
            Ok(node) => {
                let revision = node.header().flags.get() >> REVISION_SHIFT;
                if revision != MIXED_BACKREF_REVISION {
                    let found = revision;
                    self.ledger.report(page::TREES, Finding::BackrefRevision { tree, at, found });
                }
                if self.all_copies {
                    self.copies(tree, expected);
                } else {
                    for error in bad.into_inner() {
                        self.ledger.report(page::TREES, Finding::BadCopy { tree, at, error });
                    }
                }
                Some(node)
            }
            Err(error) => {
                let error = error.to_string();
                self.ledger.report(page::TREES, Finding::Unreadable { tree, at, error });
                None
            }
        }
    }

    /// Reads a block again, of which everything wrong has been said.
    pub(crate) fn again(&self, expected: &NodeExpectation) -> Option<Node> {
        let validate = |bytes| Node::check(bytes, &self.context, expected);
        self.volume.read_block(expected.bytenr, self.context.nodesize, validate).ok()
    }

    /// The leaf of a tree in which a key is or would be.
    pub(crate) fn leaf_of(&self, root: &NodeExpectation, key: &Key) -> Option<Node> {
        let mut node = self.again(root)?;
        while !node.is_leaf() {
            let slot = node.search(key).unwrap_or_else(|slot| slot.saturating_sub(1));
            let pointer: KeyPtr = *node.key_ptrs().get(slot)?;
            node = self.again(&NodeExpectation::child(&pointer, node.level()))?;
        }
        Some(node)
    }

    /// Walks a small tree in the order of its keys, one block after the other; whether all of it was there.
    /// Keys within bounds make it see no block twice.
    pub(crate) fn walk_small(
        &self,
        tree: TreeName,
        root: &NodeExpectation,
        visit: &mut dyn FnMut(&Node),
    ) -> bool {
        self.walk_below(tree, root, None, visit)
    }

    fn walk_below(
        &self,
        tree: TreeName,
        expected: &NodeExpectation,
        bound: Option<Key>,
        visit: &mut dyn FnMut(&Node),
    ) -> bool {
        let Some(node) = self.block(tree, expected) else { return false };
        if let Some(finding) = beyond_bound(tree, &node, bound) {
            self.ledger.report(page::TREES, finding);
            return false;
        }
        if node.is_leaf() {
            visit(&node);
            return true;
        }
        let pointers = node.key_ptrs();
        let mut is_whole = true;
        for (slot, pointer) in pointers.iter().enumerate() {
            let bound = pointers.get(slot + 1).map(|next| next.key).or(bound);
            let child = NodeExpectation::child(pointer, node.level());
            is_whole &= self.walk_below(tree, &child, bound, visit);
        }
        is_whole
    }

    /// Number of blocks read, and their bytes.
    pub(crate) fn statistics(&self) -> Statistics {
        let blocks = self.blocks.load(Relaxed);
        Statistics { blocks, bytes: blocks.saturating_mul(self.context.nodesize.into()), items: 0 }
    }

    /// Reads each copy by itself.
    fn copies(&self, tree: TreeName, expected: &NodeExpectation) {
        let at = expected.bytenr;
        let is_of_log = matches!(tree, TreeName::Logs | TreeName::LogOf(_));
        for mirror in 0..self.volume.copies(at).unwrap_or(0) {
            // A log may have fewer copies than the profile of its chunk has.
            if is_of_log && self.volume.mirror_lacks_log(at, mirror) {
                continue;
            }
            let mut bytes = vec![0; to_usize(self.context.nodesize.into())].into_boxed_slice();
            let read = self.volume.read_mirror(at, mirror, &mut bytes).map_err(|error| error.to_string());
            let checked = read.and_then(|()| {
                Node::check(bytes, &self.context, expected).map_err(|corrupt| corrupt.to_string())
            });
            if let Err(error) = checked {
                let error = format!("mirror {mirror}: {error}");
                self.ledger.report(page::TREES, Finding::BadCopy { tree, at, error });
            }
        }
    }
}

/// Finding if the keys of a block pass the first key of the next block.
pub(crate) fn beyond_bound(tree: TreeName, node: &Node, bound: Option<Key>) -> Option<Finding> {
    let last = node.len().checked_sub(1).and_then(|slot| node.key(slot))?;
    let bound = bound.filter(|bound| last >= *bound)?;
    let at: Logical = node.header().bytenr;
    Some(Finding::KeyBeyondBound { tree, at, last, bound })
}
