//! Trees come, change their roots, are copied and go: what the tree of roots says of each.

use super::SoleEditor;
use super::placer::Placer;
use crate::accounting::groups::{add_subvolume_group, copy_limit, join_groups};
use crate::editor::Editor;
use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::tree::Tree;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, Key, KeyType, Node, NodeHeader, QgroupId, RootId};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Trees of the pool: how they come, and what the tree of roots says of each.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'p> {
    pub(super) editor: Editor<'p>,
}

impl<'p> Roots<'p> {
    /// Trees, to be changed by an editor.
    pub fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Makes an empty tree. `item` is its root item but for what the tree itself decides: place, level and
    /// generation; `offset` that of the item's key.
    ///
    /// # Errors
    /// [`TreeError::Exists`] if there is a root item of this key; a tree of roots that can't be read.
    pub fn create(&self, id: RootId, offset: u64, item: &RootItem) -> Result<Arc<Tree>, TreeError> {
        let leaf = self.empty_leaf(id)?;
        self.plant(id, offset, item, leaf, Generation::new(0))
    }

    /// Makes a tree that shares everything with `source` but the root, as part of quota groups, and with the limits of the
    /// source's.
    ///
    /// # Errors
    /// A root that can't be read, and no places for what `source` has changed.
    pub fn snapshot(
        editor: &SoleEditor<'_>,
        source: &Tree,
        id: RootId,
        item: &RootItem,
        groups: &[QgroupId],
    ) -> Result<Arc<Tree>, TreeError> {
        let roots = Roots::of(editor);
        // What is shared has an address and changes no more.
        editor.changes.space.prepare(editor.store, editor.load())?;
        let placer = Placer::of(editor);
        placer.assign(source)?;
        placer.freeze_tree(source);
        // Nothing has changed in the snapshot when it is made: it says when its source did.
        roots.record(source)?;
        let times = editor.store.root_item(source.id())?.map(|(_, item)| (item.ctransid, item.ctime));
        let mut item = item.clone();
        (item.ctransid, item.ctime) = times.ok_or(TreeError::NoTree(source.id()))?;
        let expected = source.root().expectation();
        let root = editor.store.read_node(&expected)?;
        let copy = root.copy(editor.changes.next_virtual(editor.store.nodesize()), id, editor.generation);
        editor.references().share_children(&copy)?;
        let mut state = source.write();
        state.last_snapshot = editor.generation;
        state.recorded = None;
        drop(state);
        // Dropping a snapshot takes blocks of its key's generation or older for the source's, and leaves their
        // references alone. The kernel makes snapshots at the end of a transaction; here the rest of it may change
        // the snapshot, and blocks made then must be younger than the key says.
        let offset = editor.generation.get() - 1;
        let tree = roots.plant(id, offset, &item, copy, editor.generation)?;
        copy_limit(editor, source.id(), id)?;
        roots.join_quota_groups(id, groups)?;
        editor.changes.quotas.copied(source.id(), expected.bytenr, id);
        Ok(tree)
    }

    /// A new subvolume becomes part of quota groups. One that has gone since they were checked is left out.
    ///
    /// # Errors
    /// A quota tree that can't be read.
    pub fn join_quota_groups(&self, id: RootId, groups: &[QgroupId]) -> Result<(), TreeError> {
        join_groups(&self.editor, id, groups)
    }

    /// A root without items, for a tree that is not there yet.
    pub(crate) fn empty_leaf(&self, id: RootId) -> Result<Node, TreeError> {
        // What all blocks have in common, a block of the pool's own knows.
        let like =
            self.editor.store.read_node(&TreeRoot::chunk_tree(&self.editor.store.superblock()).expectation());
        let nodesize = self.editor.store.nodesize();
        let header = NodeHeader {
            fsid: self.editor.store.volume().tree_context().tree_uuid,
            bytenr: self.editor.changes.next_virtual(nodesize),
            generation: self.editor.generation,
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
        let tree =
            Tree::new(TreeRoot { id, bytenr, generation: self.editor.generation, level }, last_snapshot);
        {
            let mut state = tree.write();
            state.dirty.insert(bytenr, Arc::new(root));
            state.recorded = None;
        }
        self.editor.changes.pressure.dirtied();
        let tree = self.editor.store.register_tree(tree);
        let root_tree = self.editor.store.tree(RootId::ROOT_TREE)?;
        let key = Key::new(id.object_id(), KeyType::ROOT_ITEM, offset);
        self.editor.insert(&root_tree, &key, item.as_bytes())?;
        add_subvolume_group(&self.editor, id)?;
        Ok(tree)
    }

    /// Changes a tree's root item; `None` if there is no such tree. What the tree itself decides is overwritten at
    /// the commit.
    ///
    /// # Errors
    /// A tree of roots that can't be read.
    pub fn change_item<T>(
        &self,
        id: RootId,
        change: impl FnOnce(&mut RootItem) -> T,
    ) -> Result<Option<T>, TreeError> {
        let Some((key, mut item)) = self.editor.store.root_item(id)? else {
            return Ok(None);
        };
        let changed = change(&mut item);
        let root_tree = self.editor.store.tree(RootId::ROOT_TREE)?;
        self.editor.replace(&root_tree, &key, item.as_bytes())?;
        Ok(Some(changed))
    }

    /// Writes the roots that have moved into their root items; whether there were any.
    pub(super) fn record_all(&self) -> Result<bool, TreeError> {
        let mut busy = false;
        for tree in self.editor.store.known_trees() {
            // These two are recorded in the superblock.
            if !matches!(tree.id(), RootId::ROOT_TREE | RootId::CHUNK_TREE) {
                busy |= self.record(&tree)?;
            }
        }
        Ok(busy)
    }

    /// Writes a root that has moved into its root item; whether it has.
    fn record(&self, tree: &Tree) -> Result<bool, TreeError> {
        let (root, last_snapshot, grown, has_news) = {
            let mut state = tree.write_quietly();
            if state.recorded == Some(state.root) {
                return Ok(false);
            }
            state.recorded = Some(state.root);
            let (grown, has_news) = (std::mem::take(&mut state.grown), std::mem::take(&mut state.has_news));
            (state.root, state.last_snapshot, grown, has_news)
        };
        let now = (self.editor.changes.options.clock)();
        let nodesize = i64::from(self.editor.store.nodesize());
        let found = self.change_item(tree.id(), |item| {
            item.bytenr = root.bytenr;
            item.generation = root.generation;
            item.generation_v2 = root.generation;
            item.level = root.level;
            let used = item.bytes_used.get().saturating_add_signed(grown.saturating_mul(nodesize));
            item.bytes_used.set(used);
            if tree.id().is_file_tree() {
                item.last_snapshot = last_snapshot;
                if has_news {
                    item.ctransid = self.editor.generation;
                    item.ctime = now;
                }
            }
        })?;
        found.map(|()| true).ok_or(TreeError::NoTree(tree.id()))
    }
}
