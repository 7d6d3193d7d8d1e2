//! A pool that is not there: blocks in a map, addresses from a counter. It knows which blocks it has given out and
//! got back, so that a tree that loses or leaks one is caught.

use super::super::blocks::Blocks;
use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::tree::Tree;
use crate::tree::{TreeState, is_virtual, virtual_address};
use brindle_ondisk::{
    ChecksumType, Generation, Key, Logical, Node, NodeExpectation, NodeHeader, RootId, TreeContext, Uuid,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const TREE: RootId = RootId::new(300);
/// Start of the addresses of blocks that have got a place.
const FIRST_PLACE: u64 = 1 << 30;

pub(super) struct World {
    pub(super) nodesize: u32,
    pub(super) generation: Cell<u64>,
    pub(super) disk: RefCell<BTreeMap<Logical, Arc<Node>>>,
    /// Dirty blocks that have got a place.
    placed: RefCell<BTreeSet<Logical>>,
    /// Blocks that the tree has left behind because a snapshot may have them.
    left: RefCell<BTreeSet<Logical>>,
    next: Cell<u64>,
    dirty: Cell<usize>,
    /// Number of blocks in eight that are not in memory.
    pub(super) absent: Cell<u64>,
    chance: Cell<u64>,
    pub(super) copies: Cell<usize>,
    /// A block that can't be read.
    pub(super) broken: Cell<Option<Logical>>,
    /// Number of copies that can be made.
    pub(super) copies_max: Cell<usize>,
    pub(super) tree: Tree,
    blocks_at_first: i64,
    pub(super) snapshots: RefCell<Vec<(TreeRoot, Model)>>,
}

pub(super) type Model = BTreeMap<Key, Vec<u8>>;

/// Result of a walk through a tree.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) items: Model,
    pub(super) blocks: BTreeSet<Logical>,
    pub(super) leaves: usize,
    pub(super) leaf_bytes: usize,
}

impl Walk {
    /// Fill of the leaves, in percent.
    pub(super) fn fill(&self, nodesize: u32) -> usize {
        let capacity = brindle_ondisk::to_usize(nodesize.into()) - size_of::<NodeHeader>();
        100 * self.leaf_bytes / (self.leaves * capacity).max(1)
    }
}

impl World {
    /// A pool with one tree, which is empty and on disk.
    pub(super) fn new(nodesize: u32) -> Self {
        let at = Logical::new(FIRST_PLACE);
        let header = NodeHeader {
            csum: [0; 32],
            fsid: Uuid([7; 16]),
            bytenr: at,
            flags: 0.into(),
            chunk_tree_uuid: Uuid([8; 16]),
            generation: Generation::new(10),
            owner: TREE,
            nritems: 0.into(),
            level: 0,
        };
        let mut leaf = Node::empty(nodesize, &header);
        let root = TreeRoot { id: TREE, bytenr: at, generation: header.generation, level: 0 };
        leaf.seal(&context(nodesize));
        Self {
            nodesize,
            generation: Cell::new(11),
            disk: RefCell::new([(at, Arc::new(leaf))].into()),
            placed: RefCell::default(),
            left: RefCell::default(),
            next: Cell::new(1),
            dirty: Cell::new(0),
            absent: Cell::new(0),
            chance: Cell::new(0x9e37_79b9_7f4a_7c15),
            copies: Cell::new(0),
            broken: Cell::new(None),
            copies_max: Cell::new(usize::MAX),
            tree: Tree::new(root, Generation::new(0)),
            blocks_at_first: 1,
            snapshots: RefCell::default(),
        }
    }

    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Gives every dirty block a place, as a commit does before it is done.
    pub(super) fn assign(&self) {
        let mut state = self.tree.write();
        let root = state.root.bytenr;
        let mut moved = Vec::new();
        state.root.bytenr = self.place(&mut state, root, &mut moved);
        assert!(state.dirty.is_empty(), "dirty blocks hang in the tree: {:?}", state.dirty.values());
        state.dirty.extend(moved.into_iter().map(|node| (node.header().bytenr, Arc::new(node))));
    }

    fn place(&self, state: &mut TreeState, at: Logical, moved: &mut Vec<Node>) -> Logical {
        let Some(node) = state.dirty.remove(&at) else {
            return at;
        };
        let mut node = Node::clone(&node);
        for slot in 0..node.key_ptrs().len() {
            let child = node.key_ptrs()[slot].blockptr;
            node.pointer_mut(slot).blockptr = self.place(state, child, moved);
        }
        let place = match is_virtual(at) {
            true => Logical::new(FIRST_PLACE + self.number() * u64::from(self.nodesize.max(4096))),
            false => at,
        };
        node.set_address(place);
        self.placed.borrow_mut().insert(place);
        moved.push(node);
        place
    }

    /// Puts what is dirty on disk, past the tree checker.
    fn freeze(&self) {
        self.assign();
        let mut state = self.tree.write();
        let context = context(self.nodesize);
        for (at, node) in std::mem::take(&mut state.dirty) {
            let mut node = Node::clone(&node);
            node.seal(&context);
            let expected = NodeExpectation {
                bytenr: at,
                generation: Some(Generation::new(self.generation.get())),
                level: Some(node.level()),
                first_key: None,
            };
            node.verify(&context, &expected).expect("the tree checker takes it");
            self.disk.borrow_mut().insert(at, Arc::new(node));
            self.dirty.set(self.dirty.get() - 1);
        }
        assert_eq!(self.dirty.get(), 0, "every dirty block was counted");
        self.placed.borrow_mut().clear();
    }

    pub(super) fn commit(&self) {
        self.freeze();
        self.generation.set(self.generation.get() + 1);
    }

    /// Makes a snapshot inside of the transaction.
    pub(super) fn snapshot(&self, model: &Model) {
        self.freeze();
        let source = self.tree.root();
        let at = Logical::new(FIRST_PLACE + self.number() * u64::from(self.nodesize.max(4096)));
        let (id, generation) =
            (RootId::new(TREE.get() + self.number()), Generation::new(self.generation.get()));
        let copy = self.disk.borrow()[&source.bytenr].copy(at, id, generation);
        self.disk.borrow_mut().insert(at, Arc::new(copy));
        self.snapshots.borrow_mut().push((TreeRoot { id, bytenr: at, generation, ..source }, model.clone()));
        self.tree.write().last_snapshot = generation;
    }

    /// Everything that must hold of the tree and its snapshots.
    pub(super) fn verify(&self, model: &Model) -> Walk {
        let mut walk = Walk::default();
        let state = self.tree.read();
        self.walk(Some(&state), &state.root.expectation(), None, state.root.level, &mut walk);
        assert_eq!(&walk.items, model);
        assert!(state.dirty.keys().all(|at| walk.blocks.contains(at)), "every dirty block hangs in the tree");
        assert_eq!(state.dirty.len(), self.dirty.get(), "dirty blocks are counted");
        assert_eq!(self.blocks_at_first + state.grown, i64::try_from(walk.blocks.len()).expect("few"));
        let mut known = walk.blocks.clone();
        for (root, model) in &*self.snapshots.borrow() {
            let mut walk = Walk::default();
            self.walk(None, &root.expectation(), None, root.level, &mut walk);
            assert_eq!(&walk.items, model, "a snapshot stays as it was");
            known.extend(walk.blocks);
        }
        known.extend(self.left.borrow().iter());
        assert!(self.disk.borrow().keys().all(|at| known.contains(at)), "no block is leaked");
        walk
    }

    fn walk(
        &self,
        state: Option<&TreeState>,
        expected: &NodeExpectation,
        bound: Option<Key>,
        level: u8,
        walk: &mut Walk,
    ) {
        let at = expected.bytenr;
        let dirty = state.and_then(|state| state.dirty.get(&at));
        let disk = self.disk.borrow();
        let node = dirty.or_else(|| disk.get(&at)).unwrap_or_else(|| panic!("{at} is gone"));
        assert!(walk.blocks.insert(at), "{node:?} is met twice");
        assert_eq!((node.header().bytenr, node.level()), (at, level));
        assert_eq!(Some(node.generation()), expected.generation, "{node:?}");
        assert!(expected.first_key.is_none_or(|first| node.key(0) == Some(first)), "first key of {node:?}");
        let keys: Vec<Key> = (0..node.len()).filter_map(|slot| node.key(slot)).collect();
        assert!(keys.is_sorted_by(|one, next| one < next), "{node:?}");
        assert!(keys.last().is_none_or(|last| bound.is_none_or(|bound| *last < bound)), "{node:?}");
        assert!(!node.is_empty() || (level == 0 && walk.blocks.len() == 1), "{node:?}");
        if dirty.is_some() {
            assert_eq!((node.header().owner, node.generation().get()), (TREE, self.generation.get()));
        } else {
            let own =
                |child: &brindle_ondisk::KeyPtr| state.is_some_and(|s| s.dirty.contains_key(&child.blockptr));
            assert!(!node.key_ptrs().iter().any(own), "{node:?} has dirty children");
        }
        if level == 0 {
            walk.leaves += 1;
            walk.leaf_bytes += node.used_space(0..node.len());
            walk.items
                .extend((0..node.len()).filter_map(|slot| node.item(slot)).map(|(k, d)| (k, d.to_vec())));
        }
        for (slot, child) in node.key_ptrs().iter().enumerate() {
            let bound = node.key(slot + 1).or(bound);
            self.walk(state, &NodeExpectation::child(child, level), bound, level - 1, walk);
        }
    }
}

fn context(nodesize: u32) -> TreeContext {
    let mut superblock = brindle_ondisk::Superblock::from_bytes(&[0; brindle_ondisk::SUPERBLOCK_SIZE]);
    superblock.nodesize.set(nodesize);
    superblock.sectorsize.set(4096);
    superblock.generation = Generation::new(1 << 40);
    superblock.fsid = Uuid([7; 16]);
    assert_eq!(superblock.checksum_type(), ChecksumType::Crc32c);
    TreeContext::new(&superblock)
}

impl Blocks for World {
    fn generation(&self) -> Generation {
        Generation::new(self.generation.get())
    }

    fn in_memory(&self, expected: &NodeExpectation) -> Option<Arc<Node>> {
        let chance = self.chance.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.chance.set(chance);
        let found = self.disk.borrow().get(&expected.bytenr).map(Arc::clone);
        let found = found.filter(|_| self.broken.get() != Some(expected.bytenr));
        found.filter(|_| (chance >> 40) % 8 >= self.absent.get())
    }

    fn read(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError> {
        // Would wait forever if the tree were locked.
        let _ = self.tree.root();
        if self.broken.get() == Some(expected.bytenr) {
            return Err(TreeError::NoSpace("this stands for a device's error".to_owned()));
        }
        let node = self.disk.borrow().get(&expected.bytenr).map(Arc::clone);
        let node = node.unwrap_or_else(|| panic!("{} is not on disk", expected.bytenr));
        assert_eq!(expected.generation, Some(node.generation()));
        Ok(node)
    }

    fn prefetch(&self, addresses: impl Iterator<Item = Logical>) {
        for at in addresses {
            assert!(
                is_virtual(at) || self.placed.borrow().contains(&at) || self.disk.borrow().contains_key(&at)
            );
        }
    }

    fn next_address(&self) -> Logical {
        virtual_address(self.number(), self.nodesize)
    }

    fn copied(
        &self,
        tree: RootId,
        old: &Arc<Node>,
        new: &Node,
        may_be_shared: bool,
    ) -> Result<(), TreeError> {
        assert!(is_virtual(new.header().bytenr) && !new.header().is_written());
        assert_eq!((new.header().owner, tree), (TREE, TREE));
        assert!(new.len() == old.len() && (0..old.len()).all(|slot| new.item(slot) == old.item(slot)));
        let at = old.header().bytenr;
        if self.copies.get() >= self.copies_max.get() {
            return Err(TreeError::NoSpace("this stands for any error".to_owned()));
        }
        self.copies.set(self.copies.get() + 1);
        assert!(self.disk.borrow().contains_key(&at), "{old:?} was on disk");
        if may_be_shared {
            self.left.borrow_mut().insert(at);
        } else {
            self.disk.borrow_mut().remove(&at);
        }
        Ok(())
    }

    fn is_shared(&self, _: &Node) -> Result<bool, TreeError> {
        Ok(true)
    }

    fn dropped(&self, tree: RootId, block: &Node) {
        let at = block.header().bytenr;
        assert_eq!(tree, TREE);
        let was_placed = self.placed.borrow_mut().remove(&at);
        assert!(was_placed || self.disk.borrow_mut().remove(&at).is_some(), "{block:?} was there");
    }

    fn dirtied(&self) {
        self.dirty.set(self.dirty.get() + 1);
    }

    fn vanished(&self) {
        self.dirty.set(self.dirty.get() - 1);
    }
}
