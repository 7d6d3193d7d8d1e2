//! Items come in: into the leaf where they belong, and if that is full, into a neighbour that is being changed
//! anyway, or a new one.

use super::blocks::Blocks;
use super::cut::{Addition, Cut, Row};
use super::descent::{Edit, Step};
use crate::habit::Flow;
use brindle_ondisk::{Key, KeyPtr, Logical, MAX_LEVEL, Node, NodeHeader};
use std::sync::Arc;

/// A neighbour takes something over only if this part of a block is then left free in the two: it pays the work.
const SLACK: usize = 8;

impl<B: Blocks> Edit<'_, B> {
    /// Adds an item at the path, which is owned. There is none of this key, and it is no larger than a leaf.
    pub(super) fn insert_here(&mut self, key: &Key, data: &[u8], flow: Option<Flow>) {
        let space = Node::item_space(data.len());
        if self.leaf().free_space() < space {
            let flow = flow.unwrap_or_else(|| self.state.recent.flow(self.leaf(), self.slot()));
            self.make_room(0, key, space, flow);
        }
        let slot = self.slot();
        self.at_level_mut(0).insert_item(slot, key, data);
        if slot == 0 {
            self.update_keys(0);
        }
        self.state.recent.remember(key);
    }

    /// Adds as many of these items at the path as belong and fit there, but at least one; how many. The path is
    /// owned, the first of them is not there.
    pub(super) fn insert_run(&mut self, items: &[(Key, &[u8])]) -> usize {
        let slot = self.slot();
        let (limit, mut free) = (self.leaf().key(slot).or(self.path.bound), self.leaf().free_space());
        let belongs = |key: &Key| limit.is_none_or(|limit| *key < limit);
        let fitting = items.iter().take_while(|(key, data)| {
            let rest = free.checked_sub(Node::item_space(data.len())).filter(|_| belongs(key));
            free = rest.unwrap_or(0);
            rest.is_some()
        });
        let count = fitting.count();
        if count > 0 {
            self.at_level_mut(0).insert_items(slot, &items[..count]);
            if slot == 0 {
                self.update_keys(0);
            }
            self.state.recent.remember(&items[count - 1].0);
            return count;
        }
        let (key, data) = items[0];
        let goes_on = items.get(1).is_some_and(|(next, _)| belongs(next));
        self.insert_here(&key, data, goes_on.then_some(Flow::Ascending));
        1
    }

    /// Finds room for something of this key before the path's slot at a level; the path moves to where it is.
    fn make_room(&mut self, level: usize, key: &Key, space: usize, flow: Flow) {
        let block = self.at_level(level);
        if block.free_space() >= space {
            return;
        }
        let (slot, len) = (self.path.steps[level].slot, block.len());
        let is_front = self.path.steps[level..=self.path.top].iter().all(|step| step.slot == 0);
        let is_end = slot == len;
        let flow = match flow {
            Flow::Random if is_front => Flow::Descending,
            flow => flow,
        };
        let may_push = match flow {
            Flow::Ascending => false,
            Flow::Descending => !is_front,
            Flow::Random => !(is_end && self.is_rightmost(level)),
        };
        if may_push && (self.push_right(level, key, space) || self.push_left(level, key, space)) {
            return;
        }
        // After the last slot a new block begins, whichever key comes.
        self.split(level, key, space, if is_end { Flow::Ascending } else { flow });
    }

    /// Returns true if nothing lies behind the path's block at a level.
    fn is_rightmost(&self, level: usize) -> bool {
        (level + 1..=self.path.top).all(|up| self.path.steps[up].slot + 1 == self.at_level(up).len())
    }

    /// Makes room by a new line between the path's block and the one before, if that is dirty and has space.
    fn push_left(&mut self, level: usize, key: &Key, space: usize) -> bool {
        let step = &self.path.steps[level];
        let (right, slot) = (step.at, step.slot);
        let Some(left) = self.dirty_neighbour(level, |slot| slot.checked_sub(1)) else {
            return false;
        };
        let new = Addition { at: self.node(left).len() + slot, space };
        let Some(cut) = self.worthwhile_cut(left, right, new) else {
            return false;
        };
        self.redraw(left, right, cut.slots);
        let right_slot = self.path.steps[level + 1].slot;
        self.set_first_key(level + 1, right_slot, right, key);
        if cut.new_is_left {
            self.step_left(level);
        }
        self.path.steps[level].slot = if cut.new_is_left { new.at } else { new.at - cut.slots };
        true
    }

    /// The same with the one behind.
    fn push_right(&mut self, level: usize, key: &Key, space: usize) -> bool {
        let step = &self.path.steps[level];
        let (left, slot) = (step.at, step.slot);
        let Some(right) = self.dirty_neighbour(level, |slot| slot.checked_add(1)) else {
            return false;
        };
        let new = Addition { at: slot, space };
        let Some(cut) = self.worthwhile_cut(left, right, new) else {
            return false;
        };
        self.redraw(left, right, cut.slots);
        let right_slot = self.path.steps[level + 1].slot + 1;
        self.set_first_key(level + 1, right_slot, right, key);
        if !cut.new_is_left {
            self.path.steps[level + 1].slot += 1;
            self.path.steps[level] = Step { at: right, slot: new.at - cut.slots, clean: None };
        }
        true
    }

    /// The block beside the path's, below the same parent, if the transaction has changed it.
    fn dirty_neighbour(&self, level: usize, beside: impl Fn(usize) -> Option<usize>) -> Option<Logical> {
        if level == self.path.top {
            return None;
        }
        let slot = beside(self.path.steps[level + 1].slot)?;
        let pointer = self.at_level(level + 1).key_ptrs().get(slot)?;
        Some(pointer.blockptr).filter(|at| self.state.dirty.contains_key(at))
    }

    fn worthwhile_cut(&self, left: Logical, right: Logical, new: Addition) -> Option<Cut> {
        let row = Row { left: self.node(left), right: self.node(right) };
        let capacity = row.left.capacity();
        let room = 2 * capacity - capacity / SLACK;
        if row.space() + new.space <= room { row.cut(new, Flow::Random) } else { None }
    }

    /// Moves slots until the left one of two blocks has `slots` of them.
    fn redraw(&mut self, left: Logical, right: Logical, slots: usize) {
        let dirty = &mut self.state.dirty;
        let mut taken = dirty.remove(&right).expect("both blocks are dirty");
        let left = Arc::make_mut(dirty.get_mut(&left).expect("both blocks are dirty"));
        let right_node = Arc::make_mut(&mut taken);
        match slots.checked_sub(left.len()) {
            Some(more) => left.take(left.len(), right_node, 0..more),
            None => right_node.take(0, left, slots..left.len()),
        }
        dirty.insert(right, taken);
    }

    /// Tells a parent the first key of a child, or of what will be first in it.
    fn set_first_key(&mut self, level: usize, slot: usize, child: Logical, coming: &Key) {
        let first = self.node(child).key(0).unwrap_or(*coming);
        self.at_level_mut(level).set_key(slot, &first);
    }

    /// Makes room by one new block behind the path's; by two, if something large comes between what fills a block.
    fn split(&mut self, level: usize, key: &Key, space: usize, flow: Flow) {
        let Step { at: left, slot, .. } = self.path.steps[level];
        let right = self.new_block(level);
        let new = Addition { at: slot, space };
        let row = Row { left: self.node(left), right: self.node(right) };
        match row.cut(new, flow) {
            Some(cut) => {
                self.redraw(left, right, cut.slots);
                self.add_sibling(level, right, key, flow);
                if cut.new_is_left {
                    self.step_left(level);
                }
                self.path.steps[level].slot = if cut.new_is_left { slot } else { slot - cut.slots };
            }
            None => {
                self.redraw(left, right, slot);
                self.add_sibling(level, right, key, flow);
                self.step_left(level);
                let middle = self.new_block(level);
                self.add_sibling(level, middle, key, flow);
                self.path.steps[level].slot = 0;
            }
        }
    }

    /// An empty block.
    fn new_block(&mut self, level: usize) -> Logical {
        let like = self.at_level(level.min(self.path.top));
        let nodesize = u32::try_from(like.as_bytes().len()).expect("a block is smaller than 4 GiB");
        let level = u8::try_from(level).expect("levels are few");
        let header = NodeHeader {
            bytenr: self.blocks.next_address(),
            generation: self.blocks.generation(),
            owner: self.tree,
            level,
            ..*like.header()
        };
        self.keep(Node::empty(nodesize, &header));
        self.state.grown += 1;
        header.bytenr
    }

    /// Hangs a new block into the tree, behind the path's block of its level; the path moves to it. `coming` is
    /// the key of what an empty one will hold.
    fn add_sibling(&mut self, level: usize, block: Logical, coming: &Key, flow: Flow) {
        if level == self.path.top {
            self.add_root(coming);
        }
        let key = self.node(block).key(0).unwrap_or(*coming);
        let up = level + 1;
        self.path.steps[up].slot += 1;
        self.make_room(up, &key, Node::POINTER_SPACE, flow);
        let slot = self.path.steps[up].slot;
        let pointer = KeyPtr { key, blockptr: block, generation: self.blocks.generation() };
        self.at_level_mut(up).insert_pointers(slot, &[pointer]);
        if slot == 0 {
            self.update_keys(up);
        }
        self.path.steps[level] = Step { at: block, slot: 0, clean: None };
    }

    /// Puts a new root on top of the tree.
    fn add_root(&mut self, coming: &Key) {
        let (old, level) = (self.path.steps[self.path.top].at, self.path.top + 1);
        assert!(level <= usize::from(MAX_LEVEL), "no pool is large enough for a tree of this height");
        let key = self.node(old).key(0).unwrap_or(*coming);
        let generation = self.blocks.generation();
        let root = self.new_block(level);
        self.node_mut(root).insert_pointers(0, &[KeyPtr { key, blockptr: old, generation }]);
        self.path.top = level;
        self.path.steps[level] = Step { at: root, slot: 0, clean: None };
        self.set_root(root, level);
    }

    pub(super) fn set_root(&mut self, at: Logical, level: usize) {
        let generation = self.blocks.generation();
        let root = &mut self.state.root;
        (root.bytenr, root.generation) = (at, generation);
        root.level = u8::try_from(level).expect("levels are few");
    }

    /// Moves the path at a level to the block before, which is dirty.
    fn step_left(&mut self, level: usize) {
        let up = level + 1;
        if self.path.steps[up].slot == 0 {
            self.step_left(up);
            self.path.steps[up].slot = self.at_level(up).len();
        }
        self.path.steps[up].slot -= 1;
        let at = self.at_level(up).key_ptrs()[self.path.steps[up].slot].blockptr;
        self.path.steps[level] = Step { at, slot: 0, clean: None };
    }

    /// The most that an item can hold.
    pub(super) fn item_size_max(&self) -> usize {
        self.leaf().capacity() - Node::item_space(0)
    }
}
