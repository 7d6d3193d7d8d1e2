//! The difference of two trees that share blocks, such as a snapshot and a later one.
//!
//! Two walks go down from the two roots, each with a path of its own, and stand either at an item or before a block that they
//! have not entered. Where both stand before the same block (its address and its generation), both pass over it. Otherwise the one
//! whose block is higher is entered, or that with the lesser first key, or both if the keys are the same. So each block that is in
//! one tree alone is read once, and no block that both have: the cost follows the difference.
//!
//! Invariant: items are reported in the order of their keys, for a walk stands at an item only as long as the other one stands at a
//! key that is not less, and the first key of a block is the key of its pointer (the gate holds it to that).

use crate::committed::Committed;
use crate::error::TreeError;
use crate::store::Store;
use crate::store::cursor::may_hold;
use crate::tree::Tree;
use brindle_ondisk::{Key, Node, NodeExpectation, RootId};
use std::cmp::Ordering;
use std::sync::Arc;

/// An item in its leaf.
#[derive(Clone, Debug)]
pub struct ItemPlace {
    leaf: Arc<Node>,
    slot: usize,
}

impl ItemPlace {
    /// Bytes of the item.
    pub fn data(&self) -> &[u8] {
        self.leaf.item(self.slot).map(|(_, data)| data).unwrap_or_default()
    }
}

/// A key whose item is in one of two trees alone, or has other bytes in each.
#[derive(Clone, Debug)]
pub struct Differing {
    /// The key.
    pub key: Key,
    /// The item of the older tree.
    pub old: Option<ItemPlace>,
    /// The item of the newer tree.
    pub new: Option<ItemPlace>,
}

/// Counters of a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DifferenceCounts {
    /// Blocks that were read.
    pub read: u64,
    /// Blocks that both trees have and that were passed over, each with all that lies below it.
    pub shared: u64,
}

/// The items in which two trees differ, in the order of their keys.
pub struct Difference<'p> {
    store: &'p Store,
    old: Walk,
    new: Walk,
    counts: DifferenceCounts,
}

/// Way from the root of a tree to a place in it.
struct Walk {
    tree: RootId,
    /// The root, as long as it has not been entered.
    root: Option<NodeExpectation>,
    path: Vec<Step>,
}

struct Step {
    node: Arc<Node>,
    slot: usize,
    /// The key that nothing in this node reaches.
    bound: Option<Key>,
}

/// Place of a walk.
enum Place {
    /// Before a block of this level.
    Block {
        expected: NodeExpectation,
        level: u8,
    },
    Item(Key),
    End,
}

impl Committed<'_> {
    /// The items in which two trees of this commit differ.
    pub fn difference(&self, old: &Tree, new: &Tree) -> Difference<'_> {
        let counts = DifferenceCounts::default();
        Difference { store: self.store(), old: Walk::of(old), new: Walk::of(new), counts }
    }
}

impl Difference<'_> {
    /// Number of blocks read and passed over so far.
    pub fn counts(&self) -> DifferenceCounts {
        self.counts
    }

    /// The next item in which the trees differ; `None` at their ends.
    ///
    /// # Errors
    /// Blocks that can't be read, or belong elsewhere.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Differing>, TreeError> {
        loop {
            match (self.old.place(), self.new.place()) {
                (Place::End, Place::End) => return Ok(None),
                (
                    Place::Block { expected: old, level: old_level },
                    Place::Block { expected: new, level: new_level },
                ) => self.meet(&old, old_level, &new, new_level)?,
                (Place::Block { expected, .. }, Place::Item(key)) if is_before(key, &expected) => {
                    return Ok(Some(self.only_new(key)));
                }
                (Place::Item(key), Place::Block { expected, .. }) if is_before(key, &expected) => {
                    return Ok(Some(self.only_old(key)));
                }
                (Place::Block { expected, .. }, _) => self.enter_old(&expected)?,
                (_, Place::Block { expected, .. }) => self.enter_new(&expected)?,
                (Place::Item(key), Place::End) => return Ok(Some(self.only_old(key))),
                (Place::End, Place::Item(key)) => return Ok(Some(self.only_new(key))),
                (Place::Item(old), Place::Item(new)) => match old.cmp(&new) {
                    Ordering::Less => return Ok(Some(self.only_old(old))),
                    Ordering::Greater => return Ok(Some(self.only_new(new))),
                    Ordering::Equal => {
                        let (old, new) = (self.old.take(), self.new.take());
                        let is_same = old.as_ref().map(ItemPlace::data) == new.as_ref().map(ItemPlace::data);
                        if !is_same {
                            return Ok(Some(Differing { key: new_key(&new, &old), old, new }));
                        }
                    }
                },
            }
        }
    }

    /// Both walks stand before a block.
    fn meet(
        &mut self,
        old: &NodeExpectation,
        old_level: u8,
        new: &NodeExpectation,
        new_level: u8,
    ) -> Result<(), TreeError> {
        if (old.bytenr, old.generation, old_level) == (new.bytenr, new.generation, new_level) {
            self.counts.shared += 1;
            self.old.pass();
            self.new.pass();
            return Ok(());
        }
        // The key of a root is not known: it is entered.
        match old_level.cmp(&new_level).reverse().then(old.first_key.cmp(&new.first_key)) {
            Ordering::Less => self.enter_old(old),
            Ordering::Greater => self.enter_new(new),
            Ordering::Equal => {
                self.enter_old(old)?;
                self.enter_new(new)
            }
        }
    }

    fn enter_old(&mut self, expected: &NodeExpectation) -> Result<(), TreeError> {
        self.counts.read += 1;
        self.old.enter(self.store, expected)
    }

    fn enter_new(&mut self, expected: &NodeExpectation) -> Result<(), TreeError> {
        self.counts.read += 1;
        self.new.enter(self.store, expected)
    }

    fn only_old(&mut self, key: Key) -> Differing {
        Differing { key, old: self.old.take(), new: None }
    }

    fn only_new(&mut self, key: Key) -> Differing {
        Differing { key, old: None, new: self.new.take() }
    }
}

fn is_before(key: Key, block: &NodeExpectation) -> bool {
    block.first_key.is_some_and(|first| key < first)
}

fn new_key(new: &Option<ItemPlace>, old: &Option<ItemPlace>) -> Key {
    let key = |place: &ItemPlace| place.leaf.key(place.slot);
    new.as_ref().or(old.as_ref()).and_then(key).unwrap_or(Key::MIN)
}

impl Walk {
    fn of(tree: &Tree) -> Self {
        Self { tree: tree.id(), root: Some(tree.root().expectation()), path: Vec::new() }
    }

    fn place(&mut self) -> Place {
        if let Some(root) = self.root {
            return Place::Block { expected: root, level: root.level.unwrap_or(0) };
        }
        while let Some(step) = self.path.last() {
            if step.node.is_leaf() {
                if let Some(key) = step.node.key(step.slot) {
                    return Place::Item(key);
                }
            } else if let Some(pointer) = step.node.key_ptrs().get(step.slot) {
                let level = step.node.level();
                let expected = NodeExpectation::child(pointer, level);
                return Place::Block { expected, level: level.saturating_sub(1) };
            }
            self.path.pop();
            self.pass();
        }
        Place::End
    }

    /// Passes over what it stands at.
    fn pass(&mut self) {
        if self.root.take().is_none() {
            if let Some(step) = self.path.last_mut() {
                step.slot += 1;
            }
        }
    }

    /// The item it stands at, which it passes.
    fn take(&mut self) -> Option<ItemPlace> {
        let step = self.path.last_mut()?;
        let place = ItemPlace { leaf: Arc::clone(&step.node), slot: step.slot };
        step.slot += 1;
        Some(place)
    }

    /// Enters the block it stands before.
    fn enter(&mut self, store: &Store, expected: &NodeExpectation) -> Result<(), TreeError> {
        let node = store.read_node(expected)?;
        let (at, owner) = (expected.bytenr, node.header().owner);
        if !may_hold(self.tree, owner) {
            return Err(TreeError::WrongTree { at, tree: self.tree, owner });
        }
        let bound = self.path.last().and_then(|parent| {
            parent.node.key_ptrs().get(parent.slot + 1).map(|next| next.key).or(parent.bound)
        });
        let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
        if let (Some(bound), Some(last)) = (bound, last) {
            if last >= bound {
                return Err(TreeError::KeyBeyondBound { at, last, bound });
            }
        }
        self.root = None;
        self.path.push(Step { node, slot: 0, bound });
        Ok(())
    }
}
