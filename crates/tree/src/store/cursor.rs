//! Cursors: a place in a tree, to be moved either way.
//!
//! A cursor keeps the blocks of its path as it found them. It goes down with the tree locked against changes, and
//! only through blocks in memory: one that is not there is read with the lock given back, while its space is held
//! ([`Store::hold_freed_space`]), and the descent begins anew. Within a leaf it moves without a lock; to leave it, it climbs up its path if the tree is unchanged, and
//! looks for its place from the root if not.

use crate::error::TreeError;
use crate::store::Store;
use crate::store::is_expected;
use crate::tree::Tree;
use crate::tree::TreeState;
use brindle_ondisk::{Generation, Key, KeyPtr, Node, NodeExpectation, RootId};
use std::sync::Arc;

/// Readahead of a cursor: prefetching leaves before it comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readahead {
    /// For lookups.
    None,
    /// For scans.
    Forward,
}

/// Number of siblings that a scan prefetches at once.
const READAHEAD_NODES: usize = 32;

/// A place in a tree. Where there is no item (an empty tree, past either end) [`Cursor::item`] is `None`.
pub struct Cursor<'p> {
    store: &'p Store,
    tree: Arc<Tree>,
    readahead: Readahead,
    /// From the root to the leaf; empty when the cursor is nowhere.
    path: Vec<Step>,
    /// The version of the tree that the path is of.
    version: u64,
    /// Nodes that the descent under way has read: a small cache may have dropped them again.
    fetched: Vec<Arc<Node>>,
}

/// A block that a descent needs and that is not in memory.
struct Absent(NodeExpectation);

/// Result of a descent under the lock.
type Descent<T> = Result<Result<T, Absent>, TreeError>;

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
    pub(crate) fn new(store: &'p Store, tree: Arc<Tree>, readahead: Readahead) -> Self {
        Self { store, tree, readahead, path: Vec::new(), version: 0, fetched: Vec::new() }
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
            self.descend_to(key, 0)?;
        }
        let past_leaf = self.path.last().is_some_and(|leaf| leaf.slot >= leaf.node.len());
        if past_leaf { self.next_leaf() } else { Ok(()) }
    }

    /// Goes to the last item whose key is `key` or less.
    pub fn seek_last(&mut self, key: &Key) -> Result<(), TreeError> {
        self.descend_to(key, 0)?;
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

    /// Goes to the block just above the leaf where `key` is or would be, or to the leaf if it is all there is; the
    /// cursor is at no item then. Returns the key behind all that lies below.
    pub(crate) fn seek_above_leaves(&mut self, key: &Key) -> Result<Option<Key>, TreeError> {
        self.descend_to(key, 1)?;
        Ok(self.path.last().and_then(|step| step.bound))
    }

    /// Goes to the block of a level where `key` is or would be; the cursor is at no item then, unless that is a leaf.
    pub(crate) fn seek_level(&mut self, key: &Key, level: u8) -> Result<(), TreeError> {
        self.descend_to(key, level)
    }

    /// After a move that failed: the least key behind the block that could not be had. `None` if nothing lies behind it, or
    /// the root itself failed.
    pub fn key_behind_failure(&self) -> Option<Key> {
        let step = self.path.last()?;
        step.node.key_ptrs().get(step.slot + 1).map(|next| next.key).or(step.bound)
    }

    /// The blocks of the path, from the root down.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.path.iter().map(|step| &step.node)
    }

    /// The last block of the path.
    pub(crate) fn lowest(&self) -> Option<&Arc<Node>> {
        self.nodes().last()
    }

    /// Goes down from the root to the block of a level, or the leaf, where `key` is or would be.
    fn descend_to(&mut self, key: &Key, level: u8) -> Result<(), TreeError> {
        self.with_blocks(|cursor, state| {
            cursor.path.clear();
            let Some(root) = cursor.find(state, &state.root_expectation())? else {
                return Ok(Err(Absent(state.root_expectation())));
            };
            let mut step = Step { node: root, slot: 0, bound: None, prefetched: 0 };
            loop {
                let found = step.node.search(key);
                if step.node.level() <= level {
                    step.slot = found.unwrap_or_else(|slot| slot);
                    cursor.path.push(step);
                    return Ok(Ok(()));
                }
                // The child that may hold the key is the last one that does not begin behind it.
                step.slot = found.unwrap_or_else(|slot| slot.saturating_sub(1));
                let child = cursor.child(state, &step)?;
                cursor.path.push(step);
                if cursor.readahead == Readahead::Forward {
                    cursor.prefetch_siblings();
                }
                match child {
                    Ok(Some(child)) => step = child,
                    Ok(None) => return Ok(Ok(())),
                    Err(absent) => return Ok(Err(absent)),
                }
            }
        })
    }

    /// Does `walk` with the tree locked; what it misses is read without the lock, and it begins anew. A block that
    /// can't be read is an error only if the tree still wants it.
    fn with_blocks(
        &mut self,
        mut walk: impl FnMut(&mut Self, &TreeState) -> Descent<()>,
    ) -> Result<(), TreeError> {
        let tree = Arc::clone(&self.tree);
        let mut failed: Option<(NodeExpectation, TreeError)> = None;
        loop {
            let state = tree.read();
            self.version = tree.version();
            let absent = match walk(self, &state)? {
                Ok(()) => {
                    self.fetched.clear();
                    return Ok(());
                }
                Err(Absent(expected)) => expected,
            };
            // As long as the tree is locked, it refers to the block.
            let _held = self.store.hold_freed_space();
            drop(state);
            let same = |before: &NodeExpectation| {
                (before.bytenr, before.generation) == (absent.bytenr, absent.generation)
            };
            if let Some((_, error)) = failed.take().filter(|(before, _)| same(before)) {
                return Err(error);
            }
            match self.store.read_node(&absent) {
                Ok(node) => self.fetched.push(node),
                Err(error) => failed = Some((absent, error)),
            }
        }
    }

    /// A block that is expected, of the right tree, if it is in memory.
    fn find(&self, state: &TreeState, expected: &NodeExpectation) -> Result<Option<Arc<Node>>, TreeError> {
        let dirty = state.dirty.get(&expected.bytenr).map(Arc::clone);
        let fetched = || self.fetched.iter().find(|node| is_expected(node, expected)).map(Arc::clone);
        let Some(node) = dirty.or_else(fetched).or_else(|| self.store.node_in_memory(expected)) else {
            return Ok(None);
        };
        let (tree, owner) = (self.tree.id(), node.header().owner);
        if may_hold(tree, owner) {
            Ok(Some(node))
        } else {
            Err(TreeError::WrongTree { at: expected.bytenr, tree, owner })
        }
    }

    /// The child at the slot of a step, checked against the bound.
    fn child(&self, state: &TreeState, parent: &Step) -> Descent<Option<Step>> {
        let pointers = parent.node.key_ptrs();
        let Some(pointer) = pointers.get(parent.slot) else {
            return Ok(Ok(None));
        };
        let expected = NodeExpectation::child(pointer, parent.node.level());
        let Some(node) = self.find(state, &expected)? else {
            return Ok(Err(Absent(expected)));
        };
        let bound = pointers.get(parent.slot + 1).map(|next| next.key).or(parent.bound);
        let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
        match (bound, last) {
            (Some(bound), Some(last)) if last >= bound => {
                Err(TreeError::KeyBeyondBound { at: pointer.blockptr, last, bound })
            }
            _ => Ok(Ok(Some(Step { node, slot: 0, bound, prefetched: 0 }))),
        }
    }

    /// Goes to the first item of the next leaf.
    fn next_leaf(&mut self) -> Result<(), TreeError> {
        let last = self.leaf_key(|leaf| leaf.len().checked_sub(1));
        self.climb(Edge::First, last)
    }

    /// Goes to the last item of the leaf before.
    fn previous_leaf(&mut self) -> Result<(), TreeError> {
        let first = self.leaf_key(|_| Some(0));
        self.climb(Edge::Last, first)
    }

    /// The key at a slot of the leaf.
    fn leaf_key(&self, slot: impl FnOnce(&Node) -> Option<usize>) -> Option<Key> {
        let leaf = self.path.last().filter(|leaf| leaf.node.is_leaf())?;
        leaf.node.key(slot(&leaf.node)?)
    }

    /// Leaves the leaf, whose outermost key on that side is `from`, for the one beside it, up and down the path.
    fn climb(&mut self, edge: Edge, from: Option<Key>) -> Result<(), TreeError> {
        self.path.pop();
        while let Some(parent) = self.path.last_mut() {
            let beside = match edge {
                Edge::First => Some(parent.slot + 1).filter(|slot| *slot < parent.node.len()),
                Edge::Last => parent.slot.checked_sub(1),
            };
            if let Some(slot) = beside {
                parent.slot = slot;
                return self.descend_edge(edge, from);
            }
            self.path.pop();
        }
        Ok(())
    }

    /// The path was of the past: looks for what lies beside `from` from the root.
    fn seek_beside(&mut self, edge: Edge, from: &Key) -> Result<(), TreeError> {
        match (edge, from.successor()) {
            (Edge::First, Some(next)) => self.seek(&next),
            (Edge::First, None) => {
                self.path.clear();
                Ok(())
            }
            (Edge::Last, _) => {
                self.descend_to(from, 0)?;
                match self.path.last_mut().filter(|step| step.node.is_leaf()) {
                    Some(leaf) if leaf.slot > 0 => {
                        leaf.slot -= 1;
                        Ok(())
                    }
                    Some(_) => self.climb(Edge::Last, Some(*from)),
                    None => Ok(()),
                }
            }
        }
    }

    /// Goes down from the last step to the leaf at one edge of what lies below.
    fn descend_edge(&mut self, edge: Edge, from: Option<Key>) -> Result<(), TreeError> {
        let (version, depth) = (self.version, self.path.len());
        let mut moved = false;
        self.with_blocks(|cursor, state| {
            if cursor.version != version {
                // The path is of the past, and so may be the blocks below it.
                moved = true;
                return Ok(Ok(()));
            }
            cursor.path.truncate(depth);
            loop {
                if cursor.readahead == Readahead::Forward && edge == Edge::First {
                    cursor.prefetch_siblings();
                }
                let Some(parent) = cursor.path.last() else {
                    return Ok(Ok(()));
                };
                let mut child = match cursor.child(state, parent)? {
                    Ok(Some(child)) => child,
                    Ok(None) => return Ok(Ok(())),
                    Err(absent) => return Ok(Err(absent)),
                };
                if edge == Edge::Last {
                    child.slot = child.node.len().saturating_sub(1);
                }
                let is_leaf = child.node.is_leaf();
                cursor.path.push(child);
                if is_leaf {
                    return Ok(Ok(()));
                }
            }
        })?;
        match from.filter(|_| moved) {
            Some(from) => self.seek_beside(edge, &from),
            None => Ok(()),
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
        self.store.prefetch_nodes(wanted.iter().map(|pointer: &KeyPtr| pointer.blockptr));
        parent.prefetched = end;
    }
}

/// The leaf where a key is or would be, for callers that need no position: a cursor's descent without its path. `None` if
/// something on the way is not in memory, or not what it should be, which is for a cursor to say.
pub(crate) fn leaf_in_memory(store: &Store, tree: &Tree, key: &Key) -> Option<Arc<Node>> {
    let state = tree.read();
    let mut expected = state.root_expectation();
    let mut bound: Option<Key> = None;
    loop {
        let clean;
        let node = match state.dirty.get(&expected.bytenr) {
            // What the transaction has changed, it has looked at.
            Some(dirty) => dirty,
            None => {
                clean = store.node_in_memory(&expected)?;
                let last = clean.len().checked_sub(1).and_then(|slot| clean.key(slot));
                let is_within = last.zip(bound).is_none_or(|(last, bound)| last < bound);
                if !is_within || !may_hold(tree.id(), clean.header().owner) {
                    return None;
                }
                &clean
            }
        };
        if node.is_leaf() {
            return Some(Arc::clone(node));
        }
        let slot = node.search(key).unwrap_or_else(|slot| slot.saturating_sub(1));
        let pointers = node.key_ptrs();
        bound = pointers.get(slot + 1).map(|next| next.key).or(bound);
        expected = NodeExpectation::child(pointers.get(slot)?, node.level());
    }
}

/// Returns true if a tree can hold blocks of this owner: subvolumes share theirs with each other, log and relocation
/// trees go by several names, and any other tree has only its own.
pub(crate) fn may_hold(tree: RootId, owner: RootId) -> bool {
    let is_subvolume = |id: RootId| id == RootId::FS_TREE || id.is_subvolume();
    match tree {
        RootId::TREE_LOG | RootId::TREE_RELOC => true,
        _ if is_subvolume(tree) => is_subvolume(owner),
        _ => owner == tree,
    }
}

/// Returns true if a block of a tree that is not its root may be part of another one too.
pub(crate) fn may_be_shared(node: &Node, last_snapshot: Generation) -> bool {
    node.generation() <= last_snapshot || node.header().is_relocation()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}
