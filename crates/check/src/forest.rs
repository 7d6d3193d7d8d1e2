//! The shape of all trees: every block once, and its referrers.
//!
//! Nodes are read level by level, from the highest, each level in the order of addresses; leaves are only
//! noted. A block to which several parents point is registered by the first (its *home*); the others must
//! say the same of it (generation, level, first key, and the key that nothing in it reaches), or the block is
//! read again for them. Since the level goes down with each step, no pointer can make this loop.

use crate::ledger::Ledger;
use crate::page;
use crate::parallel::parallel;
use crate::read::{Reader, beyond_bound};
use crate::roots::{Tree, TreeKind};
use brindle_ondisk::{Generation, Key, Logical, Node, NodeExpectation, RootId};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A block, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

/// A tree block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) bytenr: u64,
    pub(crate) generation: u64,
    /// A fingerprint of what its home says of it.
    claim: u64,
    /// Index in the list of trees, of the first that has it.
    pub(crate) tree: u32,
    /// The node that is its home; none for roots.
    pub(crate) home: Option<BlockId>,
    /// Index in the list of nodes, for those that have been read.
    node: Option<u32>,
    pub(crate) level: u8,
    flags: AtomicU8,
}

/// Names in a block's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) owner: RootId,
    pub(crate) first_key: Option<Key>,
    /// True if it was written by a balance, which files everything under blocks.
    pub(crate) is_relocation: bool,
}

impl Named {
    pub(crate) fn of(node: &Node) -> Self {
        let header = node.header();
        Self { owner: header.owner, first_key: node.key(0), is_relocation: header.is_relocation() }
    }
}

/// Kept part of a node.
#[derive(Debug)]
pub(crate) struct Interior {
    /// Names in its header.
    pub(crate) named: Named,
    /// The key that nothing below reaches.
    pub(crate) bound: Option<Key>,
    /// The slot of its first child that is left; those before have been dropped.
    pub(crate) first_slot: usize,
    pub(crate) children: Vec<BlockId>,
}

/// Several parents have this block.
const SHARED: u8 = 1 << 0;
/// No copy is readable.
const BAD: u8 = 1 << 1;
/// Its references are filed under the block, not under its owner.
const FULL_BACKREF: u8 = 1 << 2;

/// TreeFacts about a block from a parent other than its home.
#[derive(Clone, Copy, Debug)]
struct Claim {
    tree: u32,
    expected: NodeExpectation,
    bound: Option<Key>,
}

/// The shape of all trees.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    pub(crate) trees: Vec<Tree>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) nodes: Vec<Interior>,
    by_address: HashMap<u64, BlockId>,
    /// The root block of each tree.
    pub(crate) roots: Vec<Option<BlockId>>,
    claims: Vec<Claim>,
    /// For nodes of trees that are being dropped: up to where.
    dropped_to: HashMap<BlockId, (Key, u8)>,
    /// Bounds and first keys of nodes still to be read.
    pending: HashMap<BlockId, (Option<Key>, Option<Key>)>,
}

/// Nodes read at once.
const BATCH: usize = 512;

impl Forest {
    /// Finds every block of every tree; leaves are not read.
    pub(crate) fn find(trees: Vec<Tree>, reader: &Reader<'_>, ledger: &Ledger, threads: usize) -> Self {
        let mut forest = Self { trees, ..Self::default() };
        let mut levels: Vec<Vec<BlockId>> = vec![Vec::new(); usize::from(brindle_ondisk::MAX_LEVEL) + 1];
        for index in 0..forest.trees.len() {
            let root = forest.plant(index, &mut levels);
            forest.roots.push(root);
        }
        for level in (1..levels.len()).rev() {
            let mut nodes = std::mem::take(&mut levels[level]);
            nodes.sort_by_key(|id| forest.block(*id).bytenr);
            for batch in nodes.chunks(BATCH) {
                forest.prefetch(batch, reader);
                let read = parallel(threads, batch.len(), Vec::new, |done, job| {
                    done.push((batch[job], forest.read_node(batch[job], reader, ledger)));
                });
                let mut read: Vec<(BlockId, Option<Node>)> = read.into_iter().flatten().collect();
                read.sort_by_key(|(id, _)| *id);
                for (id, node) in read {
                    forest.grow(id, node.as_ref(), &mut levels);
                }
            }
        }
        forest.pending = HashMap::new();
        forest.settle_claims(reader, ledger);
        forest
    }

    /// A block by its number.
    pub(crate) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// The number of the block at an address.
    pub(crate) fn at(&self, bytenr: u64) -> Option<BlockId> {
        self.by_address.get(&bytenr).copied()
    }

    /// Kept part of a node that could be read.
    pub(crate) fn node(&self, id: BlockId) -> Option<&Interior> {
        self.nodes.get(self.block(id).node? as usize)
    }

    /// The trees of an id; they are sorted.
    pub(crate) fn trees_of(&self, id: RootId) -> impl Iterator<Item = &Tree> {
        let first = self.trees.partition_point(|tree| tree.id < id);
        self.trees.iter().skip(first).take_while(move |tree| tree.id == id)
    }

    /// The tree that a block was found in first.
    pub(crate) fn tree_of(&self, id: BlockId) -> &Tree {
        &self.trees[self.block(id).tree as usize]
    }

    /// Number of blocks, leaves included.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The numbers of all blocks.
    pub(crate) fn ids(&self) -> impl Iterator<Item = BlockId> + use<> {
        let count = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        (0..count).map(BlockId)
    }

    /// Adds the root block of a tree.
    fn plant(&mut self, index: usize, levels: &mut [Vec<BlockId>]) -> Option<BlockId> {
        let Tree { root, dropped_to, .. } = self.trees[index];
        let tree = u32::try_from(index).ok()?;
        let (id, is_new) = self.register(tree, None, &root, None)?;
        if is_new {
            levels.get_mut(usize::from(root.level.unwrap_or(0)))?.push(id);
            if let Some(progress) = dropped_to {
                self.dropped_to.insert(id, progress);
            }
        }
        Some(id)
    }

    /// Notes a block, or that one more parent has it.
    fn register(
        &mut self,
        tree: u32,
        home: Option<BlockId>,
        expected: &NodeExpectation,
        bound: Option<Key>,
    ) -> Option<(BlockId, bool)> {
        let claim = fingerprint(expected, bound);
        let bytenr = expected.bytenr.get();
        if let Some(id) = self.by_address.get(&bytenr).copied() {
            let block = &self.blocks[id.index()];
            block.set(SHARED);
            if block.claim != claim {
                self.claims.push(Claim { tree, expected: *expected, bound });
            }
            return Some((id, false));
        }
        let id = BlockId(u32::try_from(self.blocks.len()).ok()?);
        let level = expected.level.unwrap_or(0);
        self.by_address.insert(bytenr, id);
        self.blocks.push(Block {
            bytenr,
            generation: expected.generation.map_or(0, Generation::get),
            claim,
            tree,
            home,
            node: None,
            level,
            flags: AtomicU8::new(0),
        });
        if level > 0 {
            self.pending.insert(id, (expected.first_key, bound));
        }
        Some((id, true))
    }

    fn read_node(&self, id: BlockId, reader: &Reader<'_>, ledger: &Ledger) -> Option<Node> {
        let (first_key, bound) = self.pending.get(&id).copied().unwrap_or_default();
        let block = self.block(id);
        let tree = self.tree_of(id).name();
        let node = reader.block(tree, &NodeExpectation { first_key, ..block.expectation() });
        let Some(node) = node else {
            block.set(BAD);
            return None;
        };
        if let Some(finding) = beyond_bound(tree, &node, bound) {
            ledger.report(page::TREES, finding);
        }
        Some(node)
    }

    /// Registers the children of a node that was read.
    fn grow(&mut self, id: BlockId, node: Option<&Node>, levels: &mut [Vec<BlockId>]) {
        let (_, bound) = self.pending.remove(&id).unwrap_or_default();
        let Some(node) = node else { return };
        let tree = self.block(id).tree;
        let progress = self.dropped_to.remove(&id);
        let first_slot =
            progress.map_or(0, |(key, _)| node.search(&key).unwrap_or_else(|slot| slot.saturating_sub(1)));
        let pointers = node.key_ptrs();
        let mut children = Vec::with_capacity(pointers.len());
        for (slot, pointer) in pointers.iter().enumerate().skip(first_slot) {
            let bound = pointers.get(slot + 1).map(|next| next.key).or(bound);
            let expected = NodeExpectation::child(pointer, node.level());
            let Some((child, is_new)) = self.register(tree, Some(id), &expected, bound) else { break };
            children.push(child);
            if is_new {
                levels[usize::from(node.level()) - 1].push(child);
                // Of the path on which dropping stands, what comes before is gone at each level.
                if let Some(progress) =
                    progress.filter(|(_, level)| slot == first_slot && *level < node.level())
                {
                    self.dropped_to.insert(child, progress);
                }
            }
        }
        let number = u32::try_from(self.nodes.len()).ok();
        self.nodes.push(Interior { named: Named::of(node), bound, first_slot, children });
        self.blocks[id.index()].node = number;
    }

    /// Reads each block again for parents that disagree with its home.
    fn settle_claims(&mut self, reader: &Reader<'_>, ledger: &Ledger) {
        for claim in std::mem::take(&mut self.claims) {
            let tree = self.trees[claim.tree as usize].name();
            let mut expected = claim.expected;
            // The bound is that of the last child too, and of its last child.
            while let Some(node) = reader.block(tree, &expected) {
                if let Some(finding) = beyond_bound(tree, &node, claim.bound) {
                    ledger.report(page::TREES, finding);
                    break;
                }
                let Some(pointer) = node.key_ptrs().last() else { break };
                expected = NodeExpectation::child(pointer, node.level());
            }
        }
    }

    fn prefetch(&self, batch: &[BlockId], reader: &Reader<'_>) {
        for id in batch {
            let block = self.block(*id);
            reader.volume.prefetch(Logical::new(block.bytenr), reader.context.nodesize.into());
        }
    }
}

impl BlockId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Block {
    /// Expectation of the block, without its first key.
    pub(crate) fn expectation(&self) -> NodeExpectation {
        NodeExpectation::root(Logical::new(self.bytenr), Generation::new(self.generation), self.level)
    }

    /// Returns true if several parents have the block.
    pub(crate) fn is_shared(&self) -> bool {
        self.has(SHARED)
    }

    /// Returns true if no copy is readable.
    pub(crate) fn is_bad(&self) -> bool {
        self.has(BAD)
    }

    pub(crate) fn mark_bad(&self) {
        self.set(BAD);
    }

    /// Returns true if its references are filed under the block.
    pub(crate) fn has_full_backref(&self) -> bool {
        self.has(FULL_BACKREF)
    }

    pub(crate) fn mark_full_backref(&self) {
        self.set(FULL_BACKREF);
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    fn set(&self, flag: u8) {
        self.flags.fetch_or(flag, Relaxed);
    }
}

impl TreeKind {
    /// Returns true if the extent tree accounts for its blocks and their references.
    pub(crate) fn is_accounted(self) -> bool {
        self != Self::Log
    }
}

fn fingerprint(expected: &NodeExpectation, bound: Option<Key>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (expected.generation, expected.level, expected.first_key, bound).hash(&mut hasher);
    hasher.finish()
}
