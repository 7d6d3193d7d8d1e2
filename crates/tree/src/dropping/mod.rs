//! Dropping a deleted subvolume's tree, a part at a time.
//!
//! The walk goes down from the root through blocks that only this tree has, and drops what they refer to, in the
//! order of keys; a block goes when everything below it is gone. Blocks are only read, never changed. Where the
//! walk is, the root item says as the kernel has it (`drop_progress`, `drop_level`): in the node of that level on
//! the way to that key, the children before that key are gone, and so are those on the left of the way above it.
//! So either can end what the other began.
//!
//! A block that others share loses one reference. If this tree made it, everything below that this tree made as
//! well refers to its children by the tree's name, which is about to go: such a subtree is converted first (each
//! block becomes the referrer of its children). What is older than the tree (a snapshot's key says when it was
//! made) was not made by it. Conversion cut short begins anew and finds what is done by its flag; a note in memory
//! spares it the way, as long as the pool stays open.

pub(crate) mod relocations;

use crate::editor::Editor;
use crate::error::TreeError;
use crate::refs::References;
use crate::refs::delayed::Extent;
use crate::refs::sharing::Under;
use crate::root::TreeRoot;
use crate::tree::Tree;
use brindle_ondisk::item::{ExtentFlags, RootItem};
use brindle_ondisk::{
    Defect, Generation, Key, KeyPtr, KeyType, Logical, Node, NodeExpectation, ObjectId, RootId,
};
use std::sync::Arc;

/// Number of siblings that are prefetched at once.
const PREFETCH: usize = 32;

/// A block on the way, and the child that comes next.
struct Step {
    node: Arc<Node>,
    slot: usize,
    flags: ExtentFlags,
    /// The slot up to which children have been asked for.
    prefetched: usize,
}

/// A tree that is being dropped.
struct Walk<'p> {
    references: References<'p>,
    tree: RootId,
    /// Blocks older than this generation were not made by this tree; 0 if it is no snapshot.
    origin: Generation,
    /// From the root down, all of them only this tree's.
    path: Vec<Step>,
    /// Number of further blocks that may be dropped or converted.
    budget: usize,
}

/// A tree that is to be dropped.
#[derive(Debug)]
pub(super) struct Doomed {
    pub(super) root: TreeRoot,
    /// The key of its root item.
    pub(super) key: Key,
    /// Blocks older than this generation were not made by this tree.
    pub(super) origin: Generation,
}

/// The state of a tree after a part of it has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// All of it is gone.
    Whole,
    /// The children before the key are gone, in the node of this level.
    Until(Key, u8),
    /// Nothing has gone yet.
    Nothing,
}

/// Extent of the conversion of a subtree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    Whole,
    /// Up to here, for want of budget.
    Part,
}

/// Drops trees in the running transaction.
#[derive(Clone, Copy, Debug)]
pub struct TreeDropper<'p> {
    editor: Editor<'p>,
}

impl<'p> TreeDropper<'p> {
    /// Drops trees by means of an editor.
    pub fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Drops part of a deleted tree: at most about `budget` blocks, progress kept in its root item; whether it is
    /// gone (its root item too). A tree that the running transaction has changed waits for the commit.
    ///
    /// # Errors
    /// Blocks that can't be read, or that are referred to otherwise than as blocks of one tree.
    pub fn drop_part(&self, tree: &Tree, budget: usize) -> Result<bool, TreeError> {
        if tree.is_dirty() {
            return Ok(false);
        }
        let Some((key, item)) = self.editor.store.root_item(tree.id())? else {
            return Ok(true);
        };
        // What is older than a snapshot, the snapshot did not make.
        let doomed = Doomed { root: tree.root(), key, origin: Generation::new(key.offset()) };
        let dropped = self.drop_blocks(&doomed, &item, budget)?;
        let root_tree = self.editor.store.tree(RootId::ROOT_TREE)?;
        if dropped == Dropped::Whole {
            self.editor.changes.refs.note_conversion(tree.id(), None);
            self.editor.remove(&root_tree, &key)?;
            let orphan = Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, tree.id().get());
            self.editor.remove(&root_tree, &orphan)?;
            self.editor.store.forget_tree(tree.id());
            self.editor.changes.quotas.dropped(tree.id());
        } else if let Dropped::Until(progress, level) = dropped {
            self.editor
                .update(&root_tree, &key, |data| RootItem::write_drop_progress(data, &progress, level))?
                .unwrap_or(Ok(()))
                .map_err(|defect| TreeError::item(RootId::ROOT_TREE, key, defect))?;
        }
        Ok(dropped == Dropped::Whole)
    }

    /// Drops at most about `budget` blocks of a tree, from where its root item says that dropping has come.
    pub(super) fn drop_blocks(
        &self,
        doomed: &Doomed,
        item: &RootItem,
        budget: usize,
    ) -> Result<Dropped, TreeError> {
        let (tree, origin, budget) = (doomed.root.id, doomed.origin, budget.max(1));
        let mut walk = Walk { references: self.editor.references(), tree, origin, path: Vec::new(), budget };
        walk.resume(doomed, item)?;
        if walk.run()? {
            return Ok(Dropped::Whole);
        }
        Ok(walk.progress().map_or(Dropped::Nothing, |(key, level)| Dropped::Until(key, level)))
    }
}

impl Walk<'_> {
    /// Goes to where the root item says that dropping has come.
    fn resume(&mut self, doomed: &Doomed, item: &RootItem) -> Result<(), TreeError> {
        let root = self.references.store.read_node(&doomed.root.expectation())?;
        let begun = item.drop_progress.objectid != ObjectId::new(0);
        let until = if begun { item.drop_level } else { root.level() };
        if until > root.level() || until == 0 && root.level() > 0 {
            let defect = Defect::expected("drop_level of root", root.level().into(), until.into());
            return Err(TreeError::item(RootId::ROOT_TREE, doomed.key, defect));
        }
        self.enter(root)?;
        while let Some(step) = self.path.last_mut() {
            if begun && !step.node.is_leaf() {
                let found = step.node.search(&item.drop_progress);
                step.slot = found.unwrap_or_else(|slot| slot.saturating_sub(1));
            }
            if step.node.level() <= until {
                break;
            }
            let Some(pointer) = step.node.key_ptrs().get(step.slot) else { break };
            let expected = NodeExpectation::child(pointer, step.node.level());
            let child = self.references.store.read_node(&expected)?;
            self.enter(child)?;
        }
        Ok(())
    }

    /// Adds a block to the path, which must not be shared.
    fn enter(&mut self, node: Arc<Node>) -> Result<(), TreeError> {
        let known = self.references.of_block(node.header().bytenr, node.level())?;
        if known.count != 1 {
            let key = Key::new(ObjectId::new(node.header().bytenr.get()), KeyType::METADATA_ITEM, 0);
            let defect = Defect::expected("references of a block that is being dropped", 1, known.count);
            return Err(TreeError::item(RootId::EXTENT_TREE, key, defect));
        }
        self.path.push(Step { node, slot: 0, flags: known.flags, prefetched: 0 });
        Ok(())
    }

    /// Position of the walk, for the root item.
    fn progress(&self) -> Option<(Key, u8)> {
        let step = self.path.last()?;
        Some((step.node.key(step.slot)?, step.node.level()))
    }

    /// Drops blocks until the budget is spent; whether nothing is left.
    fn run(&mut self) -> Result<bool, TreeError> {
        while let Some(step) = self.path.last() {
            if step.slot >= step.node.key_ptrs().len() {
                self.leave()?;
                continue;
            }
            if self.budget == 0 {
                return Ok(false);
            }
            self.prefetch()?;
            self.drop_child()?;
        }
        Ok(true)
    }

    /// Everything below the last block of the path is gone: it goes too.
    fn leave(&mut self) -> Result<(), TreeError> {
        let Some(step) = self.path.pop() else { return Ok(()) };
        let under = Under::of(&step.node, step.flags, self.tree)?;
        if step.node.is_leaf() {
            self.references.refer_from(&step.node, under, -1)?;
        }
        // A root is no child: one that is full, a relocation's, refers to itself.
        let parent = match self.path.last_mut() {
            Some(parent) => {
                parent.slot += 1;
                Under::of(&parent.node, parent.flags, self.tree)?
            }
            None => under,
        };
        self.references.delayed.change(&self.references.extent_of(&step.node), parent.block(), -1);
        self.budget = self.budget.saturating_sub(1);
        Ok(())
    }

    /// The next child of the last block: goes down to it if it is this tree's alone, else drops one reference.
    fn drop_child(&mut self) -> Result<(), TreeError> {
        let Some(step) = self.path.last() else { return Ok(()) };
        let Some(pointer) = step.node.key_ptrs().get(step.slot).copied() else { return Ok(()) };
        let expected = NodeExpectation::child(&pointer, step.node.level());
        let level = step.node.level().saturating_sub(1);
        let parent = Under::of(&step.node, step.flags, self.tree)?;
        let extent = self.references.block_extent(pointer.blockptr, level, pointer.key);
        let mut must_convert = true;
        loop {
            let decision = self.references.delayed.lock_block(extent.start, extent.length);
            let known = self.references.of_block(extent.start, level)?;
            if known.count == 0 {
                return Err(self.references.unknown_block(&extent));
            }
            if known.count == 1 {
                let node = self.references.store.read_node(&expected)?;
                self.path.push(Step { node, slot: 0, flags: known.flags, prefetched: 0 });
                return Ok(());
            }
            if !must_convert || pointer.generation < self.origin {
                self.references.delayed.change(&extent, parent.block(), -1);
                break;
            }
            drop(decision);
            if self.convert(&pointer, level)? == Conversion::Part {
                self.budget = 0;
                return Ok(());
            }
            must_convert = false;
        }
        self.budget = self.budget.saturating_sub(1);
        if let Some(step) = self.path.last_mut() {
            step.slot += 1;
        }
        Ok(())
    }

    /// Everything below, and the block itself, as far as this tree made it, gets to refer to its children under its
    /// own name.
    fn convert(&mut self, pointer: &KeyPtr, level: u8) -> Result<Conversion, TreeError> {
        if pointer.generation < self.origin {
            return Ok(Conversion::Whole);
        }
        let extent = self.references.block_extent(pointer.blockptr, level, pointer.key);
        if level == 0 && self.is_full(&extent, level)? {
            return Ok(Conversion::Whole);
        }
        let expected = NodeExpectation {
            bytenr: pointer.blockptr,
            generation: Some(pointer.generation),
            level: Some(level),
            first_key: Some(pointer.key),
        };
        let node = self.references.store.read_node(&expected)?;
        if node.header().owner != self.tree {
            return Ok(Conversion::Whole);
        }
        if !self.convert_block(&node, &extent)? {
            return Ok(Conversion::Part);
        }
        let Some(below) = level.checked_sub(1) else { return Ok(Conversion::Whole) };
        let children = node.key_ptrs();
        let done = self.references.delayed.conversion(self.tree);
        for (slot, child) in children.iter().enumerate() {
            let next = children.get(slot + 1).map(|next| next.key);
            if next.is_some_and(|next| next <= done) {
                continue;
            }
            if slot % PREFETCH == 0 {
                let batch = children.iter().skip(slot).take(PREFETCH);
                let wanted = batch.filter(|child| child.generation >= self.origin);
                self.references.store.prefetch_nodes(wanted.map(|child| child.blockptr));
            }
            if self.convert(child, below)? == Conversion::Part {
                return Ok(Conversion::Part);
            }
            if let Some(next) = next.filter(|_| below == 0) {
                self.references.delayed.note_conversion(self.tree, Some(next));
            }
        }
        Ok(Conversion::Whole)
    }

    /// Converts one block unless it is; `false` if there is no budget for it.
    fn convert_block(&mut self, node: &Node, extent: &Extent) -> Result<bool, TreeError> {
        let _decision = self.references.delayed.lock_block(extent.start, extent.length);
        if self.is_full(extent, node.level())? {
            return Ok(true);
        }
        if self.budget == 0 {
            return Ok(false);
        }
        self.references.refer_from(node, Under::Block(extent.start), 1)?;
        self.references.refer_from(node, Under::Tree(self.tree), -1)?;
        self.references.delayed.set_full(extent);
        self.budget -= 1;
        Ok(true)
    }

    fn is_full(&self, extent: &Extent, level: u8) -> Result<bool, TreeError> {
        let known = self.references.of_block(extent.start, level)?;
        if known.count == 0 {
            return Err(self.references.unknown_block(extent));
        }
        Ok(known.flags.contains(ExtentFlags::FULL_BACKREF))
    }

    /// Asks for the children that will be read.
    fn prefetch(&mut self) -> Result<(), TreeError> {
        let Some(step) = self.path.last_mut().filter(|step| step.slot >= step.prefetched) else {
            return Ok(());
        };
        let end = step.node.key_ptrs().len().min(step.slot + PREFETCH);
        let children: Vec<KeyPtr> = step.node.key_ptrs()[step.slot..end].to_vec();
        let level = step.node.level().saturating_sub(1);
        step.prefetched = end;
        let mut wanted: Vec<Logical> = Vec::new();
        for child in children {
            let is_ours = child.generation >= self.origin;
            if is_ours || self.references.of_block(child.blockptr, level)?.count == 1 {
                wanted.push(child.blockptr);
            }
        }
        self.references.store.prefetch_nodes(wanted.into_iter());
        Ok(())
    }
}
