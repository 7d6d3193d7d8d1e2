//! Removal of items: blocks that are left empty leave the tree, those nearly empty join a neighbour.
//!
//! An unchanged neighbour is copied for that only if it is in memory, and only if one of the two
//! goes away by it: what is written at the commit is then no more than without.

use super::Verdict;
use super::blocks::Blocks;
use super::descent::{Edit, Held, check_bound};
use crate::error::TreeError;
use crate::tree::Tree;
use crate::tree::is_virtual;
use brindle_ondisk::{Key, Logical, Node, NodeExpectation, NodeHeader};
use std::ops::Range;
use std::sync::Arc;

/// Reciprocal of the fill below which a block looks for a neighbour to join.
const SPARSE: usize = 4;
/// Reciprocal of the share that two blocks leave free when they join.
const SLACK: usize = 8;

/// Neighbours that a block may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    Both,
    /// The one behind will be looked at anyway.
    Left,
}

/// Items of a leaf to be removed.
#[derive(Default)]
struct Condemned {
    /// The slots to be removed, ascending.
    runs: Vec<Range<usize>>,
    /// Nothing behind is to be looked at.
    is_end: bool,
}

impl<B: Blocks> Edit<'_, B> {
    /// Removes the item at the path.
    pub(super) fn remove_item_here(&mut self) -> Result<(), TreeError> {
        let run = self.slot()..self.slot() + 1;
        self.remove_here(std::slice::from_ref(&run), Neighbours::Both)
    }

    /// Removes slots of the path's leaf, in ascending order and not adjoining.
    fn remove_here(&mut self, runs: &[Range<usize>], sides: Neighbours) -> Result<(), TreeError> {
        let is_all = matches!(runs, [run] if run.len() == self.leaf().len());
        if is_all && self.path.top > 0 && self.drop_clean_leaf()? {
            return self.shrink(1, sides);
        }
        self.own(0)?;
        for run in runs.iter().rev() {
            self.at_level_mut(0).remove(run.clone());
        }
        self.shrink(0, sides)
    }

    /// Takes the path's leaf out of the tree without a copy, if it is as on disk and not shared.
    fn drop_clean_leaf(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.path.steps[0].clean.clone().filter(|leaf| !self.may_be_shared(leaf)) else {
            return Ok(false);
        };
        self.own(1)?;
        self.blocks.dropped(self.tree, &leaf);
        self.state.grown -= 1;
        self.remove_child(1, self.path.steps[1].slot);
        Ok(true)
    }

    /// Puts the tree in order after slots have gone from the path's block at a level. The path is of no use then.
    fn shrink(&mut self, level: usize, sides: Neighbours) -> Result<(), TreeError> {
        if level == self.path.top {
            if level > 0 && self.at_level(level).is_empty() {
                self.replace_root_by_leaf();
            }
            return Ok(());
        }
        if self.at_level(level).is_empty() {
            self.forget(self.path.steps[level].at);
            self.remove_child(level + 1, self.path.steps[level + 1].slot);
            return self.shrink(level + 1, sides);
        }
        self.update_keys(level);
        let block = self.at_level(level);
        if block.used_space(0..block.len()) >= block.capacity() / SPARSE {
            return Ok(());
        }
        let slot = self.path.steps[level + 1].slot;
        if slot > 0 && self.join(level, slot - 1)? {
            return self.shrink(level + 1, sides);
        }
        if sides == Neighbours::Both && self.join(level, slot)? {
            return self.shrink(level + 1, sides);
        }
        Ok(())
    }

    /// Takes a child out of the path's block at a level, which has to be put in order then.
    fn remove_child(&mut self, level: usize, slot: usize) {
        self.at_level_mut(level).remove(slot..slot + 1);
    }

    /// Makes one of two neighbours, those at `slot` and behind it below the path's block above `level`, one of
    /// which is the path's own; whether that could be done.
    fn join(&mut self, level: usize, slot: usize) -> Result<bool, TreeError> {
        let up = level + 1;
        if slot + 1 >= self.at_level(up).len() {
            return Ok(false);
        }
        let own_slot = self.path.steps[up].slot;
        let other_slot = if own_slot == slot { slot + 1 } else { slot };
        let Some(other) = self.joinable(level, other_slot)? else {
            return Ok(false);
        };
        let own = self.path.steps[level].at;
        let (left, right) = if other_slot == slot { (other, own) } else { (own, other) };
        let dirty = &mut self.state.dirty;
        let mut source = dirty.remove(&right).expect("both blocks are dirty");
        let (target, taken) =
            (dirty.get_mut(&left).expect("both blocks are dirty"), Arc::make_mut(&mut source));
        let target = Arc::make_mut(target);
        target.take(target.len(), taken, 0..taken.len());
        dirty.insert(right, source);
        self.forget(right);
        self.remove_child(up, slot + 1);
        Ok(true)
    }

    /// The child at a slot above a level, copied if it was not, if the path's block and it fit into one.
    fn joinable(&mut self, level: usize, slot: usize) -> Result<Option<Logical>, TreeError> {
        let own = self.at_level(level);
        let (used, room) = (own.used_space(0..own.len()), own.capacity() - own.capacity() / SLACK);
        let fits = |node: &Node| used + node.used_space(0..node.len()) <= room;
        let parent = self.at_level(level + 1);
        let Some(pointer) = parent.key_ptrs().get(slot) else {
            return Ok(None);
        };
        let expected = NodeExpectation::child(pointer, parent.level());
        if let Some(node) = self.state.dirty.get(&expected.bytenr) {
            return Ok(Some(expected.bytenr).filter(|_| fits(node)));
        }
        let bound = parent.key_ptrs().get(slot + 1).map(|next| next.key);
        // A neighbour that is not what it should be is left to its next reader.
        let clean = self.find_clean(&expected, &Held::default()).ok().flatten();
        match clean.filter(|node| fits(node) && check_bound(node, bound).is_ok()) {
            Some(node) => {
                let at = self.copy(&node, false)?;
                self.repoint(level + 1, slot, at);
                Ok(Some(at))
            }
            None => Ok(None),
        }
    }

    /// A dirty block leaves the tree.
    fn forget(&mut self, at: Logical) {
        let node = self.state.dirty.remove(&at).expect("whatever leaves has been made the transaction's own");
        if !is_virtual(at) {
            self.blocks.dropped(self.tree, &node);
        }
        self.blocks.vanished();
        self.state.grown -= 1;
    }

    /// Nothing is left below the root: an empty leaf takes its place.
    fn replace_root_by_leaf(&mut self) {
        let old = self.state.root.bytenr;
        let like = self.node(old);
        let nodesize = u32::try_from(like.as_bytes().len()).expect("a block is smaller than 4 GiB");
        let header = NodeHeader { bytenr: self.blocks.next_address(), level: 0, ..*like.header() };
        self.keep(Node::empty(nodesize, &header));
        self.state.grown += 1;
        self.set_root(header.bytenr, 0);
        self.forget(old);
    }

    /// Takes away roots that have only one child, and returns the child it would have to know for that. An unchanged
    /// root is left as it is.
    fn collapse(&mut self, held: &Held) -> Result<Option<NodeExpectation>, TreeError> {
        loop {
            let Some(root) = self.state.dirty.get(&self.state.root.bytenr) else {
                return Ok(None);
            };
            let [pointer] = root.key_ptrs() else {
                return Ok(None);
            };
            let (expected, level) = (NodeExpectation::child(pointer, root.level()), root.level() - 1);
            // The root is never shared, so the child is copied if it isn't the transaction's own.
            let child = match self.state.dirty.contains_key(&expected.bytenr) {
                true => expected.bytenr,
                false => match self.find_clean(&expected, held)? {
                    Some(node) => self.copy(&node, false)?,
                    None => return Ok(Some(expected)),
                },
            };
            let old = self.state.root.bytenr;
            self.set_root(child, level.into());
            self.forget(old);
        }
    }

    /// Judges the items of the path's leaf, from the path's slot to the key `last`.
    fn judge(&self, last: &Key, judge: &mut impl FnMut(&Key, &[u8]) -> Verdict) -> Condemned {
        let mut found = Condemned::default();
        let leaf = self.leaf();
        for slot in self.slot()..leaf.len() {
            let Some((key, data)) = leaf.item(slot).filter(|(key, _)| key <= last) else {
                found.is_end = true;
                break;
            };
            match judge(&key, data) {
                Verdict::Keep => {}
                Verdict::Stop => {
                    found.is_end = true;
                    break;
                }
                Verdict::Remove => match found.runs.last_mut() {
                    Some(run) if run.end == slot => run.end += 1,
                    _ => found.runs.push(slot..slot + 1),
                },
            }
        }
        found
    }
}

/// Removes an item; whether there was one.
pub(super) fn remove<B: Blocks>(blocks: &B, tree: &Tree, key: &Key) -> Result<bool, TreeError> {
    let mut edit = Edit::at(blocks, tree, key)?;
    if !edit.is_at(key) {
        return Ok(false);
    }
    edit.remove_item_here()?;
    lower(blocks, tree, edit)?;
    Ok(true)
}

/// Removes what `judge` condemns between two keys; how many items it were.
pub(crate) fn remove_range<B: Blocks>(
    blocks: &B,
    tree: &Tree,
    first: &Key,
    last: &Key,
    mut judge: impl FnMut(&Key, &[u8]) -> Verdict,
) -> Result<usize, TreeError> {
    let mut from = *first;
    let mut removed = 0;
    loop {
        let mut edit = Edit::within(blocks, tree, &from, last)?;
        let found = edit.judge(last, &mut judge);
        let next = edit.path.bound.filter(|bound| bound <= last && !found.is_end);
        removed += found.runs.iter().map(Range::len).sum::<usize>();
        if !found.runs.is_empty() {
            edit.remove_here(&found.runs, if next.is_some() { Neighbours::Left } else { Neighbours::Both })?;
            lower(blocks, tree, edit)?;
        }
        match next {
            Some(next) => from = next,
            None => return Ok(removed),
        }
    }
}

/// Ends a removal: the tree becomes as low as it can.
pub(super) fn lower<'a, B: Blocks>(
    blocks: &'a B,
    tree: &'a Tree,
    mut edit: Edit<'a, B>,
) -> Result<(), TreeError> {
    let mut held = Held::default();
    while let Some(absent) = edit.collapse(&held)? {
        drop(edit);
        // The removal is done. A root of one child, one that can't be read, is as good as any.
        if held.read(blocks, absent).is_err() {
            return Ok(());
        }
        edit = Edit::lock(blocks, tree);
    }
    Ok(())
}
