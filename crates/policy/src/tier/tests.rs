use super::distribution::distributions;
use super::plan::{DEVICE_BYTES_MIN, NoRoom, Plan, Wanted, fences_for, highest, plan};
use super::shortage::{Shortage, all_shortages};
use super::*;
use crate::placement::{
    ChunkLimits, ChunkRequest, DeviceSummary, PlacementMode, Ranks, STRIP_BYTES, place_chunk,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const ALL: Wanted = Wanted { metadata: true, data: true };

fn device(devid: u64, class: PlacementClass, total_bytes: u64) -> TierDevice {
    TierDevice { devid: DevId::new(devid), class, rank: 0, total_bytes }
}

fn chunk(logical: u64, kind: BlockGroupType, used_bytes: u64, stripes: &[(u64, u64)]) -> TierChunk {
    let stripe =
        |(devid, at): &(u64, u64)| TierStripe { devid: DevId::new(*devid), physical: Physical::new(*at) };
    let stripes = stripes.iter().map(stripe).collect();
    TierChunk {
        logical: Logical::new(logical),
        length_bytes: 256 * MIB,
        used_bytes,
        kind,
        stripes,
        is_write_back: false,
    }
}

/// Two disks with everything on them, two fast devices with nothing.
fn new_fast_devices() -> TierPool {
    use BlockGroupType as T;
    TierPool {
        devices: vec![
            device(1, PlacementClass::Bulk, 4 * GIB),
            device(2, PlacementClass::Bulk, 4 * GIB),
            device(3, PlacementClass::Fast, GIB),
            device(4, PlacementClass::Fast, GIB),
        ],
        chunks: vec![
            chunk(GIB, T::SYSTEM | T::RAID1, MIB, &[(1, MIB), (2, MIB)]),
            chunk(2 * GIB, T::METADATA | T::RAID1, 100 * MIB, &[(1, 257 * MIB), (2, 257 * MIB)]),
            chunk(3 * GIB, T::DATA | T::RAID1, 200 * MIB, &[(1, 513 * MIB), (2, 513 * MIB)]),
        ],
        ..TierPool::default()
    }
}

#[test]
fn metadata_goes_to_new_fast_devices_and_data_stays() {
    let plan = plan(&new_fast_devices(), ALL);
    assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    let [pass] = &plan.passes[..] else { panic!("{plan:?}") };
    assert_eq!((pass.target, pass.holds), (PlacementClass::Fast, true));
    let moved: Vec<u64> = pass.moves.iter().map(|chunk| chunk.logical.get()).collect();
    assert_eq!(moved, [2 * GIB, GIB]);
    assert_eq!(plan.bytes(), 101 * MIB);
    let fenced: Vec<(u64, u64)> =
        pass.fences.iter().map(|fence| (fence.devid.get(), fence.fenced_bytes)).collect();
    assert_eq!(fenced, [(1, 769 * MIB), (2, 769 * MIB)]);
}

#[test]
fn bytes_are_summed_up_by_content_and_class() {
    let kinds = distributions(&new_fast_devices());
    assert_eq!(kinds.len(), 3);
    let metadata = &kinds[0];
    assert_eq!((metadata.content, metadata.profile), (Content::Metadata, Profile::Raid1));
    assert_eq!((metadata.fast_bytes, metadata.bulk_bytes), (0, 512 * MIB));
    assert_eq!((metadata.misplaced_chunks, metadata.misplaced_bytes), (1, 512 * MIB));
    assert_eq!(metadata.movable_bytes, 100 * MIB);
    let data = &kinds[2];
    assert_eq!(
        (data.content, data.misplaced_bytes, data.by_device[&DevId::new(1)]),
        (Content::Data, 0, 256 * MIB)
    );
}

#[test]
fn data_leaves_fast_devices() {
    let mut pool = new_fast_devices();
    pool.chunks.push(chunk(4 * GIB, BlockGroupType::DATA, 7 * MIB, &[(3, MIB)]));
    let plan = plan(&pool, Wanted { metadata: false, data: true });
    let [pass] = &plan.passes[..] else { panic!("{plan:?}") };
    assert_eq!((pass.target, pass.moves.len(), pass.moves[0].used_bytes), (PlacementClass::Bulk, 1, 7 * MIB));
    let fenced: Vec<(u64, u64)> =
        pass.fences.iter().map(|fence| (fence.devid.get(), fence.fenced_bytes)).collect();
    assert_eq!(fenced, [(3, 320 * MIB).min((3, 257 * MIB)), (4, 256 * MIB)]);
}

/// Two disks with everything on them, and one fast device with nothing.
fn one_new_fast_device() -> TierPool {
    let mut pool = new_fast_devices();
    pool.devices.pop();
    pool
}

#[test]
fn one_fast_device_gets_one_copy_of_the_metadata() {
    let pool = one_new_fast_device();
    let metadata = &distributions(&pool)[0];
    assert_eq!((metadata.fit, metadata.misplaced_chunks), (Fit::Copies(1), 1));
    assert_eq!(metadata.misplaced_bytes, 256 * MIB, "one of its copies");
    let plan = plan(&pool, ALL);
    assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    let [pass] = &plan.passes[..] else { panic!("{plan:?}") };
    assert_eq!((pass.target, pass.holds, pass.moves.len()), (PlacementClass::Fast, true, 2));
    assert!(pass.moves.iter().all(|chunk| chunk.open == 1));
    let [fence] = &pass.fences[..] else { panic!("one disk stays open: {pass:?}") };
    assert_eq!(fence.fenced_bytes, 769 * MIB);
    let said: Vec<String> = plan.shortages.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[0],
        "metadata of profile raid1: one copy of two on fast devices is right; both copies on flash: add 1 more fast device"
    );
    let mut after = pool.clone();
    assert!(carry_out(&mut after, &plan));
    assert!(after.chunks.iter().all(|chunk| !after.is_misplaced(chunk)), "{after:?}");
    for chunk in after.chunks.iter().filter(|chunk| chunk.content() != Content::Data) {
        assert!(chunk.stripes.iter().any(|stripe| stripe.devid == DevId::new(3)), "{chunk:?}");
    }
    assert!(plan::plan(&after, ALL).is_empty());
}

#[test]
fn the_other_copies_are_shared_out_among_the_disks() {
    let mut pool = one_new_fast_device();
    let kind = BlockGroupType::METADATA | BlockGroupType::RAID1;
    for number in 0..5 {
        let at = (769 + 256 * number) * MIB;
        pool.chunks.push(chunk((4 + number) * GIB, kind, 256 * MIB, &[(1, at), (2, at)]));
    }
    pool.devices[2].total_bytes = 3 * GIB;
    let plan = plan(&pool, ALL);
    assert!(carry_out(&mut pool, &plan));
    let copies = |devid: u64| {
        let has_one = |chunk: &&TierChunk| {
            chunk.kind == kind && chunk.stripes.iter().any(|stripe| stripe.devid == DevId::new(devid))
        };
        pool.chunks.iter().filter(has_one).count()
    };
    assert_eq!((copies(3), copies(1), copies(2)), (6, 3, 3), "{pool:?}");
}

#[test]
fn a_profile_that_stripes_and_data_have_no_preference_where_devices_are_too_few() {
    use BlockGroupType as T;
    for kind in [T::METADATA | T::RAID10, T::METADATA | T::RAID5, T::METADATA | T::RAID6] {
        let mut pool = one_new_fast_device();
        pool.chunks = vec![chunk(GIB, kind, MIB, &[(1, MIB), (2, MIB)])];
        let plan = plan(&pool, ALL);
        assert!(plan.is_empty() && plan.refusals.is_empty(), "{plan:?}");
        let said = plan.shortages[0].to_string();
        assert!(said.contains("fast devices, and there is 1"), "{said}");
    }
    let mut pool = new_fast_devices();
    pool.devices.remove(1);
    pool.chunks = vec![chunk(GIB, T::DATA | T::RAID1, MIB, &[(3, MIB), (4, MIB)])];
    let plan = plan(&pool, ALL);
    assert!(plan.is_empty() && plan.refusals.is_empty(), "{plan:?}");
    assert_eq!(plan.shortages[0].to_string(), "data of profile raid1 needs 2 bulk devices, and there is 1");
}

#[test]
fn three_copies_take_as_many_fast_devices_as_there_are() {
    let kind = BlockGroupType::METADATA | BlockGroupType::RAID1C3;
    let mut pool = new_fast_devices();
    pool.devices.insert(2, device(5, PlacementClass::Bulk, 4 * GIB));
    pool.chunks = vec![chunk(GIB, kind, MIB, &[(1, MIB), (2, MIB), (3, MIB)])];
    let fenced = |pool: &TierPool| fences_for(pool, kind).len();
    assert!(pool.is_misplaced(&pool.chunks[0]), "the other fast device has none");
    assert_eq!(fenced(&pool), 2, "one of three disks is open");
    assert!(
        all_shortages(&pool)[0]
            .to_string()
            .contains("two copies of three on fast devices is right; all copies")
    );
    pool.devices.pop();
    assert!(!pool.is_misplaced(&pool.chunks[0]));
    assert_eq!(fenced(&pool), 1, "two of three disks are open");
}

/// Disks that have room for one chunk more beside metadata, and one new fast device.
#[test]
fn the_place_of_metadata_that_has_moved_is_room_for_system_chunks() {
    use BlockGroupType as T;
    let stripes = |at: u64| [1, 2, 3, 4].map(|devid| (devid, at));
    let mut devices: Vec<TierDevice> =
        [1, 2, 3, 4].map(|devid| device(devid, PlacementClass::Bulk, 789 * MIB)).to_vec();
    devices.push(device(5, PlacementClass::Fast, GIB));
    let chunks = vec![
        chunk(GIB, T::SYSTEM | T::RAID1C4, 16 << 10, &stripes(MIB)),
        chunk(2 * GIB, T::METADATA | T::RAID1C4, MIB, &stripes(257 * MIB)),
        chunk(3 * GIB, T::DATA | T::RAID1C4, MIB, &stripes(513 * MIB)),
    ];
    let mut pool = TierPool { devices, chunks, ..TierPool::default() };
    assert_eq!(plan(&pool, ALL).refusals.len(), 1, "the kernel may put it into a hole behind a fence");
    pool.is_ours = true;
    let plan = plan(&pool, ALL);
    assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    let moved: Vec<u64> = plan.passes[0].moves.iter().map(|chunk| chunk.logical.get()).collect();
    assert_eq!(moved, [2 * GIB, GIB]);
}

#[test]
fn disks_without_room_for_the_other_copy_are_named() {
    let mut pool = one_new_fast_device();
    for device in &mut pool.devices[..2] {
        device.total_bytes = 769 * MIB;
    }
    let plan = plan(&pool, ALL);
    assert!(matches!(plan.refusals[..], [NoRoom { class: PlacementClass::Bulk, .. }]), "{plan:?}");
}

#[test]
fn one_class_leaves_nothing_to_do() {
    let mut pool = new_fast_devices();
    pool.devices.truncate(2);
    let plan = plan(&pool, ALL);
    assert!(plan.is_empty() && plan.refusals.is_empty());
    assert_eq!(plan.shortages, [Shortage::OneClass(PlacementClass::Bulk)]);
}

#[test]
fn no_room_is_refused() {
    let mut pool = new_fast_devices();
    // Data fills the fast devices, and may not move.
    for devid in [3, 4] {
        for piece in 0..4 {
            let logical = (10 + devid * 10 + piece) * GIB;
            pool.chunks.push(chunk(logical, BlockGroupType::DATA, MIB, &[(devid, MIB + piece * 256 * MIB)]));
        }
        pool.devices[usize::try_from(devid).expect("small") - 1].total_bytes = GIB + MIB;
    }
    let refused = plan(&pool, Wanted { metadata: true, data: false });
    assert!(matches!(refused.refusals[..], [NoRoom { class: PlacementClass::Fast, .. }]));
    // With leave to move data, that goes first.
    let plan = plan(&pool, ALL);
    assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    let targets: Vec<PlacementClass> = plan.passes.iter().map(|pass| pass.target).collect();
    assert_eq!(targets, [PlacementClass::Bulk, PlacementClass::Fast]);
}

#[test]
fn stored_hints_count_more_than_what_rotates_and_less_than_the_user() {
    let facts = |chosen, stored, rotates| ClassFacts { chosen, stored, rotates };
    let found = classify(&[
        facts(None, 0, Some(false)),
        facts(None, 1, Some(true)),
        facts(Some(PlacementClass::Bulk), 2, None),
    ]);
    let classes: Vec<PlacementClass> = found.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [PlacementClass::Bulk, PlacementClass::Fast, PlacementClass::Bulk]);
    assert_eq!(found[2].1, ClassReason::Chosen);
    let found = classify(&[facts(None, 0, Some(false)), facts(None, 0, Some(true)), facts(None, 0, None)]);
    let classes: Vec<PlacementClass> = found.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [PlacementClass::Fast, PlacementClass::Bulk, PlacementClass::Bulk]);
}

/// The kernel's allocator, as far as it is known: most free first, no class.
fn kernel_places(pool: &TierPool, sizes: &BTreeMap<DevId, u64>, kind: BlockGroupType) -> Option<TierChunk> {
    let pool_bytes = pool.devices.iter().map(|device| device.total_bytes).sum();
    let limits = ChunkLimits::new(kind, pool_bytes);
    let profile = kind.profile().expect("one");
    let most = limits.max_stripe_bytes * u64::from(profile.attributes().dev_stripes);
    let gaps = |devid: DevId| pool.gaps(devid, sizes[&devid]);
    let length = |gap: &Range<u64>| gap.end - gap.start;
    let summary = |device: &TierDevice| DeviceSummary {
        devid: device.devid,
        class: device.class,
        hint: AllocationHint::DataPreferred,
        rank: 0,
        max_available_bytes: gaps(device.devid).iter().map(length).max().unwrap_or(0).min(most),
        total_available_bytes: gaps(device.devid).iter().map(length).sum(),
    };
    let devices: Vec<DeviceSummary> = pool.devices.iter().map(summary).collect();
    let request = ChunkRequest {
        content: kind & BlockGroupType::CONTENT,
        profile,
        mode: PlacementMode::Classic,
        tier: PlacementClass::Bulk,
        copies_on_fast: None,
        ranks: Ranks::ALL,
        max_stripe_bytes: limits.max_stripe_bytes,
        max_chunk_bytes: limits.max_chunk_bytes,
        min_stripe_bytes: STRIP_BYTES,
        max_stripes: 64,
    };
    let placed = place_chunk(&devices, &request).ok()?;
    let mut taken: BTreeMap<DevId, u64> = BTreeMap::new();
    let stripe = |devid: &DevId| {
        let longest = gaps(*devid).into_iter().max_by_key(length).expect("it was chosen");
        let before = taken.entry(*devid).or_default();
        let physical = Physical::new(longest.start + *before);
        *before += placed.stripe_bytes;
        TierStripe { devid: *devid, physical }
    };
    let stripes = placed.stripes.iter().map(stripe).collect();
    let end = pool.chunks.iter().map(|chunk| chunk.logical.get() + chunk.length_bytes).max();
    let logical = Logical::new(end.unwrap_or(0));
    Some(TierChunk {
        logical,
        length_bytes: placed.chunk_bytes,
        used_bytes: 0,
        kind,
        stripes,
        is_write_back: false,
    })
}

/// The kernel relocates a chunk: into free space of its kind that is well placed, then into new chunks.
fn kernel_relocates(pool: &mut TierPool, sizes: &BTreeMap<DevId, u64>, logical: Logical) -> Option<()> {
    let index = pool.chunks.iter().position(|chunk| chunk.logical == logical)?;
    let (kind, mut rest) = (pool.chunks[index].kind, pool.chunks[index].used_bytes);
    while rest > 0 {
        let classed = pool.clone();
        let has_room = |chunk: &&mut TierChunk| {
            chunk.kind == kind
                && chunk.logical != logical
                && chunk.used_bytes < chunk.length_bytes
                && !classed.is_misplaced(chunk)
        };
        if let Some(chunk) = pool.chunks.iter_mut().find(has_room) {
            let moved = rest.min(chunk.length_bytes - chunk.used_bytes);
            chunk.used_bytes += moved;
            rest -= moved;
        } else {
            let mut new = kernel_places(pool, sizes, kind)?;
            let moved = rest.min(new.length_bytes);
            new.used_bytes = moved;
            rest -= moved;
            pool.chunks.push(new);
        }
    }
    pool.chunks.remove(index);
    Some(())
}

/// A pool that a kernel without classes has filled: sizes and classes of devices, and what was allocated and
/// deleted.
fn grown() -> impl Strategy<Value = TierPool> {
    let devices = prop::collection::vec((any::<bool>(), 2..40u64), 2..7);
    let mirrors =
        prop::sample::select(vec![BlockGroupType::RAID1, BlockGroupType::RAID1C3, BlockGroupType::RAID1C4]);
    let lives = prop::collection::vec((0..6usize, any::<prop::sample::Index>(), 0..=100u64), 1..30);
    (devices, lives, mirrors).prop_map(|(devices, lives, mirrors)| {
        use BlockGroupType as T;
        let class = |is_fast| if is_fast { PlacementClass::Fast } else { PlacementClass::Bulk };
        let device = |(index, (is_fast, size)): (usize, &(bool, u64))| {
            device(index as u64 + 1, class(*is_fast), size * 128 * MIB)
        };
        let devices: Vec<TierDevice> = devices.iter().enumerate().map(device).collect();
        let sizes = devices.iter().map(|device| (device.devid, device.total_bytes)).collect();
        let mut pool = TierPool { devices, ..TierPool::default() };
        let kinds =
            [T::METADATA | mirrors, T::DATA, T::METADATA | T::DUP, T::DATA | T::RAID0, T::SYSTEM | T::RAID1];
        for (kind, index, percent) in lives {
            match kinds.get(kind) {
                Some(kind) => {
                    if let Some(mut chunk) = kernel_places(&pool, &sizes, *kind) {
                        chunk.used_bytes = chunk.length_bytes / 100 * percent;
                        pool.chunks.push(chunk);
                    }
                }
                None if !pool.chunks.is_empty() => drop(pool.chunks.remove(index.index(pool.chunks.len()))),
                None => {}
            }
        }
        pool
    })
}

/// Carries a plan out; false where the model of the kernel ran out of space.
fn carry_out(pool: &mut TierPool, plan: &Plan) -> bool {
    for pass in &plan.passes {
        for moved in &pass.moves {
            // What the fences leave open is chosen for each chunk.
            let is_chosen_anew = pass.moves.iter().any(|moved| moved.open > 0);
            let fences = if is_chosen_anew { fences_for(pool, moved.kind) } else { pass.fences.clone() };
            let mut sizes: BTreeMap<DevId, u64> =
                pool.devices.iter().map(|device| (device.devid, device.total_bytes)).collect();
            sizes.extend(fences.iter().map(|fence| (fence.devid, fence.fenced_bytes)));
            if kernel_relocates(pool, &sizes, moved.logical).is_none() {
                return false;
            }
        }
    }
    true
}

proptest! {
    #[test]
    fn no_fence_stands_where_something_lies(pool in grown()) {
        for pass in plan(&pool, ALL).passes {
            for fence in pass.fences {
                prop_assert_ne!(pool.class(fence.devid), pass.target);
                prop_assert!(fence.fenced_bytes < fence.total_bytes && fence.fenced_bytes >= DEVICE_BYTES_MIN);
                for extent in pool.extents(fence.devid) {
                    prop_assert!(extent.end <= fence.fenced_bytes);
                }
            }
        }
    }

    #[test]
    fn every_misplaced_chunk_is_moved_or_refused(pool in grown()) {
        let plan = plan(&pool, ALL);
        let moved: Vec<Logical> =
            plan.passes.iter().flat_map(|pass| &pass.moves).map(|chunk| chunk.logical).collect();
        for chunk in &pool.chunks {
            let is_data = chunk.content() == Content::Data;
            let is_refused =
                plan.refusals.iter().any(|refusal| (refusal.content == Content::Data) == is_data);
            let is_moved = moved.contains(&chunk.logical);
            prop_assert_eq!(is_moved, pool.is_misplaced(chunk) && !is_refused);
        }
    }

    #[test]
    fn a_plan_that_holds_leaves_nothing_wrong(pool in grown(), metadata: bool) {
        let plan = plan(&pool, Wanted { metadata, data: !metadata });
        let mut after = pool.clone();
        if !plan.refusals.is_empty() || plan.passes.iter().any(|pass| !pass.holds) {
            return Ok(());
        }
        prop_assert!(carry_out(&mut after, &plan), "out of space");
        let wrong = |pool: &TierPool| -> u64 {
            let meant = distributions(pool).into_iter().filter(|kind| metadata == (kind.content != Content::Data));
            meant.map(|kind| kind.misplaced_bytes).sum()
        };
        prop_assert_eq!(wrong(&after), 0);
        let used = |pool: &TierPool| -> u64 { pool.chunks.iter().map(|chunk| chunk.used_bytes).sum() };
        prop_assert_eq!(used(&after), used(&pool));
    }
}

#[test]
fn the_highest_chunk_is_moved_only_if_that_draws_a_fence_closer() {
    let mut pool = new_fast_devices();
    let moved = |pool: &TierPool| -> Vec<u64> {
        let moves = highest(pool, BlockGroupType::METADATA, PlacementClass::Bulk);
        moves.iter().map(|chunk| chunk.logical.get()).collect()
    };
    assert_eq!(moved(&pool), [0_u64; 0], "there is no gap below the data");
    pool.chunks.remove(1);
    assert_eq!(moved(&pool), [3 * GIB]);
    // A gap that is shorter than the chunk is none.
    pool.chunks[1].length_bytes = 257 * MIB;
    assert_eq!(moved(&pool), [0_u64; 0]);
    // Misplaced chunks are moved anyway.
    pool.chunks.remove(1);
    pool.chunks[0].stripes.iter_mut().for_each(|stripe| stripe.physical = Physical::new(GIB));
    assert_eq!(moved(&pool), [0_u64; 0]);
}

/// Devices 1 to 5: one NVMe, two SSDs, a disk and a shingled one, with a metadata chunk of each kind on some of them.
fn pool_of_four_classes(profile: BlockGroupType, places: &[&[u64]]) -> TierPool {
    let mut pool = TierPool { is_ours: true, ..TierPool::default() };
    pool.classes.list(PlacementClass::Fast, &["nvme", "ssd"]).expect("names");
    pool.classes.list(PlacementClass::Bulk, &["disk", "smr"]).expect("names");
    let of_rank = |(devid, rank): (u64, u8)| TierDevice {
        rank,
        ..device(devid, if rank < 2 { PlacementClass::Fast } else { PlacementClass::Bulk }, 4 * GIB)
    };
    pool.devices = [(1, 0), (2, 1), (3, 1), (4, 2), (5, 3)].map(of_rank).into();
    let metadata = |(number, devids): (usize, &&[u64])| {
        let at = GIB * (number as u64 + 1);
        let stripes: Vec<(u64, u64)> = devids.iter().map(|devid| (*devid, MIB + at / 4)).collect();
        chunk(at, BlockGroupType::METADATA | profile, MIB, &stripes)
    };
    pool.chunks = places.iter().enumerate().map(metadata).collect();
    pool
}

fn misplaced(pool: &TierPool) -> Vec<bool> {
    pool.chunks.iter().map(|chunk| pool.is_misplaced(chunk)).collect()
}

#[test]
fn metadata_belongs_on_the_fastest_classes_that_are_enough() {
    let single = pool_of_four_classes(BlockGroupType::empty(), &[&[1], &[2], &[4], &[5]]);
    assert_eq!(misplaced(&single), [false, true, true, true]);
    assert_eq!(single.target_name(BlockGroupType::METADATA), "nvme");
    let raid1 = BlockGroupType::RAID1;
    let mirrored = pool_of_four_classes(raid1, &[&[1, 2], &[2, 3], &[1, 4], &[4, 5]]);
    assert_eq!(misplaced(&mirrored), [false, false, true, true]);
    assert_eq!(mirrored.target_name(BlockGroupType::METADATA | raid1), "nvme and ssd");
    let four = pool_of_four_classes(BlockGroupType::RAID1C4, &[&[1, 2, 3, 4], &[1, 2, 4, 5]]);
    assert_eq!(misplaced(&four), [false, true], "each fast device holds a copy");
}

#[test]
fn fences_for_metadata_stand_around_all_but_its_classes() {
    let mut pool = pool_of_four_classes(BlockGroupType::empty(), &[&[2], &[4]]);
    pool.is_ours = false;
    let plan = plan(&pool, ALL);
    let [pass] = &plan.passes[..] else { panic!("{plan:?}") };
    assert_eq!((pass.moves.len(), &pass.target_name[..]), (2, "nvme"));
    let fenced: Vec<u64> = pass.fences.iter().map(|fence| fence.devid.get()).collect();
    assert_eq!(fenced, [2, 3, 4, 5]);
}

#[test]
fn all_fast_devices_count_if_the_fastest_class_is_full() {
    let mut pool = pool_of_four_classes(BlockGroupType::empty(), &[&[1], &[2], &[4]]);
    pool.chunks[0].stripes[0].physical = Physical::new(MIB);
    pool.devices[0].total_bytes = 257 * MIB;
    pool.chunks[0].used_bytes = pool.chunks[0].length_bytes;
    let by_rank = plan(&pool, ALL);
    assert_eq!(by_rank.refusals.iter().map(|refusal| &refusal.name[..]).collect::<Vec<_>>(), ["nvme"]);
    let settled = pool.clone().settled();
    assert_eq!(misplaced(&settled), [false, false, true]);
    let plan = plan(&settled, ALL);
    assert_eq!((plan.chunks(), plan.refusals.len()), (1, 0));
    // With room it counts.
    pool.devices[0].total_bytes = 4 * GIB;
    assert_eq!(misplaced(&pool.settled()), [false, true, true]);
}

mod split;
