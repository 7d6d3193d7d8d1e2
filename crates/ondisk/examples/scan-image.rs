//! Finds every tree block of an image, live or stale, by its checksum, and runs the tree checker on it.
//!
//! `cargo run --example scan-image -- IMAGE...`; fails if the checker refuses a block.

use brindle_ondisk::{
    Item, Node, NodeExpectation, NodeHeader, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, TreeContext,
    to_usize,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use zerocopy::FromBytes;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut is_clean = true;
    for path in std::env::args().skip(1) {
        let image = std::fs::read(&path)?;
        let superblock = image.get(65536..65536 + SUPERBLOCK_SIZE).ok_or("no room for a superblock")?;
        let superblock = match Superblock::parse(superblock.try_into()?, 65536) {
            Ok(superblock) => superblock,
            Err(refusal) => {
                println!("{path}: {refusal}");
                is_clean = false;
                continue;
            }
        };
        let (blocks, kinds, refusals) = scan(&image, &TreeContext::new(&superblock));
        println!("{path}: {blocks} blocks, {} refused, items {kinds:?}", refusals.len());
        refusals.iter().for_each(|refusal| println!("  {refusal}"));
        is_clean &= refusals.is_empty();
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn scan(image: &[u8], context: &TreeContext) -> (usize, BTreeMap<String, usize>, Vec<String>) {
    let nodesize = usize::try_from(context.nodesize).expect("32 bits fit");
    let superblocks = SUPERBLOCK_OFFSETS.map(to_usize);
    let (mut blocks, mut kinds, mut refusals) = (0, BTreeMap::new(), Vec::new());
    // A superblock passes for a tree block of its size.
    for offset in (0..image.len()).step_by(4096).filter(|offset| !superblocks.contains(offset)) {
        let Some(bytes) = image.get(offset..offset + nodesize) else { break };
        let Ok((header, _)) = NodeHeader::ref_from_prefix(bytes) else { break };
        // mkfs leaves behind blocks of a makeshift filesystem, without the flag.
        if !header.is_written()
            || header.fsid != context.tree_uuid
            || !context.checksum_type.matches(&bytes[32..], &header.csum)
        {
            continue;
        }
        blocks += 1;
        let expected =
            NodeExpectation { bytenr: header.bytenr, generation: None, level: None, first_key: None };
        match Node::check(bytes.into(), context, &expected) {
            Ok(node) => {
                for (key, data) in (0..node.len()).filter_map(|slot| node.item(slot)) {
                    *kinds.entry(key.item_type.to_string()).or_default() += 1;
                    assert!(Item::parse(&key, data).is_ok(), "{key} has passed the checker");
                }
            }
            Err(refusal) => refusals.push(format!("{offset:#x}: {refusal}")),
        }
    }
    (blocks, kinds, refusals)
}
