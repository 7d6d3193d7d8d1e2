//! Blocks and data get new places, and everything that says where they are is told.

use super::Moved;
use super::contents::{Block, is_shareable};
use super::data::Carried;
use super::plan::{Held, Plan};
use crate::refs::{DataRange, Extent, Referrer, Under, data_of};
use crate::{Editor, Pool, TreeError};
use brindle_ondisk::item::{FileExtentHeader, FileExtentRef};
use brindle_ondisk::{BlockGroupType, Generation, KeyType, Logical, Node};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes;

/// A plan that others make grow again and again.
const TRIES: usize = 8;
/// Changed references that take about as much room as a block.
const REFERENCES_PER_BLOCK: usize = 16;

/// What goes where.
struct Places {
    blocks: HashMap<Logical, Logical>,
    data: HashMap<Logical, Logical>,
}

impl Pool {
    /// Moves blocks of subvolumes, and has everything refer to carried data where it is now.
    pub(super) fn rewrite(
        &self,
        blocks: &[Block],
        carried: Vec<Carried<'_>>,
        moved: &mut Moved,
    ) -> Result<(), TreeError> {
        let writer = self.writer()?;
        // A plan made while others go on may be wrong, and has read what a right one will need.
        let guess = Editor { pool: self, writer, generation: Generation::new(0) }.plan(blocks, &carried);
        let mut size = guess.map_or(blocks.len(), |plan| size(&plan));
        let mut carried = Some(carried);
        for _ in 0..TRIES {
            let done = self.exclusively_with(size, |editor| {
                editor.settle_subvolumes()?;
                let plan = editor.plan(blocks, carried.as_deref().unwrap_or_default())?;
                if self::size(&plan) > size {
                    size = self::size(&plan);
                    return Ok(false);
                }
                let carried = carried.take().unwrap_or_default();
                editor.carry_out(&plan, carried, moved).map(|()| true)
            })?;
            if done {
                return Ok(());
            }
        }
        Err(TreeError::NoSpace("metadata, to move what many trees share".to_owned()))
    }
}

/// How many blocks a plan may change.
fn size(plan: &Plan) -> usize {
    plan.blocks.len() + plan.reference_changes().div_ceil(REFERENCES_PER_BLOCK)
}

impl Editor<'_> {
    /// All blocks of subvolumes get addresses, and all references are applied: what there is, is in the trees.
    fn settle_subvolumes(&self) -> Result<(), TreeError> {
        self.writer.space.prepare(self.pool)?;
        for tree in self.pool.known_trees().iter().filter(|tree| is_shareable(tree.id())) {
            self.assign_addresses(tree)?;
            self.freeze_tree(tree);
        }
        self.run_delayed_refs(usize::MAX)?;
        Ok(())
    }

    /// Gives everything its new place.
    fn carry_out(&self, plan: &Plan, carried: Vec<Carried<'_>>, moved: &mut Moved) -> Result<(), TreeError> {
        let places = self.places(plan, &carried)?;
        // Nothing has changed so far; what fails from here on would leave half of it.
        let done = self.change_all(plan, carried, &places, moved);
        done.inspect_err(|error| self.pool.abort(error))
    }

    fn change_all(
        &self,
        plan: &Plan,
        carried: Vec<Carried<'_>>,
        places: &Places,
        moved: &mut Moved,
    ) -> Result<(), TreeError> {
        for (at, held) in &plan.blocks {
            let place = places.blocks[at];
            self.move_references(held, *at, place, places)?;
            let node = Arc::new(repoint(held, place, self.generation, places));
            self.pool.remember_node(place, &node);
            self.freeze_block(place, node);
            if held.is_target {
                moved.count_block(self.pool.nodesize());
            }
        }
        for (tree, at) in &plan.roots {
            let (old, place) = (self.extent_of(&plan.blocks[at].node), places.blocks[at]);
            self.writer.refs.create(&Extent { start: place, ..old }, Referrer::Tree(tree.id()), 1);
            self.writer.refs.change(&old, Referrer::Tree(tree.id()), -1);
            let mut state = tree.write();
            state.root.bytenr = place;
            state.root.generation = self.generation;
        }
        let has_data = !plan.data.is_empty();
        for carried in carried {
            self.move_data(plan, carried, moved)?;
        }
        if has_data {
            self.pool.moves.fetch_add(1, Ordering::Release);
        }
        self.run_delayed_refs(usize::MAX)?;
        Ok(())
    }

    /// New addresses: for the blocks of a level side by side, in the order of keys.
    fn places(&self, plan: &Plan, carried: &[Carried<'_>]) -> Result<Places, TreeError> {
        let mut order: Vec<(Logical, &Held)> = plan.blocks.iter().map(|(at, held)| (*at, held)).collect();
        order.sort_by_key(|(at, held)| (held.node.level(), held.node.header().owner, held.node.key(0), *at));
        let space = &self.writer.space;
        let found = space.allocate_blocks(self.pool, BlockGroupType::METADATA, order.len(), None)?;
        let data = carried.iter().map(|carried| (carried.from.start, carried.to.start));
        Ok(Places {
            blocks: order.iter().map(|(at, _)| *at).zip(found).collect(),
            data: data.filter(|(from, _)| plan.data.contains_key(from)).collect(),
        })
    }

    /// What a block refers to, the new one does, and what has moved itself is referred to where it is now.
    fn move_references(
        &self,
        held: &Held,
        at: Logical,
        place: Logical,
        places: &Places,
    ) -> Result<(), TreeError> {
        let refs = &self.writer.refs;
        let node = &held.node;
        let owner = node.header().owner;
        let before = if held.is_full { Under::Block(at) } else { Under::Tree(owner) };
        let now = if held.is_full || held.is_marked { Under::Block(place) } else { before };
        if held.is_full || held.is_marked {
            refs.set_full(&Extent { start: place, ..self.extent_of(node) });
        }
        let change = |extent: Extent, moved: Option<&Logical>, from: Referrer, to: Referrer| {
            match moved {
                Some(moved) => refs.create(&Extent { start: *moved, ..extent }, to, 1),
                None => refs.change(&extent, to, 1),
            }
            refs.change(&extent, from, -1);
        };
        if node.is_leaf() {
            for (range, objectid, offset) in data_of(node)? {
                let (from, to) = (before.data(objectid, offset), now.data(objectid, offset));
                change(Extent::data(range), places.data.get(&range.start), from, to);
            }
        }
        for child in node.key_ptrs().iter().skip(held.first_live) {
            let extent = self.block_extent(child.blockptr, node.level() - 1, child.key);
            change(extent, places.blocks.get(&child.blockptr), before.block(), now.block());
        }
        Ok(())
    }

    fn move_data(&self, plan: &Plan, carried: Carried<'_>, moved: &mut Moved) -> Result<(), TreeError> {
        // What nobody refers to any more gives its new place back.
        let Some(known) = plan.data.get(&carried.from.start) else { return Ok(()) };
        let (start, length) = (carried.to.start, carried.from.length);
        carried.to.keep();
        self.writer.refs.set_generation(&Extent::data(DataRange { start, length }), known.generation);
        for (offset, sums) in &carried.checksums {
            self.insert_checksums(start + *offset, sums)?;
        }
        moved.extents += 1;
        moved.bytes += length;
        Ok(())
    }
}

/// A block as it is at its new place, with pointers to the new places of what has moved with it.
fn repoint(held: &Held, place: Logical, generation: Generation, places: &Places) -> Node {
    let mut node = match held.is_marked {
        true => held.node.relocated(place, generation),
        false => held.node.copy(place, held.node.header().owner, generation),
    };
    for slot in held.first_live..node.key_ptrs().len() {
        if let Some(place) = places.blocks.get(&node.key_ptrs()[slot].blockptr) {
            let pointer = node.pointer_mut(slot);
            (pointer.blockptr, pointer.generation) = (*place, generation);
        }
    }
    if !node.is_leaf() || places.data.is_empty() {
        return node;
    }
    let extents: Vec<usize> = (0..node.len())
        .filter(|slot| node.key(*slot).is_some_and(|key| key.item_type == KeyType::EXTENT_DATA))
        .collect();
    for slot in extents {
        let data = node.item_data_mut(slot);
        // An inline extent is as long as it likes, and holds no address.
        let is_inline =
            FileExtentHeader::ref_from_prefix(data).is_ok_and(|(header, _)| header.extent_type == 0);
        if is_inline {
            continue;
        }
        if let Ok((extent, _)) = FileExtentRef::mut_from_prefix(&mut data[size_of::<FileExtentHeader>()..])
            && let Some(place) = places.data.get(&extent.disk_bytenr)
        {
            extent.disk_bytenr = *place;
        }
    }
    node
}
