//! Places for the blocks of a transaction: those of one level of a tree side by side, in the order of keys. A block that has
//! one can be frozen.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::space::allocate::block_kind;
use crate::tree::Tree;
use crate::tree::{TreeState, is_virtual};
use brindle_ondisk::{IdMap, Logical, Node, RootId, to_usize};
use std::sync::Arc;

/// Gives blocks of the running transaction their addresses, and freezes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placer<'p> {
    editor: Editor<'p>,
}

impl<'p> Placer<'p> {
    /// Places blocks that an editor has made.
    pub(crate) fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Gives every block of a tree that has none an address; how many there were.
    pub(crate) fn assign(&self, tree: &Tree) -> Result<usize, TreeError> {
        let Editor { store, changes, .. } = self.editor;
        let content = block_kind(tree.id());
        self.assign_from(tree, |count, hint| changes.space.allocate_blocks(store, content, count, hint))
    }

    /// Gives the blocks of some trees their addresses; whether any had none.
    pub(super) fn assign_all(&self, is_meant: impl Fn(RootId) -> bool) -> Result<bool, TreeError> {
        let Editor { store, changes, .. } = self.editor;
        let trees = store.known_trees();
        let mut busy = false;
        changes.space.prepare(store, self.editor.load())?;
        for tree in trees.iter().filter(|tree| is_meant(tree.id())) {
            busy |= self.assign(tree)? > 0;
        }
        Ok(busy)
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
                    self.editor.references().block_assigned(tree, &node);
                }
                (place.unwrap_or(at), node)
            })
            .collect();
        if let Some(place) = places.get(&state.root.bytenr) {
            state.root.bytenr = *place;
        }
    }

    /// A block that was made with its address is written with the others.
    pub(crate) fn freeze_block(&self, at: Logical, node: Arc<Node>) {
        self.editor.store.unwritten().frozen.write().insert(at, node);
    }

    /// The blocks of a tree, which all have addresses, become final: to change them is to copy them.
    pub(crate) fn freeze_tree(&self, tree: &Tree) {
        if !tree.is_dirty() {
            return;
        }
        // A reader finds a block in one place or the other: the tree stays locked until all have moved.
        let mut state = tree.write();
        let dirty: IdMap<Logical, Arc<Node>> = std::mem::take(&mut state.dirty);
        self.editor.changes.pressure.vanished(dirty.len());
        for (at, node) in &dirty {
            self.editor.store.remember_node(*at, node);
        }
        self.editor.store.unwritten().frozen.write().extend(dirty);
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
