//! Plan of the blocks to be rewritten so that some of them, and some data, can move: they themselves and all blocks
//! above them, as the back references have it.

use super::contents::{Block, is_shareable};
use super::plan::{COMPRESSED_BYTES_MAX, Held, Plan, Root, refuse};
use crate::error::TreeError;
use crate::refs::delayed::{Extent, Referrer};
use crate::refs::sharing::data_of;
use crate::refs::{DataRange, References};
use crate::store::cursor::Readahead;
use crate::store::trees::Trees;
use crate::tree::Tree;
use brindle_ondisk::item::{ExtentFlags, FileExtent};
use brindle_ondisk::{
    Defect, Generation, Item, Key, KeyType, Logical, Node, NodeExpectation, ObjectId, RootId,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Finds out what has to be rewritten.
pub(super) struct Planner<'e, 'p> {
    references: References<'p>,
    trees: &'e Trees<'p>,
    extent_tree: Arc<Tree>,
    plan: Plan,
    /// Blocks that are to be part of the plan, and at which level they must be.
    queue: Vec<(Logical, u8)>,
    targets: HashSet<Logical>,
    /// The first child that is not gone, of blocks on the way to where a tree is being dropped.
    live: HashMap<Logical, usize>,
    /// Trees that were looked at for that.
    seen: HashSet<RootId>,
}

impl<'e, 'p> Planner<'e, 'p> {
    /// Plans for blocks of subvolumes, and data. Of the running transaction, it is for a moment when nothing else
    /// changes, all subvolumes are settled, and no reference waits; of the last commit, an estimate.
    pub(super) fn plan(
        references: References<'p>,
        trees: &'e Trees<'p>,
        blocks: &[Block],
        data: &[DataRange],
    ) -> Result<Plan, TreeError> {
        let mut planner = Self {
            references,
            trees,
            extent_tree: trees.tree(RootId::EXTENT_TREE)?,
            plan: Plan::default(),
            queue: Vec::new(),
            targets: blocks.iter().map(|block| block.at).collect(),
            live: HashMap::new(),
            seen: HashSet::new(),
        };
        for range in data {
            planner.add_data(*range)?;
        }
        planner.queue.extend(blocks.iter().map(|block| (block.at, block.level)));
        while let Some((at, level)) = planner.queue.pop() {
            if !planner.plan.blocks.contains_key(&at) {
                planner.add_block(at, level)?;
            }
        }
        planner.finish()
    }

    /// A block, and what points to it.
    fn add_block(&mut self, at: Logical, level: u8) -> Result<(), TreeError> {
        let is_target = self.targets.contains(&at);
        let extent = self.references.block_extent(at, level, Key::MIN);
        let Some(known) = self.references.recorded(&self.extent_tree, &extent)? else {
            // It was given up since it was seen; but what a tree holds must be there.
            return if is_target { Ok(()) } else { Err(self.references.unknown_block(&extent)) };
        };
        let expected = NodeExpectation { bytenr: at, generation: None, level: Some(level), first_key: None };
        let node = self.references.store.read_node(&expected)?;
        if !is_shareable(node.header().owner) {
            let (tree, owner) = (RootId::FS_TREE, node.header().owner);
            return Err(TreeError::WrongTree { at, tree, owner });
        }
        for (who, _) in &known.referrers {
            match *who {
                Referrer::Tree(root) => self.add_parent_of_tree(root, &node)?,
                Referrer::SharedTree(parent) if parent != at => {
                    self.queue.push((parent, level.saturating_add(1)));
                }
                _ => return Err(refuse(at, "reference to a tree block is of a kind that can't be followed")),
            }
        }
        let held = Held {
            node,
            is_full: known.flags.contains(ExtentFlags::FULL_BACKREF),
            is_marked: false,
            count: known.count,
            first_live: 0,
            is_dropped: false,
            is_target,
        };
        self.plan.blocks.insert(at, held);
        Ok(())
    }

    /// A tree refers to a block: its root, or the child of one that the tree has.
    fn add_parent_of_tree(&mut self, root: RootId, node: &Node) -> Result<(), TreeError> {
        let tree = self.trees.tree(root)?;
        let at = node.header().bytenr;
        self.look_at_progress(&tree)?;
        if tree.root().bytenr == at {
            self.plan.roots.push(Root { tree, at, becomes: at });
            return Ok(());
        }
        let first = node.key(0).ok_or_else(|| refuse(at, "block below a root is empty"))?;
        let mut expected = tree.root().expectation();
        loop {
            let above = self.references.store.read_node(&expected)?;
            let slot = above.search(&first).unwrap_or_else(|slot| slot.saturating_sub(1));
            let child = above.key_ptrs().get(slot).copied();
            let child = child.ok_or_else(|| refuse(at, "block is not in the tree that refers to it"))?;
            if above.level() == node.level() + 1 {
                if child.blockptr != at {
                    return Err(refuse(at, "block is not in the tree that refers to it"));
                }
                self.queue.push((above.header().bytenr, above.level()));
                return Ok(());
            }
            expected = NodeExpectation::child(&child, above.level());
        }
    }

    /// Notes what of a tree is gone, if it is being dropped.
    fn look_at_progress(&mut self, tree: &Tree) -> Result<(), TreeError> {
        if !self.seen.insert(tree.id()) {
            return Ok(());
        }
        let Some(item) = self.trees.root_item(tree.id())? else { return Ok(()) };
        if item.refs.get() > 0 || item.drop_progress.objectid == ObjectId::new(0) {
            return Ok(());
        }
        let mut expected = tree.root().expectation();
        loop {
            let node = self.references.store.read_node(&expected)?;
            let found = node.search(&item.drop_progress);
            let slot = found.unwrap_or_else(|slot| slot.saturating_sub(1));
            if node.is_leaf() {
                return Ok(());
            }
            self.live.insert(node.header().bytenr, slot);
            let Some(child) = node.key_ptrs().get(slot).filter(|_| node.level() > item.drop_level) else {
                return Ok(());
            };
            expected = NodeExpectation::child(child, node.level());
        }
    }

    /// Data, and the leaves that refer to it.
    fn add_data(&mut self, range: DataRange) -> Result<(), TreeError> {
        let Some(known) = self.references.recorded(&self.extent_tree, &Extent::data(range))? else {
            return Ok(());
        };
        for (who, count) in &known.referrers {
            match *who {
                Referrer::Data { root, objectid, offset } => {
                    self.add_leaves(range, root, objectid, offset, *count)?;
                }
                Referrer::SharedData(leaf) => self.queue.push((leaf, 0)),
                _ => {
                    return Err(refuse(range.start, "reference to data is of a kind that can't be followed"));
                }
            }
        }
        self.plan.data.insert(range.start, known);
        Ok(())
    }

    /// The leaves of a tree in which a file refers to an extent.
    fn add_leaves(
        &mut self,
        range: DataRange,
        root: RootId,
        objectid: ObjectId,
        offset: u64,
        count: i64,
    ) -> Result<(), TreeError> {
        let tree = self.trees.tree(root)?;
        self.look_at_progress(&tree)?;
        // The extent may begin before the file does.
        let is_before = offset > i64::MAX.unsigned_abs();
        let first = if is_before { 0 } else { offset };
        let end = offset.wrapping_add(range.length.max(COMPRESSED_BYTES_MAX));
        let mut cursor = self.references.store.cursor(&tree, Readahead::None);
        cursor.seek(&Key::new(objectid, KeyType::EXTENT_DATA, first))?;
        let mut found = 0;
        while let Some((key, data)) = cursor.item() {
            let is_near = (key.objectid, key.item_type) == (objectid, KeyType::EXTENT_DATA)
                && key.offset() < end
                && found < count;
            if !is_near {
                break;
            }
            let item = Item::parse(&key, data).map_err(|defect| TreeError::item(root, key, defect))?;
            if let Item::FileExtent(FileExtent::OnDisk { extent, .. }) = item {
                if extent.disk_bytenr == range.start {
                    if let Some((leaf, _)) = cursor.leaf() {
                        let at = leaf.header().bytenr;
                        // A leaf that refers in its own name is found by that; here only others count.
                        self.queue.push((at, 0));
                        found += i64::from(!self.is_full_leaf(at)?);
                    }
                }
            }
            cursor.next()?;
        }
        Ok(())
    }

    fn is_full_leaf(&self, at: Logical) -> Result<bool, TreeError> {
        let known =
            self.references.recorded(&self.extent_tree, &self.references.block_extent(at, 0, Key::MIN))?;
        Ok(known.is_some_and(|known| known.flags.contains(ExtentFlags::FULL_BACKREF)))
    }

    /// Completes the parts that need all blocks: those gone, those to be marked, and the check of the sums.
    fn finish(mut self) -> Result<Plan, TreeError> {
        for (at, slot) in &self.live {
            if let Some(held) = self.plan.blocks.get_mut(at) {
                (held.first_live, held.is_dropped) = (*slot, true);
            }
        }
        let roots: HashSet<Logical> = self.plan.roots.iter().map(|root| root.at).collect();
        let snapshots = self.plan.roots.iter().map(|root| root.tree.read().last_snapshot);
        let last_snapshot = snapshots.max().unwrap_or(Generation::new(0));
        for (at, held) in &mut self.plan.blocks {
            let may_be_shared = held.node.generation() <= last_snapshot && !roots.contains(at);
            held.is_marked = held.node.header().is_relocation() || may_be_shared;
        }
        self.check_counts()?;
        Ok(self.plan)
    }

    /// Checks that everything has as many pointers to it as references.
    fn check_counts(&self) -> Result<(), TreeError> {
        let mut pointers: HashMap<Logical, u64> = HashMap::new();
        for root in &self.plan.roots {
            *pointers.entry(root.at).or_default() += 1;
        }
        for held in self.plan.blocks.values() {
            if held.node.is_leaf() {
                for (range, _, _) in data_of(&held.node)? {
                    *pointers.entry(range.start).or_default() += 1;
                }
            }
            for child in held.node.key_ptrs().iter().skip(held.first_live) {
                *pointers.entry(child.blockptr).or_default() += 1;
            }
        }
        let blocks = self.plan.blocks.iter().map(|(at, held)| (*at, held.count));
        let data = self.plan.data.iter().map(|(at, known)| (*at, known.count));
        for (at, count) in blocks.chain(data) {
            let found = pointers.get(&at).copied().unwrap_or_default();
            if found != count {
                let key = Key::new(ObjectId::new(at.get()), KeyType::EXTENT_ITEM, 0);
                let why = "pointers to an extent that is to move, by its references";
                return Err(TreeError::item(RootId::EXTENT_TREE, key, Defect::expected(why, count, found)));
            }
        }
        Ok(())
    }
}
