//! The way down to a key, and the blocks on it made the transaction's own.

use super::blocks::Blocks;
use crate::error::TreeError;
use crate::store::cursor::{may_be_shared, may_hold};
use crate::tree::Tree;
use crate::tree::TreeState;
use brindle_ondisk::{Key, Logical, MAX_LEVEL, Node, NodeExpectation, RootId};
use brindle_sync::RwLockWriteGuard;
use std::sync::Arc;

/// Number of levels that a tree can have.
const LEVELS: usize = MAX_LEVEL as usize + 1;
/// Number of siblings that a removal prefetches at once.
const PREFETCHED: usize = 32;

/// A tree locked for changes, with the path to a key.
pub(super) struct Edit<'a, B> {
    pub(super) blocks: &'a B,
    pub(super) tree: RootId,
    pub(super) state: RwLockWriteGuard<'a, TreeState>,
    pub(super) path: Path,
}

/// From the root to the leaf where a key is or would be, by level.
#[derive(Default)]
pub(super) struct Path {
    pub(super) steps: [Step; LEVELS],
    /// The level of the root.
    pub(super) top: usize,
    /// The least key that lies behind the leaf.
    pub(super) bound: Option<Key>,
}

/// One block of a path.
#[derive(Default)]
pub(super) struct Step {
    pub(super) at: Logical,
    pub(super) slot: usize,
    /// The block, if it is still as on disk.
    pub(super) clean: Option<Arc<Node>>,
}

/// Blocks read for a descent, kept so that the cache can't lose them before it gets there.
#[derive(Default)]
pub(super) struct Held {
    nodes: Vec<Arc<Node>>,
    failed: Option<(NodeExpectation, TreeError)>,
}

impl Held {
    /// Reads a block that was missed, with the tree unlocked. One that can't be read is an error only if the tree
    /// still wants it: it may have been given up meanwhile.
    pub(super) fn read<B: Blocks>(&mut self, blocks: &B, wanted: NodeExpectation) -> Result<(), TreeError> {
        if let Some((before, error)) = self.failed.take() {
            if (before.bytenr, before.generation) == (wanted.bytenr, wanted.generation) {
                return Err(error);
            }
        }
        match blocks.read(&wanted) {
            Ok(node) => self.nodes.push(node),
            Err(error) => self.failed = Some((wanted, error)),
        }
        Ok(())
    }

    fn find(&self, wanted: &NodeExpectation) -> Option<Arc<Node>> {
        let is_wanted = |node: &&Arc<Node>| {
            node.header().bytenr == wanted.bytenr
                && wanted.generation.is_none_or(|generation| generation == node.generation())
        };
        self.nodes.iter().rev().find(is_wanted).map(Arc::clone)
    }
}

impl<'a, B: Blocks> Edit<'a, B> {
    /// Locks a tree, with all of the path to a key in memory.
    pub(super) fn at(blocks: &'a B, tree: &'a Tree, key: &Key) -> Result<Self, TreeError> {
        Self::within(blocks, tree, key, key)
    }

    /// The same, for a caller that will go on as far as `last`.
    pub(super) fn within(blocks: &'a B, tree: &'a Tree, key: &Key, last: &Key) -> Result<Self, TreeError> {
        let mut edit = Self::quietly(blocks, tree, key, last)?;
        edit.state.has_news = true;
        Ok(edit)
    }

    /// The same, for a caller that will move blocks and change no items.
    pub(super) fn quietly(blocks: &'a B, tree: &'a Tree, key: &Key, last: &Key) -> Result<Self, TreeError> {
        let mut held = Held::default();
        loop {
            let mut edit = Self { blocks, tree: tree.id(), state: tree.write(), path: Path::default() };
            let Some(absent) = edit.descend(key, &held)? else {
                return Ok(edit);
            };
            let siblings = edit.siblings(&absent, last);
            drop(edit);
            blocks.prefetch(siblings.into_iter());
            held.read(blocks, absent)?;
        }
    }

    pub(super) fn lock(blocks: &'a B, tree: &'a Tree) -> Self {
        let mut state = tree.write();
        state.has_news = true;
        Self { blocks, tree: tree.id(), state, path: Path::default() }
    }

    /// Goes down to the leaf of a key; what is missing, if something is.
    fn descend(&mut self, key: &Key, held: &Held) -> Result<Option<NodeExpectation>, TreeError> {
        self.path = Path { top: self.state.root.level.into(), ..Path::default() };
        let mut expected = self.state.root.expectation();
        for level in (0..=self.path.top).rev() {
            let found = self.find(&expected, held)?;
            let Some((node, clean)) = found.as_ref().map(Found::parts) else {
                return Ok(Some(expected));
            };
            if clean.is_some() {
                check_bound(node, self.path.bound)?;
            }
            let slot = match node.search(key) {
                Ok(slot) => slot,
                Err(slot) if level == 0 => slot,
                // The child that may hold the key is the last one that does not begin behind it.
                Err(slot) => slot.saturating_sub(1),
            };
            let pointers = node.key_ptrs();
            let next = pointers.get(slot).map(|child| NodeExpectation::child(child, node.level()));
            let bound = pointers.get(slot + 1).map(|next| next.key).or(self.path.bound);
            let step = Step { at: expected.bytenr, slot, clean: clean.map(Arc::clone) };
            self.path.steps[level] = step;
            if let Some(next) = next {
                (expected, self.path.bound) = (next, bound);
            }
        }
        Ok(None)
    }

    /// A block of this tree, if it is in memory.
    fn find(&self, expected: &NodeExpectation, held: &Held) -> Result<Option<Found<'_>>, TreeError> {
        let is_level = |node: &&Arc<Node>| Some(node.level()) == expected.level;
        if let Some(node) = self.state.dirty.get(&expected.bytenr).filter(is_level) {
            return Ok(Some(Found::Own(node)));
        }
        self.find_clean(expected, held).map(|found| found.map(Found::Clean))
    }

    /// A block of this tree that the transaction has not changed, if it is in memory.
    pub(super) fn find_clean(
        &self,
        expected: &NodeExpectation,
        held: &Held,
    ) -> Result<Option<Arc<Node>>, TreeError> {
        let Some(node) = self.blocks.in_memory(expected).or_else(|| held.find(expected)) else {
            return Ok(None);
        };
        let owner = node.header().owner;
        match may_hold(self.tree, owner) {
            true => Ok(Some(node)),
            false => Err(TreeError::WrongTree { at: expected.bytenr, tree: self.tree, owner }),
        }
    }

    /// The leaves behind one that is missing, as far as they begin with `last` or before.
    fn siblings(&self, absent: &NodeExpectation, last: &Key) -> Vec<Logical> {
        let parent = &self.path.steps[1];
        if absent.level != Some(0)
            || self.path.top == 0
            || absent.first_key.is_none_or(|first| first >= *last)
        {
            return Vec::new();
        }
        let node = parent.clean.as_ref().or_else(|| self.state.dirty.get(&parent.at));
        let pointers = node.map(|node| node.key_ptrs()).unwrap_or_default();
        let ahead = pointers.iter().skip(parent.slot).take(PREFETCHED);
        ahead.take_while(|pointer| pointer.key <= *last).map(|pointer| pointer.blockptr).collect()
    }

    /// The leaf of the path.
    pub(super) fn leaf(&self) -> &Node {
        let step = &self.path.steps[0];
        match &step.clean {
            Some(node) => node,
            None => self.node(step.at),
        }
    }

    /// The slot in the leaf.
    pub(super) fn slot(&self) -> usize {
        self.path.steps[0].slot
    }

    /// Returns true if the key of the descent is there.
    pub(super) fn is_at(&self, key: &Key) -> bool {
        self.leaf().key(self.slot()) == Some(*key)
    }

    /// A block of the transaction.
    pub(super) fn node(&self, at: Logical) -> &Node {
        self.state.dirty.get(&at).expect("whatever is on an owned path is dirty")
    }

    /// A block of the transaction, to be changed. Readers that have it keep it as it was.
    pub(super) fn node_mut(&mut self, at: Logical) -> &mut Node {
        Arc::make_mut(self.state.dirty.get_mut(&at).expect("whatever is on an owned path is dirty"))
    }

    /// The block of the path at a level.
    pub(super) fn at_level(&self, level: usize) -> &Node {
        self.node(self.path.steps[level].at)
    }

    /// The block of the path at a level, to be changed.
    pub(super) fn at_level_mut(&mut self, level: usize) -> &mut Node {
        self.node_mut(self.path.steps[level].at)
    }

    /// Makes every block of the path the transaction's own, from the root down to a level. Should it fail half
    /// way, the tree is whole: what is copied points to what is not.
    pub(super) fn own(&mut self, lowest: usize) -> Result<(), TreeError> {
        for level in (lowest..=self.path.top).rev() {
            let Some(old) = self.path.steps[level].clean.take() else {
                continue;
            };
            let at = self.copy(&old, level == self.path.top)?;
            self.path.steps[level].at = at;
            if level == self.path.top {
                (self.state.root.bytenr, self.state.root.generation) = (at, self.blocks.generation());
            } else {
                let slot = self.path.steps[level + 1].slot;
                self.repoint(level + 1, slot, at);
            }
        }
        Ok(())
    }

    /// Copies a block of this tree.
    pub(super) fn copy(&mut self, old: &Arc<Node>, is_root: bool) -> Result<Logical, TreeError> {
        let at = self.blocks.next_address();
        let new = old.copy(at, self.tree, self.blocks.generation());
        self.blocks.copied(self.tree, old, &new, !is_root && self.may_be_shared(old))?;
        self.keep(new);
        Ok(at)
    }

    /// Returns true if a block that is not the root may be part of another tree too.
    pub(super) fn may_be_shared(&self, node: &Node) -> bool {
        may_be_shared(node, self.state.last_snapshot)
    }

    /// A child of the path's block at a level has moved.
    pub(super) fn repoint(&mut self, level: usize, slot: usize, at: Logical) {
        let generation = self.blocks.generation();
        let pointer = self.at_level_mut(level).pointer_mut(slot);
        (pointer.blockptr, pointer.generation) = (at, generation);
    }

    /// Takes up a block that is not on disk.
    pub(super) fn keep(&mut self, node: Node) {
        let before = self.state.dirty.insert(node.header().bytenr, Arc::new(node));
        assert!(before.is_none(), "virtual addresses are given out once");
        self.blocks.dirtied();
    }

    /// Brings the keys of the path's parents in line with the first key of the block at a level.
    pub(super) fn update_keys(&mut self, mut level: usize) {
        while level < self.path.top {
            let Some(first) = self.at_level(level).key(0) else {
                return;
            };
            let slot = self.path.steps[level + 1].slot;
            self.at_level_mut(level + 1).set_key(slot, &first);
            if slot > 0 {
                return;
            }
            level += 1;
        }
    }
}

/// A block in memory.
enum Found<'s> {
    /// A block of the transaction.
    Own(&'s Node),
    /// A block as on disk.
    Clean(Arc<Node>),
}

impl Found<'_> {
    fn parts(&self) -> (&Node, Option<&Arc<Node>>) {
        match self {
            Self::Own(node) => (node, None),
            Self::Clean(node) => (node, Some(node)),
        }
    }
}

pub(super) fn check_bound(node: &Node, bound: Option<Key>) -> Result<(), TreeError> {
    let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
    match (bound, last) {
        (Some(bound), Some(last)) if last >= bound => {
            Err(TreeError::KeyBeyondBound { at: node.header().bytenr, last, bound })
        }
        _ => Ok(()),
    }
}
