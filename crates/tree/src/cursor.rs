//! Cursors: a place in a tree, to be moved either way.

use crate::{Pool, TreeError, TreeRoot};
use brindle_ondisk::{Key, KeyPtr, Node, NodeExpectation, RootId};
use std::sync::Arc;

/// Whether a cursor asks for leaves before it comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readahead {
    /// For lookups.
    None,
    /// For scans.
    Forward,
}

/// How many siblings a scan asks for at once.
const READAHEAD_NODES: usize = 32;

/// A place in a tree. Where there is no item (an empty tree, past either end) [`Cursor::item`] is `None`.
pub struct Cursor<'p> {
    pool: &'p Pool,
    root: TreeRoot,
    readahead: Readahead,
    /// From the root to the leaf; empty when the cursor is nowhere.
    path: Vec<Step>,
}

/// One node of the path.
struct Step {
    node: Arc<Node>,
    slot: usize,
    /// The key that nothing in this node reaches.
    bound: Option<Key>,
    /// The slot up to which siblings have been asked for.
    prefetched: usize,
}

impl<'p> Cursor<'p> {
    pub(crate) fn new(pool: &'p Pool, root: TreeRoot, readahead: Readahead) -> Self {
        Self { pool, root, readahead, path: Vec::new() }
    }

    /// The item here.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        let leaf = self.path.last()?;
        leaf.node.item(leaf.slot)
    }

    /// The key here.
    pub fn key(&self) -> Option<Key> {
        let leaf = self.path.last()?;
        leaf.node.key(leaf.slot)
    }

    /// The leaf here and the slot in it.
    pub fn leaf(&self) -> Option<(&Arc<Node>, usize)> {
        self.path.last().map(|leaf| (&leaf.node, leaf.slot))
    }

    /// Goes to the first item whose key is `key` or greater.
    pub fn seek(&mut self, key: &Key) -> Result<(), TreeError> {
        if !self.seek_in_leaf(key) {
            self.descend_to(key)?;
        }
        let past_leaf = self.path.last().is_some_and(|leaf| leaf.slot >= leaf.node.len());
        if past_leaf { self.next_leaf() } else { Ok(()) }
    }

    /// Goes to the last item whose key is `key` or less.
    pub fn seek_last(&mut self, key: &Key) -> Result<(), TreeError> {
        self.descend_to(key)?;
        match self.path.last() {
            Some(leaf) if leaf.node.key(leaf.slot) == Some(*key) => Ok(()),
            Some(_) => self.previous(),
            None => Ok(()),
        }
    }

    /// Goes to the next item.
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its item, an iterator cannot")]
    pub fn next(&mut self) -> Result<(), TreeError> {
        let Some(leaf) = self.path.last_mut() else {
            return Ok(());
        };
        leaf.slot += 1;
        if leaf.slot < leaf.node.len() { Ok(()) } else { self.next_leaf() }
    }

    /// Goes to the item before.
    pub fn previous(&mut self) -> Result<(), TreeError> {
        let Some(leaf) = self.path.last_mut() else {
            return Ok(());
        };
        if leaf.slot > 0 {
            leaf.slot -= 1;
            return Ok(());
        }
        self.previous_leaf()
    }

    /// Moves within the leaf, if the key lies between the leaf's first and last.
    fn seek_in_leaf(&mut self, key: &Key) -> bool {
        let Some(leaf) = self.path.last_mut().filter(|step| step.node.is_leaf()) else {
            return false;
        };
        let last = leaf.node.len().checked_sub(1).and_then(|slot| leaf.node.key(slot));
        if leaf.node.key(0).is_none_or(|first| *key < first) || last.is_none_or(|last| *key > last) {
            return false;
        }
        leaf.slot = leaf.node.search(key).unwrap_or_else(|slot| slot);
        true
    }

    /// Goes down from the root to the leaf where `key` is or would be.
    fn descend_to(&mut self, key: &Key) -> Result<(), TreeError> {
        self.path.clear();
        let root = self.read(&self.root.expectation())?;
        let mut step = Step { node: root, slot: 0, bound: None, prefetched: 0 };
        loop {
            let found = step.node.search(key);
            if step.node.is_leaf() {
                step.slot = found.unwrap_or_else(|slot| slot);
                self.path.push(step);
                return Ok(());
            }
            // The child that may hold the key is the last one that does not begin behind it.
            step.slot = found.unwrap_or_else(|slot| slot.saturating_sub(1));
            let child = self.child(&step)?;
            self.path.push(step);
            if self.readahead == Readahead::Forward {
                self.prefetch_siblings();
            }
            let Some(child) = child else {
                return Ok(());
            };
            step = child;
        }
    }

    /// A node that is expected, and of the right tree.
    fn read(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError> {
        let node = self.pool.read_node(expected)?;
        let (tree, owner) = (self.root.id, node.header().owner);
        if may_hold(tree, owner) {
            Ok(node)
        } else {
            Err(TreeError::WrongTree { at: expected.bytenr, tree, owner })
        }
    }

    /// The child at the slot of a step, checked against the bound.
    fn child(&self, parent: &Step) -> Result<Option<Step>, TreeError> {
        let pointers = parent.node.key_ptrs();
        let Some(pointer) = pointers.get(parent.slot) else {
            return Ok(None);
        };
        let node = self.read(&NodeExpectation::child(pointer, parent.node.level()))?;
        let bound = pointers.get(parent.slot + 1).map(|next| next.key).or(parent.bound);
        let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
        match (bound, last) {
            (Some(bound), Some(last)) if last >= bound => {
                Err(TreeError::KeyBeyondBound { at: pointer.blockptr, last, bound })
            }
            _ => Ok(Some(Step { node, slot: 0, bound, prefetched: 0 })),
        }
    }

    /// Goes to the first item of the next leaf.
    fn next_leaf(&mut self) -> Result<(), TreeError> {
        self.path.pop();
        while let Some(parent) = self.path.last_mut() {
            parent.slot += 1;
            if parent.slot < parent.node.len() {
                return self.descend_edge(Edge::First);
            }
            self.path.pop();
        }
        Ok(())
    }

    /// Goes to the last item of the leaf before.
    fn previous_leaf(&mut self) -> Result<(), TreeError> {
        self.path.pop();
        while let Some(parent) = self.path.last_mut() {
            if parent.slot > 0 {
                parent.slot -= 1;
                return self.descend_edge(Edge::Last);
            }
            self.path.pop();
        }
        Ok(())
    }

    /// Goes down from the last step to the leaf at one edge of what lies below.
    fn descend_edge(&mut self, edge: Edge) -> Result<(), TreeError> {
        loop {
            if self.readahead == Readahead::Forward && edge == Edge::First {
                self.prefetch_siblings();
            }
            let Some(parent) = self.path.last() else {
                return Ok(());
            };
            let Some(mut child) = self.child(parent)? else {
                return Ok(());
            };
            if edge == Edge::Last {
                child.slot = child.node.len().saturating_sub(1);
            }
            let is_leaf = child.node.is_leaf();
            self.path.push(child);
            if is_leaf {
                return Ok(());
            }
        }
    }

    /// Asks for the nodes that follow below the last step, a batch at a time.
    fn prefetch_siblings(&mut self) {
        let Some(parent) = self.path.last_mut() else {
            return;
        };
        let count = parent.node.len();
        if parent.slot + READAHEAD_NODES / 2 < parent.prefetched || parent.prefetched >= count {
            return;
        }
        let start = parent.prefetched.max(parent.slot);
        let end = count.min(parent.slot + READAHEAD_NODES);
        let wanted = parent.node.key_ptrs().get(start..end).unwrap_or_default();
        self.pool.prefetch_nodes(wanted.iter().map(|pointer: &KeyPtr| pointer.blockptr));
        parent.prefetched = end;
    }
}

/// Whether a tree can hold blocks of this owner: subvolumes share theirs with each other, log and relocation
/// trees go by several names, and any other tree has only its own.
fn may_hold(tree: RootId, owner: RootId) -> bool {
    let is_subvolume = |id: RootId| id == RootId::FS_TREE || id.is_subvolume();
    match tree {
        RootId::TREE_LOG | RootId::TREE_RELOC => true,
        _ if is_subvolume(tree) => is_subvolume(owner),
        _ => owner == tree,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}
