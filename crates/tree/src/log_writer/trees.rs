//! Log trees in memory: how they come, and where their blocks go.

use super::blocks::LogBlocks;
use crate::editor::Editor;
use crate::editor::operations::replace;
use crate::error::TreeError;
use crate::log::LogState;
use crate::root::TreeRoot;
use crate::transaction::placer::Placer;
use crate::transaction::roots::Roots;
use crate::tree::Tree;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, Key, KeyType, Logical, Node, RootId};
use brindle_volume::DeviceSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Blocks of the tree of logs that a sync changes, unless there are logs of very many subvolumes.
pub(super) const ROOT_BLOCKS: usize = 2;

/// Blocks that a sync is to write.
pub(super) struct Placed {
    /// Its number.
    pub(super) number: u64,
    /// The tree of logs.
    pub(super) root: TreeRoot,
    /// Changed blocks, in the order of their places.
    pub(super) blocks: Vec<(Logical, Arc<Node>)>,
    /// Devices with data that the log refers to and that no sync has made durable.
    pub(super) data_on: DeviceSet,
}

/// Log trees of the running transaction.
pub(super) struct LogTrees<'p> {
    editor: Editor<'p>,
}

impl<'p> LogTrees<'p> {
    pub(super) fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// An empty tree of log items, or of logs.
    pub(super) fn new_tree(&self) -> Result<Arc<Tree>, TreeError> {
        let leaf = Roots::of(&self.editor).empty_leaf(RootId::TREE_LOG)?;
        let bytenr = leaf.header().bytenr;
        let root = TreeRoot { id: RootId::TREE_LOG, bytenr, generation: self.editor.generation, level: 0 };
        let tree = Tree::fixed(root);
        tree.write().dirty.insert(bytenr, Arc::new(leaf));
        Ok(tree)
    }

    /// Gives all changed blocks of the log their places.
    pub(super) fn place(&self) -> Result<Placed, TreeError> {
        let log = &self.editor.changes.log;
        let mut state = log.state();
        let roots = match &state.roots {
            Some(roots) => Arc::clone(roots),
            None => {
                let roots = self.new_tree()?;
                state.roots = Some(Arc::clone(&roots));
                roots
            }
        };
        self.assign(&state, &roots)?;
        let mut placed = Vec::new();
        for tree in state.trees.values().chain([&roots]) {
            // A reader finds a block in one place or the other: the tree stays locked until all have moved.
            let mut tree = tree.write();
            let dirty = std::mem::take(&mut tree.dirty);
            placed.extend(dirty.iter().map(|(at, node)| (*at, Arc::clone(node))));
            self.editor.store.unwritten().log.write().extend(dirty);
        }
        placed.sort_unstable_by_key(|(at, _)| *at);
        state.begun += 1;
        let data_on = std::mem::take(&mut state.data_on);
        Ok(Placed { number: state.begun, root: roots.root(), blocks: placed, data_on })
    }

    /// Assigns the addresses: one run for all of them.
    fn assign(&self, state: &LogState, roots: &Tree) -> Result<(), TreeError> {
        let (space, nodesize) = (&self.editor.changes.space, self.editor.store.nodesize());
        let changed: Vec<(&RootId, &Arc<Tree>)> =
            state.trees.iter().filter(|(_, tree)| tree.is_dirty()).collect();
        let blocks: usize = changed.iter().map(|(_, tree)| tree.read().dirty.len()).sum();
        let placer = Placer::of(&self.editor);
        let mut places = space.allocate_log_blocks(self.editor.store, blocks + ROOT_BLOCKS)?.into_iter();
        let mut next = |count: usize, _: Option<Logical>| {
            let mut taken: Vec<Logical> = places.by_ref().take(count).collect();
            if taken.len() < count {
                taken.extend(space.allocate_log_blocks(self.editor.store, count - taken.len())?);
            }
            Ok(taken)
        };
        let assign = || {
            for (subvolume, tree) in changed {
                placer.assign_from(tree, &mut next)?;
                let key = Key::new(RootId::TREE_LOG.object_id(), KeyType::ROOT_ITEM, subvolume.get());
                let item = root_item(tree.root(), nodesize);
                replace(&LogBlocks(self.editor), roots, &key, item.as_bytes())?;
            }
            placer.assign_from(roots, &mut next).map(|_| ())
        };
        let assigned = assign();
        space.give_back_log_blocks(places.as_slice());
        assigned
    }
}

/// The root item of a log tree, as the kernel has it.
pub(super) fn root_item(root: TreeRoot, nodesize: u32) -> RootItem {
    let mut item: RootItem = zerocopy::FromZeros::new_zeroed();
    item.inode.generation = Generation::new(1);
    item.inode.size.set(3);
    item.inode.nlink.set(1);
    item.inode.nbytes.set(nodesize.into());
    item.inode.mode.set(0o40755);
    (item.generation, item.generation_v2) = (root.generation, root.generation);
    (item.bytenr, item.level) = (root.bytenr, root.level);
    item
}
