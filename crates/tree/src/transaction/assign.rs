//! Addresses for the blocks of a transaction: those of one level of a tree side by side, in the order of keys.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::space::allocate::block_kind;
use crate::tree::Tree;
use crate::tree::{TreeState, is_virtual};
use brindle_ondisk::{IdMap, Logical, Node, RootId, to_usize};
use std::sync::Arc;

impl Editor<'_> {
    /// Gives every block of a tree that has none an address; how many there were.
    pub(crate) fn assign_addresses(&self, tree: &Tree) -> Result<usize, TreeError> {
        let (space, content) = (&self.changes.space, block_kind(tree.id()));
        self.assign_from(tree, |count, hint| space.allocate_blocks(self.store, content, count, hint))
    }

    /// The same with the addresses that `allocate` gives for a number of blocks, behind the last ones if it can.
    pub(crate) fn assign_from(
        &self,
        tree: &Tree,
        mut allocate: impl FnMut(usize, Option<Logical>) -> Result<Vec<Logical>, TreeError>,
    ) -> Result<usize, TreeError> {
        if !tree.read().dirty.keys().any(|at| is_virtual(*at)) {
            return Ok(0);
        }
        let mut state = tree.write();
        let mut levels: Vec<Vec<Logical>> = vec![Vec::new(); to_usize(u64::from(state.root.level)) + 1];
        collect(&state, state.root.bytenr, &mut levels);
        let mut places: IdMap<Logical, Logical> = IdMap::default();
        let mut hint = None;
        for level in &levels {
            let found = allocate(level.len(), hint)?;
            hint = found.last().copied().or(hint);
            places.extend(level.iter().copied().zip(found));
        }
        let count = places.len();
        self.move_blocks(tree.id(), &mut state, &places);
        assert!(!state.dirty.keys().any(|at| is_virtual(*at)), "every dirty block hangs in its tree");
        Ok(count)
    }

    /// Blocks and what points to them get the new addresses.
    fn move_blocks(&self, tree: RootId, state: &mut TreeState, places: &IdMap<Logical, Logical>) {
        let dirty = std::mem::take(&mut state.dirty);
        state.dirty = dirty
            .into_iter()
            .map(|(at, mut node)| {
                let place = places.get(&at).copied();
                let points_to_moved = node.key_ptrs().iter().any(|pointer| is_virtual(pointer.blockptr));
                if place.is_some() || points_to_moved {
                    repoint(Arc::make_mut(&mut node), place, places);
                }
                // Blocks of a log have no references.
                if place.is_some() && tree != RootId::TREE_LOG {
                    self.block_assigned(tree, &node);
                }
                (place.unwrap_or(at), node)
            })
            .collect();
        if let Some(place) = places.get(&state.root.bytenr) {
            state.root.bytenr = *place;
        }
    }
}

/// The virtual addresses below a dirty block, by level, in the order of keys.
fn collect(state: &TreeState, at: Logical, levels: &mut [Vec<Logical>]) {
    let Some(node) = state.dirty.get(&at) else {
        return;
    };
    if is_virtual(at) {
        levels[usize::from(node.level())].push(at);
    }
    for pointer in node.key_ptrs() {
        collect(state, pointer.blockptr, levels);
    }
}

fn repoint(node: &mut Node, place: Option<Logical>, places: &IdMap<Logical, Logical>) {
    if let Some(place) = place {
        node.set_address(place);
    }
    for slot in 0..node.key_ptrs().len() {
        let child = node.key_ptrs()[slot].blockptr;
        if let Some(place) = places.get(&child) {
            node.pointer_mut(slot).blockptr = *place;
        }
    }
}
