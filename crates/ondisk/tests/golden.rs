//! Blocks written by the kernel pass the gate: every tree block of every golden image, live or stale.

use brindle_ondisk::{
    Item, Node, NodeExpectation, NodeHeader, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, TreeContext,
};
use brindle_testing::golden::{Golden, SparseImage, names};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

#[test]
fn every_tree_block_that_the_kernel_wrote_passes() {
    let mut seen = BTreeSet::new();
    for name in names() {
        let golden = Golden::load(&name);
        // The parity of an odd number of tree blocks has their fsid and, CRC-32C being linear, a right checksum.
        let has_parity = name.starts_with("raid5") || name.starts_with("raid6");
        for image in &golden.devices {
            let context = TreeContext::new(&superblock(&name, image));
            for (offset, block) in tree_blocks(image, &context) {
                let header = NodeHeader::ref_from_prefix(&block).expect("a block has a header").0;
                let expected =
                    NodeExpectation { bytenr: header.bytenr, generation: None, level: None, first_key: None };
                match Node::check(block.into(), &context, &expected) {
                    Ok(node) => {
                        let items = (0..node.len()).filter_map(|slot| node.item(slot));
                        for (key, data) in items {
                            assert!(Item::parse(&key, data).is_ok(), "{name}: {key} has passed the gate");
                            seen.insert(key.item_type);
                        }
                    }
                    Err(refusal) => assert!(has_parity, "{name} {}: {offset:#x}: {refusal}", image.devid()),
                }
            }
        }
    }
    assert!(seen.len() >= 25, "the images have most kinds of items: {seen:?}");
}

fn superblock(name: &str, image: &SparseImage) -> Box<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let offset = SUPERBLOCK_OFFSETS[0];
    image.read_at(offset, &mut bytes).expect("there is room for a superblock");
    let superblock = Superblock::parse(&bytes, offset);
    superblock.unwrap_or_else(|refusal| panic!("{name} {}: {refusal}", image.devid()))
}

/// Blocks with the pool's UUID and a right checksum, and the written flag: mkfs leaves behind blocks of a makeshift
/// filesystem, which lack it. A superblock looks like a tree block of its size.
fn tree_blocks<'a>(
    image: &'a SparseImage,
    context: &'a TreeContext,
) -> impl Iterator<Item = (u64, Vec<u8>)> + 'a {
    let candidates = image.blocks().filter(|(offset, block)| {
        let header = NodeHeader::ref_from_prefix(&block[..]).expect("a block has a header").0;
        header.is_written() && header.fsid == context.tree_uuid && !SUPERBLOCK_OFFSETS.contains(offset)
    });
    candidates.filter_map(|(offset, _)| {
        let mut bytes = vec![0; usize::try_from(context.nodesize).expect("32 bits fit")];
        image.read_at(offset, &mut bytes).ok()?;
        let stored = NodeHeader::ref_from_prefix(&bytes).expect("a block has a header").0.csum;
        context.checksum_type.matches(&bytes[32..], &stored).then_some((offset, bytes))
    })
}
