//! Nothing that a disk can hold makes a volume panic.

use super::support::*;
use crate::DataChecksums;
use brindle_ondisk::item::Chunk;
use brindle_ondisk::{BlockGroupType, DevId, Logical, Profile};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..10u64, (0..1u64 << 20).prop_map(|n| n * 65536), Just(u64::MAX - 65535)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_chunk_is_refused_or_can_be_asked_for(
        (start, length, kind) in (number(), number(), prop_oneof![0..1u64 << 12, any::<u64>()]),
        stripes in prop::collection::vec((0..4u64, number()), 0..9),
        reads in prop::collection::vec((number(), 0..40usize), 0..4),
    ) {
        let pool = hostile_pool();
        let volume = pool.open(&[]);
        let kind = BlockGroupType::from_bits_retain(kind);
        let stripes = stripes.into_iter().map(|(devid, offset)| stripe(devid, offset)).collect();
        let chunk = OwnedChunk::new(kind, length, stripes);
        let start = Logical::new(start);
        let added = volume.add_chunk(start, &chunk.view());
        let again = volume.add_chunk(start, &chunk.view());
        prop_assert_eq!(added.is_ok(), again.is_ok());
        let _ = volume.check_complete();
        volume.prefetch(start, length.min(1 << 24));
        let near_end = start.get().wrapping_add(length).wrapping_sub(8192);
        for (at, sectors) in reads.into_iter().chain([(start.get(), 20), (near_end, 2)]) {
            let mut buffer = vec![0; sectors * SECTOR];
            let _ = volume.read_data(Logical::new(at / 4096 * 4096), &mut buffer, &DataChecksums::none());
            let _ = volume.read_block(Logical::new(at), 16384, Ok);
            for mirror in 0..volume.copies(Logical::new(at)).unwrap_or(0) {
                let _ = volume.read_mirror(Logical::new(at), mirror, &mut buffer);
            }
        }
    }
}

/// A small pool; its contents don't matter.
fn hostile_pool() -> TestPool {
    TestPool::new(Profile::Raid0, 2, 1, &mut rng(0))
}

#[test]
fn a_chunk_of_thousands_of_stripes_is_bounded() {
    let volume = hostile_pool().open(&[]);
    let stripes: Vec<_> = (0..65535).map(|_| stripe(1, 0)).collect();
    for profile in Profile::TABLE {
        let kind = BlockGroupType::DATA | profile.flag;
        let chunk = OwnedChunk::new(kind, 65535 * 65533 * 65536, stripes.clone());
        let view = Chunk { header: &chunk.header, stripes: &chunk.stripes };
        let _ = volume.add_chunk(Logical::new(1 << 50), &view);
        let _ = volume.read_block(Logical::new(1 << 50), 4096, Ok);
    }
}

#[test]
fn devices_of_the_chunk_tree_may_claim_anything() {
    let volume = hostile_pool().open(&[]);
    let mut item = dev_item(1, FSID, u64::MAX);
    item.devid = DevId::new(u64::MAX);
    volume.add_device(&item).expect("a missing device");
    let chunk = OwnedChunk::new(BlockGroupType::DATA, 65536, vec![stripe(1, u64::MAX - 65536)]);
    assert!(volume.add_chunk(Logical::new(1 << 50), &chunk.view()).is_err());
}
