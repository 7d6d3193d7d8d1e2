//! Damage on purpose: a pool in memory whose tree blocks, superblocks and data are changed on every copy, the
//! checksum made right again afterwards, so that what is to be refused must be refused for what it says.
//!
//! ```
//! use brindle_ondisk::{Key, KeyType, ObjectId, RootId, item::InodeItem};
//! use brindle_testing::damage::Victim;
//!
//! let mut victim = Victim::load("node-4k");
//! let root_directory = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
//! victim.edit_item(RootId::FS_TREE, &root_directory, |inode: &mut InodeItem| inode.nlink.set(7));
//! victim.edit_superblocks(|superblock| superblock.total_bytes.set(0));
//! let devices = victim.devices(); // to be opened
//! ```
//!
//! The pool is walked once, while it is healthy; what is found then stays known whatever is damaged later.

mod block;
mod place;
mod script;

use crate::golden::{Golden, SparseImage};
use brindle_device::Device;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{
    ChecksumType, Generation, Item, Key, KeyType, Logical, ObjectId, RootId, SUPERBLOCK_OFFSETS,
    SUPERBLOCK_SIZE, Superblock, to_u64, to_usize,
};
use std::collections::HashSet;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use block::{LeafItem, header, header_mut, pointers_mut, slots_mut};
use place::ChunkPlace;
pub use place::Place;

/// A pool to be damaged. A clone is cheap, and shares what neither has damaged since.
#[derive(Clone, Debug)]
pub struct Victim {
    images: Vec<SparseImage>,
    superblock: Arc<Superblock>,
    chunks: Arc<[ChunkPlace]>,
    blocks: Arc<[TreeBlock]>,
}

/// A tree block of the healthy pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeBlock {
    /// Address.
    pub at: Logical,
    /// The tree in which the walk came upon it first; a block that snapshots share is listed once.
    pub tree: RootId,
    /// 0 for a leaf.
    pub level: u8,
    /// The node that points to it; `None` for a root.
    pub parent: Option<Logical>,
}

impl Victim {
    /// A golden image, healthy.
    ///
    /// # Panics
    /// If there is no such image.
    #[must_use]
    pub fn load(name: &str) -> Self {
        Self::new(&Golden::load(name))
    }

    /// A healthy pool.
    ///
    /// # Panics
    /// If it is not healthy.
    #[must_use]
    pub fn new(golden: &Golden) -> Self {
        let images = golden.devices.clone();
        let newest = images.iter().map(|image| superblock_at(image, SUPERBLOCK_OFFSETS[0]));
        let newest = newest.max_by_key(|superblock| superblock.generation);
        let superblock: Arc<Superblock> = Arc::from(newest.expect("a pool has a device"));
        let chunks = superblock.system_chunks().map(|chunk| chunk.expect("the array is healthy"));
        let chunks = chunks.map(|(key, chunk)| ChunkPlace::new(Logical::new(key.offset()), &chunk)).collect();
        let mut victim = Self { images, superblock: Arc::clone(&superblock), chunks, blocks: Arc::new([]) };
        let mut walk = Walk { victim: &victim, seen: HashSet::new(), blocks: Vec::new() };
        walk.add(RootId::CHUNK_TREE, superblock.chunk_root);
        let leaves = walk.blocks.into_iter().filter(|block| block.level == 0);
        let items = leaves.flat_map(|leaf| victim.leaf_items(leaf.at));
        let chunks = items.filter_map(|item| match Item::parse(&item.key, &item.data) {
            Ok(Item::Chunk(chunk)) => Some(ChunkPlace::new(Logical::new(item.key.offset()), &chunk)),
            _ => None,
        });
        victim.chunks = chunks.collect();
        victim.blocks = victim.walk().into();
        victim
    }

    fn walk(&self) -> Vec<TreeBlock> {
        let mut walk = Walk { victim: self, seen: HashSet::new(), blocks: Vec::new() };
        walk.add(RootId::CHUNK_TREE, self.superblock.chunk_root);
        walk.add(RootId::ROOT_TREE, self.superblock.root);
        walk.add_roots_of(RootId::ROOT_TREE);
        if self.superblock.log_root.get() != 0 {
            walk.add(RootId::TREE_LOG, self.superblock.log_root);
            walk.add_roots_of(RootId::TREE_LOG);
        }
        walk.blocks
    }

    /// The devices as they are now, to be opened.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.images.iter().map(|image| Arc::new(image.clone()) as Arc<dyn Device>).collect()
    }

    /// The devices as they are now, by ascending devid.
    #[must_use]
    pub fn images(&self) -> &[SparseImage] {
        &self.images
    }

    /// The devices, to be changed in ways that nothing here offers.
    pub fn images_mut(&mut self) -> &mut [SparseImage] {
        &mut self.images
    }

    /// The superblock of the healthy pool.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Every tree block of the healthy pool, log trees included, parents before their children.
    #[must_use]
    pub fn blocks(&self) -> &[TreeBlock] {
        &self.blocks
    }

    /// The leaves of one tree of the healthy pool, in order.
    pub fn leaves(&self, tree: RootId) -> impl Iterator<Item = TreeBlock> {
        self.blocks.iter().copied().filter(move |block| block.tree == tree && block.level == 0)
    }

    /// Every place that holds an address; with parity, the one that holds it as it is.
    ///
    /// # Panics
    /// If no chunk of the healthy pool holds it.
    #[must_use]
    pub fn copies(&self, logical: Logical) -> Vec<Place> {
        self.chunk(logical).copies(logical)
    }

    /// The bytes of the first copy of a range, as they are now.
    ///
    /// # Panics
    /// If no chunk holds it.
    #[must_use]
    pub fn read(&self, logical: Logical, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.for_each_piece(logical, length, |range, places| {
            let image = self.image(places[0].devid).expect("the pool has the device");
            image.read_at(places[0].physical, &mut bytes[range]).expect("the chunk lies on the device");
        });
        bytes
    }

    /// Puts bytes at an address, on every copy. Parity is left as it is.
    ///
    /// # Panics
    /// If no chunk holds the range.
    pub fn write(&mut self, logical: Logical, bytes: &[u8]) {
        let mut writes = Vec::new();
        self.for_each_piece(logical, bytes.len(), |range, places| {
            writes.extend(places.into_iter().map(|place| (place, range.clone())));
        });
        for (place, range) in writes {
            if let Some(image) = self.images.iter_mut().find(|image| image.devid() == place.devid) {
                image.write_at(place.physical, &bytes[range]).expect("the chunk lies on the device");
            }
        }
    }

    /// The bytes of a tree block, as they are now.
    ///
    /// # Panics
    /// If no chunk holds it.
    #[must_use]
    pub fn block(&self, at: Logical) -> Vec<u8> {
        self.read(at, to_usize(self.superblock.nodesize.get().into()))
    }

    /// Changes a tree block on every copy; its checksum is right afterwards.
    ///
    /// # Panics
    /// If no chunk holds it, or one with parity, which would give the old block back.
    pub fn edit_block(&mut self, at: Logical, edit: impl FnOnce(&mut [u8])) {
        let algorithm = self.algorithm();
        self.edit_block_raw(at, |bytes| {
            edit(bytes);
            block::seal(bytes, algorithm);
        });
    }

    /// Changes a tree block on every copy, and leaves its checksum as it is.
    ///
    /// # Panics
    /// If no chunk holds it, or one with parity, which would give the old block back.
    pub fn edit_block_raw(&mut self, at: Logical, edit: impl FnOnce(&mut [u8])) {
        assert!(!self.chunk(at).has_parity(), "parity would give the old block back");
        let mut bytes = self.block(at);
        edit(&mut bytes);
        self.write(at, &bytes);
    }

    /// Changes the items of a leaf; they are packed anew, in the order given.
    ///
    /// # Panics
    /// If they don't fit, and where [`Self::edit_block`] does.
    pub fn edit_leaf(&mut self, at: Logical, edit: impl FnOnce(&mut Vec<LeafItem>)) {
        self.edit_block(at, |bytes| {
            let mut items = block::items(bytes);
            edit(&mut items);
            block::set_items(bytes, &items);
        });
    }

    /// The items of a leaf, as they are now.
    #[must_use]
    pub fn leaf_items(&self, at: Logical) -> Vec<LeafItem> {
        block::items(&self.block(at))
    }

    /// The first item of a tree that is looked for, and the leaf that holds it.
    pub fn find_item(
        &self,
        tree: RootId,
        mut is_wanted: impl FnMut(&LeafItem) -> bool,
    ) -> Option<(Logical, LeafItem)> {
        self.leaves(tree).find_map(|leaf| {
            let found = self.leaf_items(leaf.at).into_iter().find(&mut is_wanted);
            found.map(|item| (leaf.at, item))
        })
    }

    /// Changes the data of an item, which may become longer or shorter.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn edit_item_bytes(&mut self, tree: RootId, key: &Key, edit: impl FnOnce(&mut Vec<u8>)) {
        let found = self.find_item(tree, |item| item.key == *key);
        let (leaf, _) = found.unwrap_or_else(|| panic!("tree {tree} has no item {key}"));
        self.edit_leaf(leaf, |items| {
            let item = items.iter_mut().find(|item| item.key == *key);
            edit(&mut item.expect("it has just been found").data);
        });
    }

    /// Changes the structure that an item begins with.
    ///
    /// # Panics
    /// If there is no such item, or it is too short.
    pub fn edit_item<T>(&mut self, tree: RootId, key: &Key, edit: impl FnOnce(&mut T))
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        self.edit_item_at(tree, key, 0, edit);
    }

    /// Changes the structure that lies at an offset of an item's data.
    ///
    /// # Panics
    /// If there is no such item, or it is too short.
    pub fn edit_item_at<T>(&mut self, tree: RootId, key: &Key, offset: usize, edit: impl FnOnce(&mut T))
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        self.edit_item_bytes(tree, key, |data| {
            let bytes = &mut data[offset..offset + size_of::<T>()];
            let mut structure = T::read_from_bytes(bytes).expect("the length is right");
            edit(&mut structure);
            bytes.copy_from_slice(structure.as_bytes());
        });
    }

    /// Changes the root item of a tree.
    ///
    /// # Panics
    /// If there is none.
    pub fn edit_root_item(&mut self, tree: RootId, edit: impl FnOnce(&mut RootItem)) {
        let is_it = |item: &LeafItem| {
            (item.key.objectid, item.key.item_type) == (tree.object_id(), KeyType::ROOT_ITEM)
        };
        let found = self.find_item(RootId::ROOT_TREE, is_it);
        let (_, item) = found.unwrap_or_else(|| panic!("there is no tree {tree}"));
        self.edit_item(RootId::ROOT_TREE, &item.key, edit);
    }

    /// Changes every copy of the superblock on every device; the checksums are right afterwards.
    pub fn edit_superblocks(&mut self, mut edit: impl FnMut(&mut Superblock)) {
        for image in &mut self.images {
            edit_superblocks_of(image, &mut edit);
        }
    }

    /// Keeps the first block of the tree of roots as that of the commit before, by a backup root. `free` is an address that no
    /// extent has. Returns that commit.
    ///
    /// # Panics
    /// Those of [`Self::edit_block`].
    pub fn back_up_roots(&mut self, free: Logical) -> Generation {
        let (root, level) = (self.superblock.root, self.superblock.root_level);
        let generation = Generation::new(self.superblock.generation.get() - 1);
        let bytes = self.block(root);
        self.write(free, &bytes);
        self.edit_block(free, |bytes| {
            let header = header_mut(bytes);
            (header.bytenr, header.generation) = (free, generation);
        });
        self.edit_superblocks(|superblock| {
            let backup = &mut superblock.super_roots[0];
            (backup.tree_root, backup.tree_root_gen, backup.tree_root_level) = (free, generation, level);
        });
        generation
    }

    /// Changes every copy of the superblock on one device; the checksums are right afterwards.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn edit_superblocks_of(&mut self, devid: u64, mut edit: impl FnMut(&mut Superblock)) {
        let image = self.images.iter_mut().find(|image| image.devid() == devid);
        edit_superblocks_of(image.expect("the pool has the device"), &mut edit);
    }

    /// Changes the sector of data at an address on every copy, and its stored checksum with it.
    ///
    /// # Panics
    /// If it has no checksum.
    pub fn edit_data(&mut self, sector: Logical, edit: impl FnOnce(&mut [u8])) {
        let sectorsize = to_usize(self.superblock.sectorsize.get().into());
        let mut bytes = self.read(sector, sectorsize);
        edit(&mut bytes);
        self.write(sector, &bytes);
        let algorithm = self.algorithm();
        let sum = algorithm.compute(&bytes);
        self.edit_data_checksum(sector, |stored| stored.copy_from_slice(sum.as_bytes()));
    }

    /// Changes the sector of data at an address on every copy, and leaves its stored checksum as it is.
    pub fn edit_data_raw(&mut self, sector: Logical, edit: impl FnOnce(&mut [u8])) {
        let sectorsize = to_usize(self.superblock.sectorsize.get().into());
        let mut bytes = self.read(sector, sectorsize);
        edit(&mut bytes);
        self.write(sector, &bytes);
    }

    /// Changes the stored checksum of the sector of data at an address.
    ///
    /// # Panics
    /// If it has none.
    pub fn edit_data_checksum(&mut self, sector: Logical, edit: impl FnOnce(&mut [u8])) {
        let size = self.algorithm().size();
        let sectorsize = u64::from(self.superblock.sectorsize.get());
        let index_in = |item: &LeafItem| {
            let is_checksum = item.key.objectid == ObjectId::EXTENT_CSUM;
            let behind = sector.distance_from(Logical::new(item.key.offset())).filter(|_| is_checksum)?;
            let index = to_usize(behind / sectorsize) * size;
            (index < item.data.len()).then_some(index)
        };
        let found = self.find_item(RootId::CSUM_TREE, |item| index_in(item).is_some());
        let (_, item) = found.unwrap_or_else(|| panic!("the sector at logical {sector} has no checksum"));
        let index = index_in(&item).expect("it has just been found");
        self.edit_item_bytes(RootId::CSUM_TREE, &item.key, |data| edit(&mut data[index..index + size]));
    }

    fn algorithm(&self) -> ChecksumType {
        self.superblock.checksum_type()
    }

    fn image(&self, devid: u64) -> Option<&SparseImage> {
        self.images.iter().find(|image| image.devid() == devid)
    }

    fn chunk(&self, logical: Logical) -> &ChunkPlace {
        let found = self.chunks.iter().find(|chunk| chunk.holds(logical));
        found.unwrap_or_else(|| panic!("no chunk holds logical {logical}"))
    }

    /// Cuts a range where its places do not follow each other.
    fn for_each_piece(
        &self,
        logical: Logical,
        length: usize,
        mut act: impl FnMut(std::ops::Range<usize>, Vec<Place>),
    ) {
        let mut done = 0;
        while done < length {
            let at = logical + to_u64(done);
            let chunk = self.chunk(at);
            let end = length.min(done.saturating_add(to_usize(chunk.contiguous(at))));
            act(done..end, chunk.copies(at));
            done = end;
        }
    }
}

/// A walk through trees that are healthy.
struct Walk<'a> {
    victim: &'a Victim,
    seen: HashSet<Logical>,
    blocks: Vec<TreeBlock>,
}

impl Walk<'_> {
    fn add(&mut self, tree: RootId, root: Logical) {
        self.visit(tree, root, None);
    }

    fn visit(&mut self, tree: RootId, at: Logical, parent: Option<Logical>) {
        if !self.seen.insert(at) {
            return;
        }
        let bytes = self.victim.block(at);
        self.blocks.push(TreeBlock { at, tree, level: header(&bytes).level, parent });
        for pointer in block::pointers(&bytes) {
            self.visit(tree, pointer.blockptr, Some(at));
        }
    }

    /// Adds every tree that has a root item in another.
    fn add_roots_of(&mut self, tree: RootId) {
        let leaves: Vec<Logical> =
            self.blocks.iter().filter(|b| b.tree == tree && b.level == 0).map(|block| block.at).collect();
        for item in leaves.into_iter().flat_map(|leaf| self.victim.leaf_items(leaf)) {
            if let Ok(Item::Root(root)) = Item::parse(&item.key, &item.data) {
                let id = if tree == RootId::TREE_LOG { tree } else { RootId::new(item.key.objectid.get()) };
                self.add(id, root.bytenr);
            }
        }
    }
}

fn superblock_at(image: &SparseImage, offset: u64) -> Box<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    image.read_at(offset, &mut bytes).expect("the device has room for a superblock");
    Superblock::from_bytes(&bytes)
}

fn edit_superblocks_of(image: &mut SparseImage, edit: &mut impl FnMut(&mut Superblock)) {
    let size_bytes = image.size_bytes();
    let fits = |offset: &u64| offset + to_u64(SUPERBLOCK_SIZE) <= size_bytes;
    for offset in SUPERBLOCK_OFFSETS.into_iter().filter(fits) {
        let mut superblock = superblock_at(image, offset);
        edit(&mut superblock);
        let sum = superblock.compute_checksum(superblock.checksum_type());
        superblock.csum = [0; 32];
        superblock.csum[..sum.as_bytes().len()].copy_from_slice(sum.as_bytes());
        image.write_at(offset, superblock.as_bytes()).expect("it has just been read from there");
    }
}

#[cfg(test)]
mod tests;
