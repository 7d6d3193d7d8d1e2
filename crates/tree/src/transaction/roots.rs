//! Trees come, change their roots, are copied and go: what the tree of roots says of each.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::tree::Tree;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, Key, KeyType, Node, NodeHeader, RootId};
use std::sync::Arc;
use zerocopy::IntoBytes;

impl Editor<'_> {
    /// Makes an empty tree. `item` is its root item but for what the tree itself decides: place, level and
    /// generation; `offset` that of the item's key.
    pub fn create_tree(&self, id: RootId, offset: u64, item: &RootItem) -> Result<Arc<Tree>, TreeError> {
        let leaf = self.empty_leaf(id)?;
        self.plant(id, offset, item, leaf, Generation::new(0))
    }

    /// Makes a tree that shares everything with `source` but the root. Only while nothing else changes:
    /// [`Pool::exclusively`](crate::Pool::exclusively).
    pub fn snapshot(&self, source: &Tree, id: RootId, item: &RootItem) -> Result<Arc<Tree>, TreeError> {
        // What is shared has an address and changes no more.
        self.changes.space.prepare(self.store, self.load())?;
        self.assign_addresses(source)?;
        self.freeze_tree(source);
        // Nothing has changed in the snapshot when it is made: it says when its source did.
        self.record_tree(source)?;
        let times = self.store.root_item(source.id())?.map(|(_, item)| (item.ctransid, item.ctime));
        let mut item = item.clone();
        (item.ctransid, item.ctime) = times.ok_or(TreeError::NoTree(source.id()))?;
        let expected = source.root().expectation();
        let root = self.store.read_node(&expected)?;
        let copy = root.copy(self.changes.next_virtual(self.store.nodesize()), id, self.generation);
        self.share_children(&copy)?;
        let mut state = source.write();
        state.last_snapshot = self.generation;
        state.recorded = None;
        drop(state);
        // Dropping a snapshot takes blocks of its key's generation or older for the source's, and leaves their
        // references alone. The kernel makes snapshots at the end of a transaction; here the rest of it may change
        // the snapshot, and blocks made then must be younger than the key says.
        let offset = self.generation.get() - 1;
        self.plant(id, offset, &item, copy, self.generation)
    }

    /// A root without items, for a tree that is not there yet.
    pub(crate) fn empty_leaf(&self, id: RootId) -> Result<Node, TreeError> {
        // What all blocks have in common, a block of the pool's own knows.
        let like = self.store.read_node(&TreeRoot::chunk_tree(&self.store.superblock()).expectation());
        let nodesize = self.store.nodesize();
        let header = NodeHeader {
            fsid: self.store.volume().tree_context().tree_uuid,
            bytenr: self.changes.next_virtual(nodesize),
            generation: self.generation,
            owner: id,
            level: 0,
            ..*like?.header()
        };
        Ok(Node::empty(nodesize, &header))
    }

    /// Registers a tree of one dirty block, and its root item.
    fn plant(
        &self,
        id: RootId,
        offset: u64,
        item: &RootItem,
        root: Node,
        last_snapshot: Generation,
    ) -> Result<Arc<Tree>, TreeError> {
        let (bytenr, level) = (root.header().bytenr, root.level());
        let tree = Tree::new(TreeRoot { id, bytenr, generation: self.generation, level }, last_snapshot);
        {
            let mut state = tree.write();
            state.dirty.insert(bytenr, Arc::new(root));
            state.recorded = None;
        }
        self.changes.pressure.dirtied();
        let tree = self.store.register_tree(tree);
        let root_tree = self.store.tree(RootId::ROOT_TREE)?;
        let key = Key::new(id.object_id(), KeyType::ROOT_ITEM, offset);
        self.insert(&root_tree, &key, item.as_bytes())?;
        Ok(tree)
    }

    /// Changes a tree's root item; `None` if there is no such tree. What the tree itself decides is overwritten at
    /// the commit.
    pub fn change_root_item<T>(
        &self,
        id: RootId,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Result<Option<T>, TreeError> {
        let Some((key, mut item)) = self.store.root_item(id)? else {
            return Ok(None);
        };
        let changed = change(&mut item);
        let root_tree = self.store.tree(RootId::ROOT_TREE)?;
        self.replace(&root_tree, &key, item.as_bytes())?;
        Ok(Some(changed))
    }

    /// Writes the roots that have moved into their root items; whether there were any.
    pub(super) fn record_roots(&self) -> Result<bool, TreeError> {
        let mut busy = false;
        for tree in self.store.known_trees() {
            // These two are recorded in the superblock.
            if !matches!(tree.id(), RootId::ROOT_TREE | RootId::CHUNK_TREE) {
                busy |= self.record_tree(&tree)?;
            }
        }
        Ok(busy)
    }

    /// Writes a root that has moved into its root item; whether it has.
    fn record_tree(&self, tree: &Tree) -> Result<bool, TreeError> {
        let (root, last_snapshot, grown, has_news) = {
            let mut state = tree.write_quietly();
            if state.recorded == Some(state.root) {
                return Ok(false);
            }
            state.recorded = Some(state.root);
            let (grown, has_news) = (std::mem::take(&mut state.grown), std::mem::take(&mut state.has_news));
            (state.root, state.last_snapshot, grown, has_news)
        };
        let now = (self.changes.options.clock)();
        let nodesize = i64::from(self.store.nodesize());
        let found = self.change_root_item(tree.id(), |item| {
            item.bytenr = root.bytenr;
            item.generation = root.generation;
            item.generation_v2 = root.generation;
            item.level = root.level;
            let used = item.bytes_used.get().saturating_add_signed(grown.saturating_mul(nodesize));
            item.bytes_used.set(used);
            if tree.id().is_file_tree() {
                item.last_snapshot = last_snapshot;
                if has_news {
                    item.ctransid = self.generation;
                    item.ctime = now;
                }
            }
        })?;
        found.map(|()| true).ok_or(TreeError::NoTree(tree.id()))
    }
}
