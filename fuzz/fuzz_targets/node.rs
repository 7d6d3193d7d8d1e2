//! A tree block of any bytes. What would end every check at once (checksum, address, pool, the flag) is put
//! right; with the lowest bit of the first byte set the item headers are too, so that the bytes behind them
//! are read as items. Whatever passes is read to the end.
//!
//! An input is: one byte of options, then the block from its generation on (header, slots, data).

#![no_main]

use brindle_ondisk::{ItemHeader, Node, NodeHeader, TreeContext};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

#[path = "../../crates/ondisk/src/testing.rs"]
#[allow(dead_code, reason = "shared with tests, which use more of it than a target does")]
mod testing;

/// Offset of the generation in the header.
const GENERATION: usize = 80;

fuzz_target!(|data: &[u8]| {
    let Some((options, body)) = data.split_first() else { return };
    let mut context = testing::context();
    context.nodesize = if options & 2 == 0 { 4096 } else { 16384 };
    // Blocks of real pools have generations of their own.
    context.max_generation.raise(1 << 20);
    let nodesize = context.nodesize as usize;
    let mut block = vec![0; nodesize];
    block.iter_mut().skip(GENERATION).zip(body).for_each(|(target, source)| *target = *source);
    let (header, _) = NodeHeader::mut_from_prefix(&mut block).expect("a block has a header");
    let good = testing::header(header.owner, header.level & 7);
    header.fsid = good.fsid;
    header.bytenr = good.bytenr;
    header.flags = good.flags;
    header.level = good.level;
    if options & 1 != 0 && header.level == 0 {
        mend_slots(&mut block);
    }
    testing::seal(&mut block, &context);
    check(block, &context);
});

/// Makes the item headers agree with each other: sizes as they are, modulo what room is left.
fn mend_slots(block: &mut [u8]) {
    let (header, body) = NodeHeader::mut_from_prefix(block).expect("a block has a header");
    let wanted = header.nritems.get() as usize % 32;
    let mut end = body.len();
    let mut count = 0;
    let slots = wanted * size_of::<ItemHeader>();
    for slot in 0..wanted {
        let at = slot * size_of::<ItemHeader>();
        let (item, _) = ItemHeader::mut_from_prefix(&mut body[at..]).expect("32 slots fit");
        let room = (end - slots).min(1024);
        let size = if room == 0 { 0 } else { item.size.get() as usize % (room + 1) };
        end -= size;
        item.offset.set(end as u32);
        item.size.set(size as u32);
        count += 1;
    }
    header.nritems.set(count);
}

fn check(block: Vec<u8>, context: &TreeContext) {
    match Node::check(block.into(), context, &testing::expectation()) {
        Ok(node) => testing::walk(&node),
        Err(refusal) => drop(refusal.to_string()),
    }
}
