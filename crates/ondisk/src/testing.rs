//! Tree blocks and a superblock made to measure, for the tests of this crate and for `fuzz/`, which takes this
//! file in as a module of its own.

use brindle_ondisk::item::{ChunkHeader, FileExtent, Stripe};
use brindle_ondisk::{
    ChecksumType, Generation, GenerationLimit, Item, ItemHeader, Key, KeyPtr, KeyType, Logical, Node,
    NodeExpectation, NodeHeader, ObjectId, RootId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock,
    TreeContext, Uuid,
};
use zerocopy::{FromZeros, IntoBytes};

/// Address of every block made here.
pub(crate) const AT: Logical = Logical::new(1 << 20);
/// The transaction that wrote it.
pub(crate) const TRANSID: u64 = 50;

/// A pool of 4 KiB blocks and CRC-32C.
pub(crate) fn context() -> TreeContext {
    TreeContext {
        nodesize: 4096,
        sectorsize: 4096,
        checksum_type: ChecksumType::Crc32c,
        tree_uuid: Uuid([7; 16]),
        seed_uuids: Vec::new(),
        max_generation: GenerationLimit::new(TRANSID + 1),
    }
}

/// The header of a block of that pool.
pub(crate) fn header(owner: RootId, level: u8) -> NodeHeader {
    let mut header = NodeHeader::new_zeroed();
    header.fsid = context().tree_uuid;
    header.bytenr = AT;
    header.flags.set(1 << 56 | NodeHeader::FLAG_WRITTEN);
    header.generation = Generation::new(TRANSID);
    header.owner = owner;
    header.level = level;
    header
}

/// Expectation of a reader that knows the address alone.
pub(crate) fn expectation() -> NodeExpectation {
    NodeExpectation { bytenr: AT, generation: None, level: None, first_key: None }
}

/// A leaf of these items, their data packed from the end; what does not fit is left out.
pub(crate) fn leaf(context: &TreeContext, mut header: NodeHeader, items: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; context.nodesize as usize];
    let body = &mut bytes[size_of::<NodeHeader>()..];
    let mut data_start = body.len();
    let mut slots = 0;
    for (key, data) in items {
        let slot = slots..slots + size_of::<ItemHeader>();
        if slot.end + data.len() > data_start {
            break;
        }
        data_start -= data.len();
        let mut item = ItemHeader::new_zeroed();
        item.key = *key;
        item.offset.set(u32::try_from(data_start).expect("a leaf is small"));
        item.size.set(u32::try_from(data.len()).expect("a leaf is small"));
        slots = slot.end;
        body[slot].copy_from_slice(item.as_bytes());
        body[data_start..data_start + data.len()].copy_from_slice(data);
        header.nritems += 1;
    }
    bytes[..size_of::<NodeHeader>()].copy_from_slice(header.as_bytes());
    seal(&mut bytes, context);
    bytes
}

/// A node with these children; what does not fit is left out.
pub(crate) fn node(context: &TreeContext, mut header: NodeHeader, children: &[KeyPtr]) -> Vec<u8> {
    let mut bytes = vec![0; context.nodesize as usize];
    let body = &mut bytes[size_of::<NodeHeader>()..];
    for (target, child) in body.chunks_exact_mut(size_of::<KeyPtr>()).zip(children) {
        target.copy_from_slice(child.as_bytes());
        header.nritems += 1;
    }
    bytes[..size_of::<NodeHeader>()].copy_from_slice(header.as_bytes());
    seal(&mut bytes, context);
    bytes
}

/// Gives a block its right checksum.
pub(crate) fn seal(block: &mut [u8], context: &TreeContext) {
    let sum = context.checksum_type.compute(&block[32..]);
    block[..32].fill(0);
    block[..sum.as_bytes().len()].copy_from_slice(sum.as_bytes());
}

/// Parses every item of a block that has passed, and every list in it to its end.
pub(crate) fn walk(node: &Node) {
    assert_eq!(node.items().len() + node.key_ptrs().len(), node.len(), "{node:?} has the slots it counts");
    for slot in 0..node.len() {
        let key = node.key(slot).expect("the slot is there");
        assert_eq!(node.search(&key), Ok(slot), "{key} is found where it stands");
        if node.is_leaf() {
            let (key, data) = node.item(slot).expect("its data lies in the leaf");
            let item = Item::parse(&key, data).unwrap_or_else(|defect| panic!("{key} has passed: {defect}"));
            walk_item(&key, &item);
        }
    }
}

fn walk_item(key: &Key, item: &Item<'_>) {
    let passed = "the tree checker has read the list to its end";
    match item {
        Item::InodeRef(names) => names.for_each(|name| assert!(!name.expect(passed).name.is_empty())),
        Item::InodeExtref(names) => names.for_each(|name| assert!(!name.expect(passed).name.is_empty())),
        Item::Xattr(entries) | Item::DirItem(entries) | Item::DirIndex(entries) => {
            entries.for_each(|entry| assert!(entry.expect(passed).file_type().is_some()));
        }
        Item::Extent(extent) => {
            let counts = extent.inline_refs.map(|reference| reference.expect(passed).count());
            assert!(counts.sum::<u64>() <= extent.header.refs.get(), "{key} counts its references");
        }
        Item::FileExtent(extent) => {
            let end = key.offset().checked_add(extent.length()).expect("no extent passes the end of a file");
            if let FileExtent::OnDisk { extent, .. } = extent {
                assert!(extent.num_bytes.get() > 0 && end > key.offset(), "{key} covers something");
                assert!(
                    extent.disk_bytenr.checked_add(extent.disk_num_bytes.get()).is_some()
                        || extent.disk_bytenr.get() == 0
                );
            }
        }
        Item::Chunk(chunk) => {
            assert!(key.offset().checked_add(chunk.header.length.get()).is_some());
            assert_eq!(chunk.stripes.len(), usize::from(chunk.header.num_stripes.get()));
            assert!(chunk.block_group_type().profile().is_some(), "{key} has one profile");
        }
        Item::BlockGroup(group) => assert!(group.block_group_type().profile().is_some()),
        Item::Root(root) => assert!(root.level <= 7 && root.drop_level <= 7),
        _ => {}
    }
    // Whatever is shown to people must not fail either.
    let _ = format!("{key} {item:?}");
}

/// The one stripe and the header of a chunk of 8 MiB.
pub(crate) fn chunk(chunk_type: u64) -> (ChunkHeader, Stripe) {
    let mut header = ChunkHeader::new_zeroed();
    header.length.set(8 << 20);
    header.owner = RootId::EXTENT_TREE;
    header.stripe_len.set(65536);
    header.chunk_type.set(chunk_type);
    header.sector_size.set(4096);
    header.num_stripes.set(1);
    header.sub_stripes.set(1);
    let mut stripe = Stripe::new_zeroed();
    stripe.devid = brindle_ondisk::DevId::new(1);
    stripe.offset = brindle_ondisk::Physical::new(1 << 20);
    (header, stripe)
}

/// The first superblock of a pool of one device.
pub(crate) fn superblock() -> Box<Superblock> {
    let mut superblock = Superblock::from_bytes(&[0; SUPERBLOCK_SIZE]);
    superblock.bytenr.set(SUPERBLOCK_OFFSETS[0]);
    superblock.magic = *b"_BHRfS_M";
    superblock.generation = Generation::new(TRANSID);
    superblock.root = AT;
    superblock.chunk_root = AT + 4096;
    superblock.total_bytes.set(1 << 30);
    superblock.bytes_used.set(1 << 20);
    superblock.num_devices.set(1);
    superblock.sectorsize.set(4096);
    superblock.nodesize.set(4096);
    superblock.leafsize.set(4096);
    superblock.stripesize.set(4096);
    superblock.dev_item.devid = brindle_ondisk::DevId::new(1);
    let (header, stripe) = chunk(2);
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, 1 << 20);
    let entry = [key.as_bytes(), header.as_bytes(), stripe.as_bytes()].concat();
    superblock.sys_chunk_array[..entry.len()].copy_from_slice(&entry);
    superblock.sys_chunk_array_size.set(u32::try_from(entry.len()).expect("an entry is small"));
    seal_superblock(&mut superblock);
    superblock
}

/// Gives a superblock its right checksum, if its algorithm is known.
pub(crate) fn seal_superblock(superblock: &mut Superblock) {
    if let Some(algorithm) = ChecksumType::from_disk(superblock.csum_type.get()) {
        let sum = superblock.compute_checksum(algorithm);
        superblock.csum = [0; 32];
        superblock.csum[..sum.as_bytes().len()].copy_from_slice(sum.as_bytes());
    }
}
