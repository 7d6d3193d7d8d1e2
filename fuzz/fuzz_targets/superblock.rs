//! A superblock of any bytes, its checksum put right: parsed, and asked everything it can be asked.

#![no_main]

use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, TreeContext};
use libfuzzer_sys::fuzz_target;
use zerocopy::IntoBytes;

#[path = "../../crates/ondisk/src/testing.rs"]
#[allow(dead_code, reason = "shared with tests, which use more of it than a target does")]
mod testing;

fuzz_target!(|data: &[u8]| {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.iter_mut().zip(data).for_each(|(target, source)| *target = *source);
    let mut superblock = Superblock::from_bytes(&bytes);
    testing::seal_superblock(&mut superblock);
    let _ = (superblock.label(), superblock.tree_uuid(), superblock.is_seeding());
    let _ = (superblock.incompat().names(), superblock.compat_ro().names(), format!("{superblock:?}"));
    assert!(superblock.system_chunks().count() <= SUPERBLOCK_SIZE, "the list ends");
    let sealed = superblock.as_bytes().try_into().expect("a superblock has its size");
    match Superblock::parse(sealed, SUPERBLOCK_OFFSETS[0]) {
        Ok(parsed) => {
            assert_eq!(parsed.as_bytes(), superblock.as_bytes());
            let _ = TreeContext::new(&parsed);
            for chunk in parsed.system_chunks() {
                let (key, chunk) = chunk.expect("the array has been checked");
                assert!(key.offset().checked_add(chunk.header.length.get()).is_some());
                assert!(chunk.block_group_type().profile().is_some());
            }
        }
        Err(refusal) => drop(refusal.to_string()),
    }
});
