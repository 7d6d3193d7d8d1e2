//! The pool: its volume, its trees, the node cache, and (of one that is written) the writer.

use crate::cache::CacheStatistics;
use crate::cache::NodeCache;
use crate::cursor::leaf_in_memory;
use crate::cursor::{Cursor, Readahead};
use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::transaction::Writer;
use crate::tree::Tree;
use brindle_device::Device;
use brindle_ondisk::item::{RootItem, SuperblockAge};
use brindle_ondisk::{
    Generation, IdMap, Item, Key, KeyType, Logical, Node, NodeExpectation, ObjectId, RootId, Superblock,
};
use brindle_sync::atomic::{AtomicU64, Ordering};
use brindle_sync::{Rank, RwLock};
use brindle_volume::Volume;
use std::sync::{Arc, OnceLock};

/// The memory that cached nodes may take unless told otherwise, in bytes.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// Options of opening a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Options of the volume.
    pub volume: brindle_volume::OpenOptions,
    /// The memory that cached nodes may take, in bytes.
    pub cache_bytes: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { volume: brindle_volume::OpenOptions::default(), cache_bytes: DEFAULT_CACHE_BYTES }
    }
}

/// A pool whose trees are read and (if it was opened for that) changed by many threads at once.
#[derive(Debug)]
pub struct Pool {
    volume: Volume,
    cache: NodeCache,
    /// Trees in use.
    trees: RwLock<IdMap<RootId, Arc<Tree>>>,
    /// Number of times data has been moved to another place.
    pub(crate) moves: AtomicU64,
    /// State needed to change them; empty if the pool is only read.
    writer: OnceLock<Writer>,
}

impl Pool {
    /// Opens the pool that lies on `devices`: superblocks, then the chunk tree, after which every logical
    /// address can be read.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, TreeError> {
        Self::from_volume(Volume::open(devices, &options.volume)?, options.cache_bytes)
    }

    /// The pool of a volume whose chunks have not been read yet.
    pub(crate) fn from_volume(volume: Volume, cache_bytes: usize) -> Result<Self, TreeError> {
        let cache = NodeCache::new(cache_bytes, volume.tree_context().nodesize);
        let pool = Self {
            volume,
            cache,
            trees: RwLock::new(Rank::TreeTable, IdMap::default()),
            moves: AtomicU64::new(0),
            writer: OnceLock::new(),
        };
        pool.load_chunk_tree()?;
        pool.volume.check_complete()?;
        if pool.volume.has_sleepers() {
            pool.volume.judge_sleepers(&pool.recorded_ages())?;
        }
        Ok(pool)
    }

    /// The devices and the map of the logical space.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The superblock of the last commit.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.volume.superblock()
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

    /// Forgets a tree that is deleted.
    pub(crate) fn forget_tree(&self, id: RootId) {
        self.trees.write().remove(&id);
    }

    /// Returns a number that grows whenever data moves: a caller that has looked up the location of data, and finds
    /// afterwards that it has grown, may have read data that is not there any more.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    pub(crate) fn writer_slot(&self) -> &OnceLock<Writer> {
        &self.writer
    }

    pub(crate) fn set_writer(&self, writer: Writer) {
        assert!(self.writer.set(writer).is_ok(), "a pool is made writable once");
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
        let node = self
            .volume
            .read_block(expected.bytenr, context.nodesize, |bytes| Node::check(bytes, context, expected))?;
        let node = Arc::new(node);
        self.cache.insert(expected.bytenr, Arc::clone(&node));
        Ok(node)
    }

    /// A checked node, if it is in memory.
    pub(crate) fn node_in_memory(&self, expected: &NodeExpectation) -> Option<Arc<Node>> {
        // A cached node was checked against what another parent said; this one may say something else.
        let cached = self.cache.get(expected.bytenr).filter(|node| is_expected(node, expected));
        cached.or_else(|| {
            let writer = self.writer.get()?;
            let ours = writer.frozen_node(expected.bytenr).or_else(|| writer.log.block(expected.bytenr));
            ours.filter(|node| is_expected(node, expected))
        })
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

    /// Ages of superblocks that the pool has recorded; none if they can't be read, and then no device is taken to sleep.
    fn recorded_ages(&self) -> Vec<SuperblockAge> {
        self.superblock_ages().unwrap_or_else(|error| {
            tracing::warn!("the record of devices that sleep can't be read: {error}");
            Vec::new()
        })
    }

    fn load_chunk_tree(&self) -> Result<(), TreeError> {
        let mut cursor = self.cursor(&self.tree(RootId::CHUNK_TREE)?, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        while let Some((key, data)) = cursor.item() {
            let item = Item::parse(&key, data);
            match item.map_err(|defect| TreeError::item(RootId::CHUNK_TREE, key, defect))? {
                Item::Chunk(chunk) if key.objectid == ObjectId::FIRST_CHUNK_TREE => {
                    self.volume.add_chunk(Logical::new(key.offset()), &chunk)?;
                }
                Item::Device(device) => self.volume.add_device(device)?,
                _ => {}
            }
            cursor.next()?;
        }
        Ok(())
    }
}

/// Returns true if a node is the one that this parent means.
pub(crate) fn is_expected(node: &Node, expected: &NodeExpectation) -> bool {
    node.header().bytenr == expected.bytenr
        && expected.generation.is_none_or(|generation| generation == node.generation())
        && expected.level.is_none_or(|level| level == node.level())
        && expected.first_key.is_none_or(|key| node.key(0) == Some(key))
}
