//! Data of small and marked files with fewer fast devices than copies.

use super::*;
use crate::placement::DataTier;
use crate::tier::files::{Amount, FileTiers};

/// Two disks and a fast device, all mirrored; metadata is where it belongs.
fn pool() -> TierPool {
    use BlockGroupType as T;
    TierPool {
        chunks: vec![
            chunk(GIB, T::METADATA | T::RAID1, MIB, &[(1, MIB), (3, MIB)]),
            chunk(2 * GIB, T::DATA | T::RAID1, 200 * MIB, &[(1, 513 * MIB), (2, 513 * MIB)]),
            chunk(3 * GIB, T::DATA | T::RAID1, 200 * MIB, &[(2, 257 * MIB), (3, 257 * MIB)]),
        ],
        is_ours: true,
        ..one_new_fast_device()
    }
}

#[test]
fn a_chunk_of_data_with_a_copy_on_the_fast_device_is_right_and_a_note_tells_of_another_device() {
    let pool = pool();
    assert!(pool.chunks.iter().all(|chunk| !pool.is_misplaced(chunk)));
    assert_eq!(
        pool.chunks.iter().map(|chunk| pool.is_of_fast_tier(chunk)).collect::<Vec<_>>(),
        [false, false, true]
    );
    let plan = plan(&pool, ALL);
    assert!(plan.is_empty() && plan.refusals.is_empty(), "{plan:?}");
    let said: Vec<String> = plan.shortages.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[1],
        "data of small and marked files, profile raid1: one copy of two on fast devices, which is read; both copies on flash: \
         add 1 more fast device"
    );
    assert_eq!(said.len(), 2);
}

#[test]
fn waiting_data_is_no_part_of_a_split_tier_and_a_kernel_has_none() {
    let mut pool = pool();
    pool.chunks[2].is_write_back = true;
    assert!(!pool.is_of_fast_tier(&pool.chunks[2]), "it would lie on fast devices alone");
    pool.chunks[2].is_write_back = false;
    pool.is_ours = false;
    assert!(pool.is_misplaced(&pool.chunks[2]), "data of a kernel belongs on disks");
    assert_eq!(all_shortages(&pool).len(), 1, "of metadata");
}

#[test]
fn a_second_fast_device_ends_the_split() {
    let mut pool = pool();
    pool.devices.push(device(4, PlacementClass::Fast, GIB));
    assert!(!pool.is_of_fast_tier(&pool.chunks[2]));
    assert!(pool.is_misplaced(&pool.chunks[2]));
    assert_eq!(all_shortages(&pool), []);
}

#[test]
fn room_for_files_needs_a_copy_on_the_fast_device_and_another_one_elsewhere() {
    let tiers = |bytes| {
        let fast_on_bulk = Amount { extents: 1, bytes };
        FileTiers { fast_on_bulk, ..FileTiers::default() }
    };
    let mut pool = pool();
    let refusals = |pool: &TierPool, bytes| {
        let mut plan = plan(pool, ALL);
        plan.add_files(pool, &tiers(bytes));
        assert_eq!(plan.files[0].target, DataTier::from(PlacementClass::Fast));
        plan.refusals.len()
    };
    // 56 MiB are free in the chunk that is there, and 511 MiB on the fast device.
    assert_eq!((refusals(&pool, 560 * MIB), refusals(&pool, 600 * MIB)), (0, 1));
    for device in &mut pool.devices[..2] {
        device.total_bytes = 769 * MIB;
    }
    pool.chunks.push(chunk(4 * GIB, pool.chunks[1].kind, 256 * MIB, &[(1, 257 * MIB), (2, MIB)]));
    assert_eq!((refusals(&pool, 56 * MIB), refusals(&pool, 57 * MIB)), (0, 1), "no disk has room");
}
