//! The tree checker: the one gate between hostile bytes and the rest of brindle.
//!
//! It looks at every field of a block, first the header (is this the block that was looked for?), then the
//! shape (slots in order, items within the block), then every item by its type. What it lets pass, the code
//! behind it trusts: counts fit, offsets lie inside, lengths add up, enumerations have known values.
//! What can be judged only with other blocks at hand (does the extent exist, is the name in the directory)
//! is the business of `brindle check`.

mod chunk;
mod data;
mod device;
mod directory;
mod extent;
mod file_extent;
mod gate;
mod inode;
mod name;
mod root;
#[cfg(test)]
mod tests;

pub(crate) use chunk::check_chunk;

use crate::node::NodeProblem;
use crate::{
    ChecksumType, Defect, Generation, Item, Key, KeyType, MAX_LEVEL, Node, NodeExpectation, NodeHeader,
    RootId, Superblock, Uuid, to_u64, to_usize,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Superblock fields that decide how a tree block must look.
#[derive(Clone, Debug)]
pub struct TreeContext {
    /// The size of a tree block, in bytes.
    pub nodesize: u32,
    /// The least unit of data, in bytes.
    pub sectorsize: u32,
    /// Checksum algorithm.
    pub checksum_type: ChecksumType,
    /// UUID that every tree block of the pool's own carries.
    pub tree_uuid: Uuid,
    /// UUIDs that blocks may carry instead: those of the seeds that the pool grew from.
    pub seed_uuids: Vec<Uuid>,
    /// The greatest generation that any block can have: the running transaction's. A commit raises it.
    pub max_generation: GenerationLimit,
}

/// The greatest generation that any block can have; it moves on while others read it. Clones are one limit.
#[derive(Clone, Debug)]
pub struct GenerationLimit(Arc<AtomicU64>);

impl GenerationLimit {
    /// A limit to begin with.
    pub fn new(generation: u64) -> Self {
        Self(Arc::new(AtomicU64::new(generation)))
    }

    /// The limit of now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Moves the limit on; it never goes back.
    pub fn raise(&self, generation: u64) {
        self.0.fetch_max(generation, Relaxed);
    }
}

impl TreeContext {
    /// The context of a pool.
    pub fn new(superblock: &Superblock) -> Self {
        Self {
            nodesize: superblock.nodesize.get(),
            sectorsize: superblock.sectorsize.get(),
            checksum_type: superblock.checksum_type(),
            tree_uuid: superblock.tree_uuid(),
            seed_uuids: Vec::new(),
            // A log tree is written in the transaction that the superblock has yet to see.
            max_generation: GenerationLimit::new(superblock.generation.get().saturating_add(1)),
        }
    }
}

/// Checks that this is the block that was looked for.
fn check_header(
    header: &NodeHeader,
    context: &TreeContext,
    expected: &NodeExpectation,
) -> Result<(), NodeProblem> {
    check_identity(header, context, expected).map_err(NodeProblem::Header)?;
    let found = header.generation.get();
    let defect = match expected.generation {
        Some(generation) if generation != header.generation => {
            Defect::expected("generation differs from its parent's word", generation.get(), found)
        }
        None if found > context.max_generation.get() => {
            Defect::expected("generation lies in the future", context.max_generation.get(), found)
        }
        _ => return Ok(()),
    };
    Err(NodeProblem::Generation(defect))
}

fn check_identity(
    header: &NodeHeader,
    context: &TreeContext,
    expected: &NodeExpectation,
) -> Result<(), Defect> {
    if header.bytenr != expected.bytenr {
        let (expected, found) = (expected.bytenr.get(), header.bytenr.get());
        return Err(Defect::expected("bytenr is that of another block", expected, found));
    }
    if header.fsid != context.tree_uuid && !context.seed_uuids.contains(&header.fsid) {
        let half = |uuid: Uuid| u64::from_be_bytes(uuid.0.first_chunk().copied().unwrap_or_default());
        return Err(Defect::expected(
            "fsid is that of another pool",
            half(context.tree_uuid),
            half(header.fsid),
        ));
    }
    if header.level > MAX_LEVEL {
        return Err(Defect::expected("level too high", MAX_LEVEL.into(), header.level.into()));
    }
    if !header.is_written() {
        return Err(Defect::new("header lacks the flag that it was written", header.flags.get()));
    }
    if let Some(level) = expected.level.filter(|level| *level != header.level) {
        return Err(Defect::expected(
            "level differs from its parent's word",
            level.into(),
            header.level.into(),
        ));
    }
    Ok(())
}

/// Checks that the first key is the one that the parent has for this block.
fn check_first_key(node: &Node, expected: &NodeExpectation) -> Result<(), NodeProblem> {
    match (expected.first_key, node.key(0)) {
        (Some(expected), Some(found)) if expected != found => {
            let defect = Defect::expected(
                "first key differs from its parent's word (objectids shown)",
                expected.objectid.get(),
                found.objectid.get(),
            );
            Err(NodeProblem::Slot { slot: 0, key: found, defect, leaf: node.is_leaf() })
        }
        (Some(_), None) => Err(NodeProblem::Header(Defect::new("block below a node is empty", 0))),
        _ => Ok(()),
    }
}

/// Checks everything after the header against the format.
fn check_body(node: &Node, context: &TreeContext) -> Result<(), NodeProblem> {
    if node.is_leaf() { check_leaf(node, context) } else { check_node(node, context) }
}

fn check_node(node: &Node, context: &TreeContext) -> Result<(), NodeProblem> {
    let room = to_usize(context.nodesize.into()) - size_of::<NodeHeader>();
    check_count(node, room / size_of::<crate::KeyPtr>(), 1)?;
    let mut previous: Option<Key> = None;
    for (slot, pointer) in node.key_ptrs().iter().enumerate() {
        let refuse = |defect| NodeProblem::Slot { slot, key: pointer.key, defect, leaf: false };
        if pointer.blockptr.get() == 0 {
            return Err(refuse(Defect::new("blockptr is null", 0)));
        }
        if !pointer.blockptr.is_aligned(context.sectorsize.into()) {
            return Err(refuse(Defect::new("blockptr is not aligned", pointer.blockptr.get())));
        }
        // A transaction that writes a child writes its parent too.
        if pointer.generation > node.generation() {
            let (bound, found) = (node.generation().get(), pointer.generation.get());
            return Err(refuse(Defect::expected("child is younger than its parent", bound, found)));
        }
        check_order(previous, pointer.key).map_err(refuse)?;
        previous = Some(pointer.key);
    }
    Ok(())
}

fn check_leaf(node: &Node, context: &TreeContext) -> Result<(), NodeProblem> {
    let room = to_usize(context.nodesize.into()) - size_of::<NodeHeader>();
    check_count(node, room / size_of::<crate::ItemHeader>(), least_items(node.header()))?;
    let slots_end = to_u64(node.len() * size_of::<crate::ItemHeader>());
    let mut data_start = to_u64(room);
    let mut previous: Option<Key> = None;
    for (slot, item) in node.items().iter().enumerate() {
        let refuse = |defect| NodeProblem::Slot { slot, key: item.key, defect, leaf: true };
        check_order(previous, item.key).map_err(refuse)?;
        let (offset, size) = (u64::from(item.offset.get()), u64::from(item.size.get()));
        if offset + size != data_start {
            let defect = Defect::expected("end of item data", data_start, offset + size);
            return Err(refuse(defect));
        }
        if offset < slots_end {
            return Err(refuse(Defect::expected("item data lies over the slots", slots_end, offset)));
        }
        let data = node.item_data(item).unwrap_or_default();
        check_item(ItemPlace { node, slot, context }, &item.key, data).map_err(refuse)?;
        data_start = offset;
        previous = Some(item.key);
    }
    Ok(())
}

/// 1 for a leaf of a tree that always holds something. A relocation tree goes by the name of the tree that it
/// stands in for, and may be empty.
fn least_items(header: &NodeHeader) -> usize {
    const NEVER_EMPTY: [RootId; 7] = [
        RootId::new(0),
        RootId::ROOT_TREE,
        RootId::CHUNK_TREE,
        RootId::DEV_TREE,
        RootId::FS_TREE,
        RootId::DATA_RELOC_TREE,
        RootId::EXTENT_TREE,
    ];
    usize::from(NEVER_EMPTY.contains(&header.owner) && !header.is_relocation())
}

fn check_count(node: &Node, most: usize, least: usize) -> Result<(), NodeProblem> {
    let count = node.len();
    if count > most {
        let defect = Defect::expected("more slots than fit", to_u64(most), to_u64(count));
        return Err(NodeProblem::Header(defect));
    }
    if count < least {
        return Err(NodeProblem::Header(Defect::new("block of a tree that is never empty is empty", 0)));
    }
    Ok(())
}

fn check_order(previous: Option<Key>, key: Key) -> Result<(), Defect> {
    match previous {
        Some(previous) if previous >= key => Err(Defect::new(
            "keys are not in ascending order (previous objectid shown)",
            previous.objectid.get(),
        )),
        _ => Ok(()),
    }
}

/// Location of an item, for the checks that need it.
#[derive(Clone, Copy)]
struct ItemPlace<'a> {
    /// The leaf.
    node: &'a Node,
    /// The slot.
    slot: usize,
    /// The pool.
    context: &'a TreeContext,
}

impl<'a> ItemPlace<'a> {
    fn sectorsize(&self) -> u64 {
        self.context.sectorsize.into()
    }

    /// The item before, which has passed.
    fn previous(&self) -> Option<(Key, &'a [u8])> {
        self.node.item(self.slot.checked_sub(1)?)
    }

    /// The item before, if it has the same type.
    fn previous_of_type(&self, item_type: KeyType) -> Option<(Key, &'a [u8])> {
        self.previous().filter(|(key, _)| key.item_type == item_type)
    }

    /// Returns true if a transaction has not happened yet. An item is no younger than its leaf, and the leaf's own
    /// generation is vouched for by its parent.
    fn is_future(&self, generation: Generation) -> bool {
        generation.get() > self.context.max_generation.get() && generation > self.node.generation()
    }

    /// Returns true if an extent can begin at this address.
    fn is_aligned(&self, address: u64) -> bool {
        address % self.sectorsize() == 0
    }

    /// The end of what begins at `start`, if both are multiples of the sectorsize, there is something between
    /// them, and the sum does not wrap.
    fn sectors_end(&self, start: u64, length: u64) -> Option<u64> {
        let is_whole = length > 0 && self.is_aligned(start) && self.is_aligned(length);
        start.checked_add(length).filter(|_| is_whole)
    }
}

fn check_item(place: ItemPlace<'_>, key: &Key, data: &[u8]) -> Result<(), Defect> {
    match Item::parse(key, data)? {
        Item::Inode(inode) => inode::check_inode(place, key, inode),
        Item::InodeRef(names) => inode::check_refs(place, key, names),
        Item::InodeExtref(names) => inode::check_extrefs(place, key, names),
        Item::Orphan => inode::check_orphan(key),
        Item::Xattr(entries) => directory::check_xattrs(place, key, entries),
        Item::DirItem(entries) => directory::check_dir_item(place, key, entries),
        Item::DirIndex(entries) => directory::check_dir_index(place, key, entries),
        Item::DirLog(range) => directory::check_log_range(key, range),
        Item::FileExtent(extent) => file_extent::check_file_extent(place, key, &extent),
        Item::Csums(sums) => data::check_csums(place, key, sums),
        Item::Root(root) => root::check_root(place, key, &root),
        Item::RootRef(link) => root::check_root_ref(key, &link),
        Item::Extent(extent) => extent::check_extent(place, key, &extent),
        Item::ExtentRef(reference) => extent::check_keyed_ref(place, key, &reference),
        Item::BlockGroup(group) => device::check_block_group(place, key, group),
        Item::DevExtent(extent) => device::check_dev_extent(place, key, extent),
        Item::Device(device) => device::check_device(key, device),
        Item::Chunk(chunk) => chunk::check_chunk_item(place, key, &chunk),
        Item::DevReplace(state) => device::check_replace(state),
        Item::FreeSpaceInfo(info) => data::check_free_space_info(place, key, info),
        Item::FreeSpaceExtent => data::check_free_range(place, key),
        Item::FreeSpaceBitmap(bitmap) => data::check_bitmap(place, key, bitmap),
        // Parsing has seen to their size; they hold counters, or bytes for people and later readers.
        Item::VerityDescSize(_)
        | Item::VerityDesc(_)
        | Item::VerityMerkle(_)
        | Item::QgroupStatus(_)
        | Item::QgroupInfo(_)
        | Item::QgroupLimit(_)
        | Item::QgroupRelation
        | Item::Balance(_)
        | Item::DevStats(_)
        | Item::PoolSettings(_)
        | Item::WriteBack(_)
        | Item::LogSettings(_)
        | Item::SuperblockAges(_)
        | Item::DeviceClasses(_)
        | Item::UuidSubvolumes(_)
        | Item::FreeSpaceHeader(_)
        | Item::String(_)
        | Item::Unknown(_) => Ok(()),
    }
}
