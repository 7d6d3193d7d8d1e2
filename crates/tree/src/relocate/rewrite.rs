//! Blocks and data get new places, and everything that says where they are is told.

use super::Moved;
use super::Relocator;
use super::contents::{Block, is_shareable};
use super::data::Carried;
use super::grow::Grower;
use super::plan::{Held, Plan};
use super::planner::Planner;
use crate::checksums::ChecksumTree;
use crate::editor::Editor;
use crate::error::TreeError;
use crate::extent_tree::ExtentTree;
use crate::refs::delayed::{Extent, Origin, Referrer};
use crate::refs::sharing::{Under, data_of};
use crate::refs::{DataRange, References};
use crate::space::Urgency;
use crate::store::trees::Trees;
use crate::transaction::placer::Placer;
use brindle_ondisk::item::{FileExtentHeader, FileExtentRef};
use brindle_ondisk::{BlockGroupType, Generation, KeyType, Logical, Node};
use std::collections::HashMap;
use std::sync::Arc;
use zerocopy::FromBytes;

/// A plan that others make grow again and again.
const TRIES: usize = 8;
/// Changed references that take about as much room as a block.
const REFERENCES_PER_BLOCK: usize = 16;

/// New places.
struct Places {
    /// New addresses, by address or provisional address.
    blocks: HashMap<Logical, Logical>,
    /// Extents that stay in one piece.
    data: HashMap<Logical, Logical>,
}

impl<'p> Relocator<'p> {
    /// Moves blocks of subvolumes, and has everything refer to carried data where it is now.
    pub(super) fn rewrite(
        &self,
        blocks: &[Block],
        carried: Vec<Carried<'p>>,
        moved: &mut Moved,
    ) -> Result<(), TreeError> {
        // The plan of the last commit is nearly that of now, and has read what that will need.
        let mut size = self.estimate(blocks, &carried).unwrap_or(blocks.len());
        let mut carried = Some(carried);
        for _ in 0..TRIES {
            let done = self.transactions.exclusively_with(size, Urgency::Normal, |editor| {
                let rewriter = Rewriter { editor: **editor };
                rewriter.settle_subvolumes()?;
                let plan = full_plan(
                    editor.references(),
                    &Trees::Running(self.store),
                    blocks,
                    carried.as_deref().unwrap_or_default(),
                )?;
                if self::size(&plan) > size {
                    size = self::size(&plan);
                    return Ok(false);
                }
                let carried = carried.take().unwrap_or_default();
                rewriter.carry_out(&plan, carried, moved).map(|()| true)
            })?;
            if done {
                return Ok(());
            }
        }
        Err(TreeError::NoSpace("metadata, to move what many trees share".to_owned()))
    }
}

impl<'p> Relocator<'p> {
    /// Number of blocks that a plan for these would change, by the trees of the last commit: while others go on.
    pub(super) fn estimate(&self, blocks: &[Block], carried: &[Carried<'p>]) -> Result<usize, TreeError> {
        let references = self.transactions.editor(Generation::new(0)).references();
        Ok(size(&full_plan(references, &Trees::committed(self.store), blocks, carried)?))
    }
}

/// Number of blocks that a plan may change.
fn size(plan: &Plan) -> usize {
    let blocks = plan.blocks.len() + plan.grown.additional();
    blocks + plan.reference_changes().div_ceil(REFERENCES_PER_BLOCK)
}

fn full_plan(
    references: References<'_>,
    trees: &Trees<'_>,
    blocks: &[Block],
    carried: &[Carried<'_>],
) -> Result<Plan, TreeError> {
    let data: Vec<DataRange> = carried.iter().map(|carried| carried.from).collect();
    let mut plan = Planner::plan(references, trees, blocks, &data)?;
    Grower { nodesize: references.store.nodesize() }.grow(&mut plan, carried)?;
    Ok(plan)
}

/// Rewrites what a plan lists, while nothing else changes.
struct Rewriter<'p> {
    editor: Editor<'p>,
}

impl Rewriter<'_> {
    /// All blocks of subvolumes get addresses, and all references are applied: what there is, is in the trees.
    fn settle_subvolumes(&self) -> Result<(), TreeError> {
        self.editor.changes.space.prepare(self.editor.store, self.editor.load())?;
        let placer = Placer::of(&self.editor);
        for tree in self.editor.store.known_trees().iter().filter(|tree| is_shareable(tree.id())) {
            placer.assign(tree)?;
            placer.freeze_tree(tree);
        }
        ExtentTree::of(&self.editor).apply(usize::MAX)?;
        Ok(())
    }

    /// Gives everything its new place.
    fn carry_out(&self, plan: &Plan, carried: Vec<Carried<'_>>, moved: &mut Moved) -> Result<(), TreeError> {
        let places = self.places(plan, &carried)?;
        // Nothing has changed so far; what fails from here on would leave half of it.
        let done = self.change_all(plan, carried, &places, moved);
        done.inspect_err(|error| self.editor.abort(error))
    }

    fn change_all(
        &self,
        plan: &Plan,
        carried: Vec<Carried<'_>>,
        places: &Places,
        moved: &mut Moved,
    ) -> Result<(), TreeError> {
        for (at, held) in &plan.blocks {
            self.leave(held, *at)?;
            if held.is_target {
                moved.count_block(self.editor.store.nodesize());
            }
        }
        let mut heads: HashMap<Logical, &Held> = HashMap::new();
        for (provisional, held) in plan.successors() {
            let place = places.blocks[&provisional];
            self.enter(plan, held, place, places)?;
            let node = Arc::new(repoint(held, place, self.editor.generation, places));
            self.editor.store.remember_node(place, &node);
            Placer::of(&self.editor).freeze_block(place, node);
            heads.insert(provisional, held);
        }
        let has_data = !plan.data.is_empty();
        // Readers go down as soon as there is a new root, and must find checksums where it sends them.
        for carried in carried {
            self.move_data(plan, carried, moved)?;
        }
        for root in &plan.roots {
            let (old, place) = (&plan.blocks[&root.at].node, places.blocks[&root.becomes]);
            let new = &heads[&root.becomes].node;
            let extent = Extent { start: place, ..self.editor.references().extent_of(new) };
            self.editor.changes.refs.create(&extent, Referrer::Tree(root.tree.id()), 1);
            self.editor.changes.refs.change(
                &self.editor.references().extent_of(old),
                Referrer::Tree(root.tree.id()),
                -1,
            );
            let mut state = root.tree.write();
            state.root.bytenr = place;
            state.root.generation = self.editor.generation;
            state.root.level = new.level();
        }
        // The old places lose theirs after this: a reader that has looked one up begins anew.
        if has_data {
            self.editor.store.note_move();
        }
        ExtentTree::of(&self.editor).apply(usize::MAX)?;
        Ok(())
    }

    /// New addresses: for the blocks of a level side by side, in the order of keys.
    fn places(&self, plan: &Plan, carried: &[Carried<'_>]) -> Result<Places, TreeError> {
        let mut order: Vec<(Logical, &Held)> = plan.successors().collect();
        order.sort_by_key(|(at, held)| (held.node.level(), held.node.header().owner, held.node.key(0), *at));
        let space = &self.editor.changes.space;
        let found = space.allocate_blocks(self.editor.store, BlockGroupType::METADATA, order.len(), None)?;
        let data = carried.iter().filter_map(|carried| match carried.parts.as_slice() {
            [whole] => Some((carried.from.start, whole.to.start)),
            _ => None,
        });
        Ok(Places {
            blocks: order.iter().map(|(at, _)| *at).zip(found).collect(),
            data: data.filter(|(from, _)| plan.data.contains_key(from)).collect(),
        })
    }

    /// A block that goes refers to nothing any more.
    fn leave(&self, held: &Held, at: Logical) -> Result<(), TreeError> {
        let (refs, node) = (&self.editor.changes.refs, &held.node);
        let under = if held.is_full { Under::Block(at) } else { Under::Tree(node.header().owner) };
        refs.note_owner(&Extent { start: at, ..self.editor.references().extent_of(node) });
        if node.is_leaf() {
            for (range, objectid, offset) in data_of(node)? {
                refs.change(&Extent::data(range), under.data(objectid, offset), -1);
            }
        }
        for child in node.key_ptrs().iter().skip(held.first_live) {
            let extent = self.editor.references().block_extent(child.blockptr, node.level() - 1, child.key);
            refs.change(&extent, under.block(), -1);
        }
        Ok(())
    }

    /// A block that comes refers to what it has, and to what has moved itself where it is now.
    fn enter(&self, plan: &Plan, held: &Held, place: Logical, places: &Places) -> Result<(), TreeError> {
        let (refs, node) = (&self.editor.changes.refs, &held.node);
        let in_own_name = held.is_full || held.is_marked;
        let under = if in_own_name { Under::Block(place) } else { Under::Tree(node.header().owner) };
        let extent = Extent { start: place, ..self.editor.references().extent_of(node) };
        refs.note_owner(&extent);
        if in_own_name {
            refs.set_full(&extent);
        }
        let add = |extent: Extent, moved: Option<&Logical>, who: Referrer| match moved {
            Some(moved) => refs.create(&Extent { start: *moved, ..extent }, who, 1),
            None => refs.change(&extent, who, 1),
        };
        if node.is_leaf() {
            for (range, objectid, offset) in data_of(node)? {
                // A part of an extent is in the block already.
                let moved = places.data.get(&range.start).or_else(|| plan.grown.parts.get(&range.start));
                add(Extent::data(range), moved, under.data(objectid, offset));
            }
        }
        for child in node.key_ptrs().iter().skip(held.first_live) {
            let extent = self.editor.references().block_extent(child.blockptr, node.level() - 1, child.key);
            add(extent, places.blocks.get(&child.blockptr), under.block());
        }
        Ok(())
    }

    fn move_data(&self, plan: &Plan, carried: Carried<'_>, moved: &mut Moved) -> Result<(), TreeError> {
        // Data without references gives its new place back.
        let Some(known) = plan.data.get(&carried.from.start) else { return Ok(()) };
        let is_whole = carried.parts.len() == 1;
        moved.extents += 1;
        moved.cut += u64::from(!is_whole);
        for part in carried.parts {
            let range = DataRange { start: part.to.start, length: part.to.length };
            if !is_whole && !plan.grown.parts.contains(&range.start) {
                continue;
            }
            part.to.keep();
            let generation = known.generation;
            // Without a group for it, Linux can't move data with a note from before.
            let owner = known.owner.filter(|_| self.editor.changes.quotas.counts_extents_of(generation));
            let origin = Origin { generation, owner };
            self.editor.changes.refs.set_origin(&Extent::data(range), origin);
            for (offset, sums) in &part.checksums {
                ChecksumTree::of(&self.editor).insert(range.start + *offset, sums)?;
            }
            moved.bytes += range.length;
        }
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
        if let Ok((extent, _)) = FileExtentRef::mut_from_prefix(&mut data[size_of::<FileExtentHeader>()..]) {
            if let Some(place) = places.data.get(&extent.disk_bytenr) {
                extent.disk_bytenr = *place;
            }
        }
    }
    node
}
