//! A pool whose trees can be read.

use crate::cache::NodeCache;
use crate::{CacheStatistics, Cursor, Readahead, TreeError, TreeRoot};
use brindle_device::Device;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Item, Key, KeyType, Logical, Node, NodeExpectation, ObjectId, RootId, Superblock};
use brindle_volume::Volume;
use std::sync::Arc;

/// The memory that cached nodes may take unless told otherwise, in bytes.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// How a pool is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// What concerns devices.
    pub volume: brindle_volume::OpenOptions,
    /// The memory that cached nodes may take, in bytes.
    pub cache_bytes: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { volume: brindle_volume::OpenOptions::default(), cache_bytes: DEFAULT_CACHE_BYTES }
    }
}

/// A pool whose trees can be read, by many threads at once.
#[derive(Debug)]
pub struct Pool {
    volume: Volume,
    cache: NodeCache,
}

impl Pool {
    /// Opens the pool that lies on `devices`: superblocks, then the chunk tree, after which every logical
    /// address can be read.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, TreeError> {
        let volume = Volume::open(devices, &options.volume)?;
        let cache = NodeCache::new(options.cache_bytes, volume.tree_context().nodesize);
        let pool = Self { volume, cache };
        pool.load_chunk_tree()?;
        pool.volume.check_complete()?;
        Ok(pool)
    }

    /// The devices and the map of the logical space.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The superblock that the pool was opened by.
    pub fn superblock(&self) -> &Superblock {
        self.volume.superblock()
    }

    /// How the node cache has done.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.cache.statistics()
    }

    /// The root of a tree: one of the superblock's, or one with an item in the tree of roots.
    pub fn tree_root(&self, id: RootId) -> Result<TreeRoot, TreeError> {
        match id {
            RootId::ROOT_TREE => Ok(TreeRoot::root_tree(self.superblock())),
            RootId::CHUNK_TREE => Ok(TreeRoot::chunk_tree(self.superblock())),
            RootId::TREE_LOG => TreeRoot::log_root_tree(self.superblock()).ok_or(TreeError::NoTree(id)),
            _ => {
                let (_, item) = self.root_item(id)?.ok_or(TreeError::NoTree(id))?;
                Ok(TreeRoot::from_item(id, &item))
            }
        }
    }

    /// A tree's root item and its key; the last one, where a relocation left several.
    pub fn root_item(&self, id: RootId) -> Result<Option<(Key, Box<RootItem>)>, TreeError> {
        let mut cursor = self.cursor(TreeRoot::root_tree(self.superblock()), Readahead::None);
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
    pub fn cursor(&self, root: TreeRoot, readahead: Readahead) -> Cursor<'_> {
        Cursor::new(self, root, readahead)
    }

    /// The item of exactly this key, handed to `act`.
    pub fn with_item<T>(
        &self,
        root: TreeRoot,
        key: &Key,
        act: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, TreeError> {
        let mut cursor = self.cursor(root, Readahead::None);
        cursor.seek(key)?;
        Ok(cursor.item().filter(|(found, _)| found == key).map(|(_, data)| act(data)))
    }

    /// A checked node, from the cache or from a device.
    pub fn read_node(&self, expected: &NodeExpectation) -> Result<Arc<Node>, TreeError> {
        // A cached node was checked against what another parent said; this one may say something else.
        if let Some(node) = self.cache.get(expected.bytenr).filter(|node| is_expected(node, expected)) {
            return Ok(node);
        }
        let context = self.volume.tree_context();
        let node = self
            .volume
            .read_block(expected.bytenr, context.nodesize, |bytes| Node::check(bytes, context, expected))?;
        let node = Arc::new(node);
        self.cache.insert(expected.bytenr, Arc::clone(&node));
        Ok(node)
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

    fn load_chunk_tree(&self) -> Result<(), TreeError> {
        let mut cursor = self.cursor(TreeRoot::chunk_tree(self.superblock()), Readahead::Forward);
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

/// Whether a node is the one that this parent means.
fn is_expected(node: &Node, expected: &NodeExpectation) -> bool {
    expected.generation.is_none_or(|generation| generation == node.generation())
        && expected.level.is_none_or(|level| level == node.level())
        && expected.first_key.is_none_or(|key| node.key(0) == Some(key))
}
