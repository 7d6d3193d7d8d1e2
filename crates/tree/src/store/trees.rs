//! Trees of one moment: those of the running transaction while nothing else changes, or those of the last commit.

use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::store::Store;
use crate::store::hold::FreedSpaceHold;
use crate::tree::Tree;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, RootId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Trees of one moment: those of the running transaction, while nothing else changes them, or those of the
/// last commit, which are immutable.
///
/// A walk from blocks to their parents, by back references, goes astray in trees that change meanwhile: blocks that
/// have an address may be in memory only, others may be gone. In the trees of the last commit everything is on
/// disk, and the hold keeps it there.
#[derive(Debug)]
pub(crate) enum Trees<'p> {
    /// Trees as they are now.
    Running(&'p Store),
    /// Trees as of the last commit.
    Committed(Committed<'p>),
}

#[derive(Debug)]
pub(crate) struct Committed<'p> {
    store: &'p Store,
    root_tree: Arc<Tree>,
    known: RefCell<HashMap<RootId, Arc<Tree>>>,
    _hold: FreedSpaceHold<'p>,
}

impl<'p> Trees<'p> {
    /// The trees of the last commit.
    pub(crate) fn committed(store: &'p Store) -> Self {
        // The hold comes first: what a later commit frees stays as it is.
        let hold = store.hold_freed_space();
        let root_tree = Tree::fixed(TreeRoot::root_tree(&store.superblock()));
        Self::Committed(Committed { store, root_tree, known: RefCell::default(), _hold: hold })
    }

    /// The tree of an id.
    pub(crate) fn tree(&self, id: RootId) -> Result<Arc<Tree>, TreeError> {
        match self {
            Self::Running(store) => store.tree(id),
            Self::Committed(committed) => committed.tree(id),
        }
    }

    /// The root item of a tree.
    pub(crate) fn root_item(&self, id: RootId) -> Result<Option<Box<RootItem>>, TreeError> {
        let item = match self {
            Self::Running(store) => store.root_item(id)?,
            Self::Committed(committed) => committed.store.root_item_in(&committed.root_tree, id)?,
        };
        Ok(item.map(|(_, item)| item))
    }
}

impl Committed<'_> {
    fn tree(&self, id: RootId) -> Result<Arc<Tree>, TreeError> {
        if let Some(tree) = self.known.borrow().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let item = self.store.root_item_in(&self.root_tree, id)?;
        let (_, item) = item.ok_or(TreeError::NoTree(id))?;
        let never = Generation::new(0);
        let last_snapshot = if id.is_file_tree() { item.last_snapshot } else { never };
        let tree = Arc::new(Tree::new(TreeRoot::from_item(id, &item), last_snapshot));
        self.known.borrow_mut().insert(id, Arc::clone(&tree));
        Ok(tree)
    }
}
