//! The content of every tree, and the address of every block.
//!
//! The extent tree has an item for each block, its own included, and the free space tree has what they leave;
//! so how many blocks there are depends on how many there are. [`Trees::build`] begins with a leaf for each tree
//! and goes round until the numbers agree; they only grow.
//!
//! What differs from what mkfs.btrfs 6.2 writes for the same options, as `dump-tree` shows it, and why:
//!
//! - Everything is of generation 1, and in address order without gaps: there was one transaction, not six.
//!   For the same reason only the first backup root is filled in, the others are empty.
//! - Device and chunk items are the same; system, metadata and data chunks lie in this order, clear of the
//!   places of superblocks, and their sizes follow the size of the smallest device. The free space tree has
//!   no items of the temporary block groups at 1 MiB and 5 MiB, which mkfs.btrfs removes and forgets there.
//! - The top-level subvolume has its `otransid` and `ctransid`, its inode its `transid`, as the kernel gives them
//!   to any other subvolume, and root items' inodes are flagged `ROOT_ITEM_INIT`, which the kernel would do at
//!   the first mount.
//! - The root directory of the data relocation tree has the same inode as that of the top level; mkfs.btrfs
//!   leaves its `nbytes` and `otime` 0, which nothing reads.
//! - `uuid_tree_generation` is the generation, for the UUID tree is complete: the kernel need not look.

use super::options::Features;
use super::plan::{Plan, PlannedChunk};
use super::{MkfsOptions, items};
use crate::bulk::{Addresses, BlockFormat, Shape, TreeItem, encode};
use brindle_ondisk::item::TreeBlockInfo;
use brindle_ondisk::{BlockGroupType, Key, KeyType, Logical, ObjectId, RootId, to_u64};
use zerocopy::IntoBytes;

/// More rounds than any pool needs: each makes the trees no more than a level higher.
const ROUNDS_MAX: usize = 64;

/// One tree, ready to be encoded.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) id: RootId,
    pub(super) items: Vec<TreeItem>,
    pub(super) shape: Shape,
    pub(super) addresses: Addresses,
}

/// Trees of the pool.
#[derive(Debug)]
pub(super) struct Trees {
    pub(super) all: Vec<Tree>,
    nodesize: u32,
}

/// The trees of a pool of these features, in the order of their addresses.
fn tree_ids(features: Features) -> Vec<RootId> {
    let mut ids = vec![RootId::CHUNK_TREE, RootId::ROOT_TREE, RootId::EXTENT_TREE, RootId::DEV_TREE];
    ids.extend([RootId::FS_TREE, RootId::CSUM_TREE, RootId::UUID_TREE]);
    if features.contains(Features::FREE_SPACE_TREE) {
        ids.push(RootId::FREE_SPACE_TREE);
    }
    if features.contains(Features::BLOCK_GROUP_TREE) {
        ids.push(RootId::BLOCK_GROUP_TREE);
    }
    if features.contains(Features::SIMPLE_QUOTA) {
        ids.push(RootId::QUOTA_TREE);
    }
    ids.push(RootId::DATA_RELOC_TREE);
    ids
}

impl Trees {
    /// Works out every tree of the pool.
    pub(super) fn build(plan: &Plan, options: &MkfsOptions) -> Self {
        let ids = tree_ids(options.features);
        let mut all: Vec<Tree> = ids.into_iter().map(Tree::empty).collect();
        for _ in 0..ROUNDS_MAX {
            let mut trees = Self { all, nodesize: plan.nodesize };
            trees.assign_addresses(plan);
            trees.fill(plan, options);
            let agrees = |tree: &Tree| tree.shape.counts() == tree.addresses.counts();
            if trees.all.iter().all(agrees) {
                trees.describe_blocks();
                return trees;
            }
            all = trees.all;
        }
        unreachable!("trees that only grow, within chunks that they do not fill, come to an end");
    }

    /// The tree of this id.
    pub(super) fn get(&self, id: RootId) -> Option<&Tree> {
        self.all.iter().find(|tree| tree.id == id)
    }

    /// Bytes of the chunk that hold blocks, all at its beginning.
    pub(super) fn used_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let blocks = self.all.iter().flat_map(|tree| tree.addresses.iter());
        to_u64(blocks.filter(|(_, _, at)| chunk.contains(*at)).count()) * u64::from(self.nodesize)
    }

    /// The beginning of the chunk: its blocks, one behind the other.
    pub(super) fn encode(&self, chunk: &PlannedChunk, format: &BlockFormat) -> Vec<u8> {
        let mut blocks: Vec<(Logical, Vec<u8>)> = Vec::new();
        for tree in self.all.iter().filter(|tree| chunk.kind.contains(home_of(tree.id))) {
            blocks.extend(encode(format, tree.id, &tree.items, &tree.shape, &tree.addresses));
        }
        blocks.retain(|(at, _)| chunk.contains(*at));
        blocks.sort_by_key(|(at, _)| *at);
        blocks.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }

    /// Blocks lie one behind the other, from the beginning of the first chunk that is for them.
    fn assign_addresses(&mut self, plan: &Plan) {
        let nodesize = u64::from(self.nodesize);
        for (number, chunk) in plan.chunks.iter().enumerate() {
            let mut next = chunk.start;
            let is_home = |tree: &&mut Tree| {
                let home = home_of(tree.id);
                chunk.kind.contains(home)
                    && !plan.chunks[..number].iter().any(|chunk| chunk.kind.contains(home))
            };
            for tree in self.all.iter_mut().filter(is_home) {
                let mut take = |count: usize| -> Vec<Logical> {
                    let blocks = (0..to_u64(count)).map(|index| next + index * nodesize).collect();
                    next = next + to_u64(count) * nodesize;
                    blocks
                };
                tree.addresses = Addresses(tree.shape.counts().into_iter().map(&mut take).collect());
            }
            assert!(next <= chunk.end(), "the first chunks have room for the blocks of an empty pool");
        }
    }

    /// Items and shapes, as they are with the blocks at these addresses.
    fn fill(&mut self, plan: &Plan, options: &MkfsOptions) {
        let contents: Vec<Vec<TreeItem>> =
            self.all.iter().map(|tree| self.content(tree.id, plan, options)).collect();
        for (tree, mut content) in self.all.iter_mut().zip(contents) {
            content.sort_by_key(|(key, _)| *key);
            tree.shape = Shape::of(&content, plan.nodesize);
            tree.items = content;
        }
    }

    fn content(&self, id: RootId, plan: &Plan, options: &MkfsOptions) -> Vec<TreeItem> {
        let is_separate = options.features.contains(Features::BLOCK_GROUP_TREE);
        match id {
            RootId::CHUNK_TREE => items::chunk_tree(plan, options),
            RootId::ROOT_TREE => self.root_tree(plan, options),
            RootId::EXTENT_TREE => {
                let mut content = self.extents(options.features);
                if !is_separate {
                    content.extend(self.block_groups(plan));
                }
                content
            }
            RootId::DEV_TREE => items::dev_tree(plan),
            RootId::FS_TREE | RootId::DATA_RELOC_TREE => items::file_tree(id, plan, options),
            RootId::UUID_TREE => vec![items::uuid_item(plan)],
            RootId::FREE_SPACE_TREE => plan
                .chunks
                .iter()
                .flat_map(|chunk| items::free_space(chunk, self.used_bytes(chunk)))
                .collect(),
            RootId::BLOCK_GROUP_TREE => self.block_groups(plan),
            RootId::QUOTA_TREE => items::quota_tree(self.bytes_of(RootId::FS_TREE)),
            _ => Vec::new(),
        }
    }

    /// Bytes of the blocks of a tree.
    fn bytes_of(&self, id: RootId) -> u64 {
        let blocks = self.get(id).map_or(0, |tree| tree.addresses.count());
        to_u64(blocks) * u64::from(self.nodesize)
    }

    fn block_groups(&self, plan: &Plan) -> Vec<TreeItem> {
        plan.chunks.iter().map(|chunk| items::block_group(chunk, self.used_bytes(chunk))).collect()
    }

    fn root_tree(&self, plan: &Plan, options: &MkfsOptions) -> Vec<TreeItem> {
        let mut content = items::root_directory(plan, options);
        let rooted =
            self.all.iter().filter(|tree| !matches!(tree.id, RootId::CHUNK_TREE | RootId::ROOT_TREE));
        content.extend(rooted.map(|tree| items::root_item(tree.id, &tree.addresses, plan, options)));
        content
    }

    /// An item for each block; what the longer ones say of a block is filled in at the end.
    fn extents(&self, features: Features) -> Vec<TreeItem> {
        let is_skinny = features.contains(Features::SKINNY_METADATA);
        let mut content = Vec::new();
        for tree in &self.all {
            for (level, _, at) in tree.addresses.iter() {
                let objectid = ObjectId::new(at.get());
                let (key, info) = if is_skinny {
                    (Key::new(objectid, KeyType::METADATA_ITEM, to_u64(level)), None)
                } else {
                    let key = Key::new(objectid, KeyType::EXTENT_ITEM, self.nodesize.into());
                    (key, Some(TreeBlockInfo { key: Key::MIN, level: level_number(level) }))
                };
                content.push((key, items::tree_block(tree.id, info)));
            }
        }
        content
    }

    /// Fills in the first key of each block, where the extent items are of the kind that say it.
    fn describe_blocks(&mut self) {
        let mut infos: Vec<(ObjectId, TreeBlockInfo)> = Vec::new();
        for tree in &self.all {
            for (level, index, at) in tree.addresses.iter() {
                let key = tree.shape.first_key(&tree.items, level, index).unwrap_or(Key::MIN);
                infos.push((ObjectId::new(at.get()), TreeBlockInfo { key, level: level_number(level) }));
            }
        }
        infos.sort_by_key(|(objectid, _)| *objectid);
        let extents = self.all.iter_mut().filter(|tree| tree.id == RootId::EXTENT_TREE);
        for (key, data) in extents.flat_map(|tree| &mut tree.items) {
            if key.item_type == KeyType::EXTENT_ITEM {
                let index = infos.binary_search_by_key(&key.objectid, |(objectid, _)| *objectid);
                let (_, info) = &infos[index.expect("there is an extent item for each block and no other")];
                data[items::TREE_BLOCK_INFO_RANGE].copy_from_slice(info.as_bytes());
            }
        }
    }
}

impl Tree {
    fn empty(id: RootId) -> Self {
        Self { id, items: Vec::new(), shape: Shape::of_nothing(), addresses: Addresses(Vec::new()) }
    }
}

/// Type of chunk that holds the blocks of a tree.
fn home_of(id: RootId) -> BlockGroupType {
    if id == RootId::CHUNK_TREE { BlockGroupType::SYSTEM } else { BlockGroupType::METADATA }
}

fn level_number(level: usize) -> u8 {
    u8::try_from(level).expect("a shape has at most eight levels")
}
