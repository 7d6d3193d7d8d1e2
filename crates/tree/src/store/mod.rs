//! Reading: the devices' blocks, those in memory, and the trees that they make up.
//!
//! A block that is asked for lies in the node cache, among the blocks that the running transaction or its log has given places
//! and that may not be on their devices yet ([`Unwritten`]), or on a device. Nothing here knows how trees change; it is told
//! what became of them: a block that has a place, a tree that is new or gone, data that has moved, space that is held
//! ([`hold`]).

pub(crate) mod cache;
pub(crate) mod cursor;
pub(crate) mod hold;
pub(crate) mod logs;
pub(crate) mod rescue;
pub(crate) mod trees;
pub(crate) mod unwritten;

use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::stop::{Stop, StopOnPanic};
use crate::tree::Tree;
use brindle_ondisk::item::{RootItem, SuperblockAge, SuperblockAgesHeader};
use brindle_ondisk::{
    CompatRo, Generation, IdMap, Item, Key, KeyType, Logical, Node, NodeExpectation, RootId, Superblock,
};
use brindle_sync::atomic::{AtomicU64, Ordering};
use brindle_sync::{Rank, RwLock};
use brindle_volume::Volume;
use cache::{CacheStatistics, NodeCache};
use cursor::{Cursor, Readahead, leaf_in_memory};
use hold::{FreedSpace, FreedSpaceHold};
use std::sync::{Arc, OnceLock};
use unwritten::Unwritten;

/// Blocks and trees of a pool, to be read by many threads at once.
#[derive(Debug)]
pub struct Store {
    volume: Volume,
    cache: NodeCache,
    /// Blocks with places that may not be on their devices.
    unwritten: Unwritten,
    /// Trees in use.
    trees: RwLock<IdMap<RootId, Arc<Tree>>>,
    /// Number of times data has been moved to another place.
    moves: AtomicU64,
    /// Keeper of freed space; empty if the pool is only read.
    freed: OnceLock<Arc<dyn FreedSpace>>,
    stop: Stop,
}

impl Store {
    /// The blocks of a volume whose chunks have not been read yet.
    pub(crate) fn from_volume(volume: Volume, cache_bytes: usize) -> Result<Self, TreeError> {
        let cache = NodeCache::new(cache_bytes, volume.tree_context().nodesize);
        let stop = Stop::of(&volume);
        let store = Self {
            volume,
            cache,
            unwritten: Unwritten::default(),
            trees: RwLock::new(Rank::TreeTable, IdMap::default()),
            moves: AtomicU64::new(0),
            freed: OnceLock::new(),
            stop,
        };
        store.enter()?;
        if store.volume.has_sleepers() {
            // One that did not sleep is left out, and with it chunks that may be empty.
            let judged = store.volume.judge_sleepers(&store.recorded_ages());
            judged.or_else(|_| store.check_complete())?;
        }
        Ok(store)
    }

    /// The devices and the map of the logical space.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The superblock of the last commit.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.volume.superblock()
    }

    /// Tree that holds the block group items.
    pub(crate) fn block_group_tree(&self) -> RootId {
        let has_own = self.superblock().compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
        if has_own { RootId::BLOCK_GROUP_TREE } else { RootId::EXTENT_TREE }
    }

    /// Returns true if the last commit has a log of later fsyncs.
    pub fn has_log(&self) -> bool {
        TreeRoot::log_root_tree(&self.superblock()).is_some()
    }

    /// Hit and miss counters of the node cache.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.cache.statistics()
    }

    /// A tree: one of the superblock's, or one with an item in the tree of roots. Everyone gets the same.
    pub fn tree(&self, id: RootId) -> Result<Arc<Tree>, TreeError> {
        let known = self.trees.read().get(&id).map(Arc::clone);
        match known {
            Some(tree) => Ok(tree),
            None => {
                let tree = self.find_tree(id)?;
                let mut trees = self.trees.write();
                Ok(Arc::clone(trees.entry(id).or_insert_with(|| Arc::new(tree))))
            }
        }
    }

    /// Number of trees in use.
    pub(crate) fn known_tree_count(&self) -> usize {
        self.trees.read().len()
    }

    /// Trees in use, by id.
    pub(crate) fn known_trees(&self) -> Vec<Arc<Tree>> {
        let mut trees: Vec<_> = self.trees.read().values().map(Arc::clone).collect();
        trees.sort_unstable_by_key(|tree| tree.id());
        trees
    }

    /// Makes a new tree known.
    pub(crate) fn register_tree(&self, tree: Tree) -> Arc<Tree> {
        let tree = Arc::new(tree);
        let mut trees = self.trees.write();
        trees.insert(tree.id(), Arc::clone(&tree));
        tree
    }

    /// Forgets all trees: they are of another commit.
    fn forget_trees(&self) {
        self.trees.write().clear();
    }

    /// Forgets a tree that is deleted.
    pub(crate) fn forget_tree(&self, id: RootId) {
        self.trees.write().remove(&id);
    }

    /// Returns a number that grows whenever data moves: a caller that has looked up the location of data, and finds
    /// afterwards that it has grown, may have read data that is not there any more.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Data has moved to another place.
    pub(crate) fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::Release);
    }

    /// Blocks that have places, and may not be on their devices.
    pub(crate) fn unwritten(&self) -> &Unwritten {
        &self.unwritten
    }

    /// The end of all writing.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Ends all writing if the caller unwinds before it has dropped the guard: for operations that change more than
    /// trees. Of a pool that is only read, nothing is to be stopped.
    pub fn stop_on_panic(&self) -> StopOnPanic<'_> {
        match self.freed.get() {
            Some(_) => StopOnPanic::of(&self.stop),
            None => StopOnPanic::of_reader(),
        }
    }

    /// The pool is written from now on, and what it frees is kept by this.
    pub(crate) fn set_keeper(&self, keeper: Arc<dyn FreedSpace>) {
        assert!(self.freed.set(keeper).is_ok(), "a pool is made writable once");
    }

    /// Keeps all space readable that is in use now. A place that is looked up afterwards in a tree as it is then, or as of
    /// the last commit, may be read as long as the hold lives. Not to be held across anything that waits for a commit.
    pub fn hold_freed_space(&self) -> FreedSpaceHold<'_> {
        FreedSpaceHold::of(self)
    }

    /// The size of a tree block, in bytes.
    pub fn nodesize(&self) -> u32 {
        self.volume.tree_context().nodesize
    }

    fn find_tree(&self, id: RootId) -> Result<Tree, TreeError> {
        let never = Generation::new(0);
        match id {
            RootId::ROOT_TREE => Ok(Tree::new(TreeRoot::root_tree(&self.superblock()), never)),
            RootId::CHUNK_TREE => Ok(Tree::new(TreeRoot::chunk_tree(&self.superblock()), never)),
            RootId::TREE_LOG => {
                let root = TreeRoot::log_root_tree(&self.superblock()).ok_or(TreeError::NoTree(id))?;
                Ok(Tree::new(root, never))
            }
            _ => {
                let (_, item) = self.root_item(id)?.ok_or(TreeError::NoTree(id))?;
                let last_snapshot = if id.is_file_tree() { item.last_snapshot } else { never };
                Ok(Tree::new(TreeRoot::from_item(id, &item), last_snapshot))
            }
        }
    }

    /// A tree's root item and its key; the last one, where a relocation left several.
    pub fn root_item(&self, id: RootId) -> Result<Option<(Key, Box<RootItem>)>, TreeError> {
        self.root_item_in(&self.tree(RootId::ROOT_TREE)?, id)
    }

    /// A tree's root item and its key in one version of the tree of roots.
    pub(crate) fn root_item_in(
        &self,
        root_tree: &Arc<Tree>,
        id: RootId,
    ) -> Result<Option<(Key, Box<RootItem>)>, TreeError> {
        let mut cursor = self.cursor(root_tree, Readahead::None);
        cursor.seek_last(&Key::last_of(id.object_id(), KeyType::ROOT_ITEM))?;
        let Some((key, data)) = cursor.item() else {
            return Ok(None);
        };
        if (key.objectid, key.item_type) != (id.object_id(), KeyType::ROOT_ITEM) {
            return Ok(None);
        }
        match Item::parse(&key, data) {
            Ok(Item::Root(item)) => Ok(Some((key, item))),
            Ok(_) => Ok(None),
            Err(defect) => Err(TreeError::item(RootId::ROOT_TREE, key, defect)),
        }
    }

    /// A cursor over a tree, not yet anywhere.
    pub fn cursor(&self, tree: &Arc<Tree>, readahead: Readahead) -> Cursor<'_> {
        Cursor::new(self, Arc::clone(tree), readahead)
    }

    /// The item of exactly this key, handed to `act`.
    pub fn with_item<T>(
        &self,
        tree: &Arc<Tree>,
        key: &Key,
        act: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, TreeError> {
        if let Some(leaf) = leaf_in_memory(self, tree, key) {
            let found = leaf.search(key).ok().and_then(|slot| leaf.item(slot));
            return Ok(found.map(|(_, data)| act(data)));
        }
        let mut cursor = self.cursor(tree, Readahead::None);
        cursor.seek(key)?;
        Ok(cursor.item().filter(|(found, _)| found == key).map(|(_, data)| act(data)))
    }

    /// A checked node, from the cache or from a device.
    pub fn read_node(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError> {
        if let Some(node) = self.node_in_memory(expected) {
            return Ok(node);
        }
        self.cache.count_miss();
        let context = self.volume.tree_context();
        let check = |bytes| Node::check(bytes, context, expected);
        let node = match self.volume.read_block(expected.bytenr, context.nodesize, check) {
            Ok(node) => node,
            Err(error) => self.read_unsummed(expected, error)?,
        };
        let node = Arc::new(node);
        self.cache.insert(expected.bytenr, Arc::clone(&node));
        Ok(node)
    }

    /// A checked node, if it is in memory.
    pub(crate) fn node_in_memory(&self, expected: &NodeExpectation) -> Option<Arc<Node>> {
        // A cached node was checked against what another parent said; this one may say something else.
        let cached = self.cache.get(expected.bytenr).filter(|node| is_expected(node, expected));
        cached.or_else(|| self.unwritten.block(expected.bytenr).filter(|node| is_expected(node, expected)))
    }

    /// Puts a node into the cache.
    pub(crate) fn remember_node(&self, at: Logical, node: &Arc<Node>) {
        self.cache.insert(at, Arc::clone(node));
    }

    /// Asks the devices for nodes that will be read soon, those that follow each other in one piece.
    pub(crate) fn prefetch_nodes(&self, addresses: impl Iterator<Item = Logical>) {
        let nodesize = u64::from(self.volume.tree_context().nodesize);
        let mut run: Option<(Logical, u64)> = None;
        for at in addresses.filter(|at| !self.cache.contains(*at)) {
            match &mut run {
                Some((start, length)) if start.checked_add(*length) == Some(at) => *length += nodesize,
                _ => {
                    if let Some((start, length)) = run.replace((at, nodesize)) {
                        self.volume.prefetch(start, length);
                    }
                }
            }
        }
        if let Some((start, length)) = run {
            self.volume.prefetch(start, length);
        }
    }

    /// A block as it goes to disk; the tree checker has the last word.
    pub(crate) fn seal(&self, at: Logical, node: &Node) -> Result<Node, TreeError> {
        let context = self.volume.tree_context();
        let mut sealed = node.clone();
        sealed.seal(context);
        let expected = NodeExpectation {
            bytenr: at,
            generation: Some(node.generation()),
            level: Some(node.level()),
            first_key: None,
        };
        sealed.verify(context, &expected).map_err(TreeError::Refused)?;
        Ok(sealed)
    }

    /// Ages of superblocks that the pool has recorded; none if there is no record.
    pub(crate) fn superblock_ages(&self) -> Result<Vec<SuperblockAge>, TreeError> {
        let tree = self.tree(RootId::DEV_TREE)?;
        let key = SuperblockAgesHeader::KEY;
        let found = self.with_item(&tree, &key, |data| match Item::parse(&key, data) {
            Ok(Item::SuperblockAges(item)) => Ok(item.devices.to_vec()),
            Ok(_) => Ok(Vec::new()),
            Err(defect) => Err(TreeError::item(RootId::DEV_TREE, key, defect)),
        })?;
        Ok(found.transpose()?.unwrap_or_default())
    }

    /// Ages of superblocks that the pool has recorded; none if they can't be read, and then no device is taken to sleep.
    fn recorded_ages(&self) -> Vec<SuperblockAge> {
        self.superblock_ages().unwrap_or_else(|error| {
            tracing::warn!("the record of devices that sleep can't be read: {error}");
            Vec::new()
        })
    }
}

/// Returns true if a node is the one that this parent means.
pub(crate) fn is_expected(node: &Node, expected: &NodeExpectation) -> bool {
    node.header().bytenr == expected.bytenr
        && expected.generation.is_none_or(|generation| generation == node.generation())
        && expected.level.is_none_or(|level| level == node.level())
        && expected.first_key.is_none_or(|key| node.key(0) == Some(key))
}
