use super::lies::lies;
use super::plan::{DEVICE_BYTES_MIN, Plan, Refusal, Wanted, highest, plan};
use super::*;
use crate::placement::{ChunkLimits, ChunkRequest, DeviceSummary, PlacementMode, STRIP_BYTES, place_chunk};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const ALL: Wanted = Wanted { metadata: true, data: true };

fn device(devid: u64, class: PlacementClass, total_bytes: u64) -> TierDevice {
    TierDevice { devid: DevId::new(devid), class, total_bytes }
}

fn chunk(logical: u64, kind: BlockGroupType, used_bytes: u64, stripes: &[(u64, u64)]) -> TierChunk {
    let stripe =
        |(devid, at): &(u64, u64)| TierStripe { devid: DevId::new(*devid), physical: Physical::new(*at) };
    let stripes = stripes.iter().map(stripe).collect();
    TierChunk { logical: Logical::new(logical), length_bytes: 256 * MIB, used_bytes, kind, stripes }
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
        is_ours: false,
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
fn what_lies_where_is_summed_up() {
    let lies = lies(&new_fast_devices());
    assert_eq!(lies.len(), 3);
    let metadata = &lies[0];
    assert_eq!((metadata.content, metadata.profile), (Content::Metadata, Profile::Raid1));
    assert_eq!((metadata.fast_bytes, metadata.bulk_bytes), (0, 512 * MIB));
    assert_eq!((metadata.wrong_chunks, metadata.wrong_bytes), (1, 512 * MIB));
    assert_eq!(metadata.movable_bytes, 100 * MIB);
    let data = &lies[2];
    assert_eq!(
        (data.content, data.wrong_bytes, data.by_device[&DevId::new(1)]),
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

#[test]
fn too_few_fast_devices_are_refused() {
    let mut pool = new_fast_devices();
    pool.devices.pop();
    let plan = plan(&pool, ALL);
    assert!(plan.passes.is_empty());
    let said: Vec<String> = plan.refusals.iter().map(ToString::to_string).collect();
    assert_eq!(said[0], "metadata of profile raid1 needs 2 fast devices, and there is 1");
    assert_eq!(said.len(), 2);
    assert!(lies(&pool).iter().all(|lies| lies.wrong_bytes == 0));
}

#[test]
fn one_class_is_refused() {
    let mut pool = new_fast_devices();
    pool.devices.truncate(2);
    assert_eq!(plan(&pool, ALL).refusals, [Refusal::OneClass(PlacementClass::Bulk)]);
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
    assert!(matches!(refused.refusals[..], [Refusal::NoRoom { class: PlacementClass::Fast, .. }]));
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
        max_available_bytes: gaps(device.devid).iter().map(length).max().unwrap_or(0).min(most),
        total_available_bytes: gaps(device.devid).iter().map(length).sum(),
    };
    let devices: Vec<DeviceSummary> = pool.devices.iter().map(summary).collect();
    let request = ChunkRequest {
        content: kind & BlockGroupType::CONTENT,
        profile,
        mode: PlacementMode::Classic,
        tier: PlacementClass::Bulk,
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
    Some(TierChunk { logical, length_bytes: placed.chunk_bytes, used_bytes: 0, kind, stripes })
}

/// The kernel relocates a chunk: into free space of its kind that lies right, then into new chunks.
fn kernel_relocates(pool: &mut TierPool, sizes: &BTreeMap<DevId, u64>, logical: Logical) -> Option<()> {
    let index = pool.chunks.iter().position(|chunk| chunk.logical == logical)?;
    let (kind, mut rest) = (pool.chunks[index].kind, pool.chunks[index].used_bytes);
    while rest > 0 {
        let classed = pool.clone();
        let has_room = |chunk: &&mut TierChunk| {
            chunk.kind == kind
                && chunk.logical != logical
                && chunk.used_bytes < chunk.length_bytes
                && !classed.lies_wrong(chunk)
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
    let lives = prop::collection::vec((0..6usize, any::<prop::sample::Index>(), 0..=100u64), 1..30);
    (devices, lives).prop_map(|(devices, lives)| {
        use BlockGroupType as T;
        let class = |is_fast| if is_fast { PlacementClass::Fast } else { PlacementClass::Bulk };
        let device = |(index, (is_fast, size)): (usize, &(bool, u64))| {
            device(index as u64 + 1, class(*is_fast), size * 128 * MIB)
        };
        let devices: Vec<TierDevice> = devices.iter().enumerate().map(device).collect();
        let sizes = devices.iter().map(|device| (device.devid, device.total_bytes)).collect();
        let mut pool = TierPool { devices, chunks: Vec::new(), is_ours: false };
        let kinds =
            [T::METADATA | T::RAID1, T::DATA, T::METADATA | T::DUP, T::DATA | T::RAID0, T::SYSTEM | T::RAID1];
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
        let mut sizes: BTreeMap<DevId, u64> =
            pool.devices.iter().map(|device| (device.devid, device.total_bytes)).collect();
        for fence in &pass.fences {
            sizes.insert(fence.devid, fence.fenced_bytes);
        }
        for moved in &pass.moves {
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
    fn all_that_lies_wrong_is_moved_or_refused(pool in grown()) {
        let plan = plan(&pool, ALL);
        let moved: Vec<Logical> =
            plan.passes.iter().flat_map(|pass| &pass.moves).map(|chunk| chunk.logical).collect();
        for chunk in &pool.chunks {
            let is_refused = plan.refusals.iter().any(|refusal| match refusal {
                Refusal::OneClass(_) => true,
                Refusal::NoRoom { class, .. } => chunk.content().class() == Some(*class),
                Refusal::TooFewDevices { .. } => false,
            });
            let is_moved = moved.contains(&chunk.logical);
            prop_assert_eq!(is_moved, pool.lies_wrong(chunk) && !is_refused);
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
            let meant = lies(pool).into_iter().filter(|lies| metadata == (lies.content != Content::Data));
            meant.map(|lies| lies.wrong_bytes).sum()
        };
        prop_assert_eq!(wrong(&after), 0);
        let used = |pool: &TierPool| -> u64 { pool.chunks.iter().map(|chunk| chunk.used_bytes).sum() };
        prop_assert_eq!(used(&after), used(&pool));
    }
}

#[test]
fn what_lies_highest_is_moved_only_if_that_draws_a_fence_closer() {
    let mut pool = new_fast_devices();
    let moved = |pool: &TierPool| -> Vec<u64> {
        let moves = highest(pool, PlacementClass::Bulk);
        moves.iter().map(|chunk| chunk.logical.get()).collect()
    };
    assert_eq!(moved(&pool), [0_u64; 0], "there is no gap below the data");
    pool.chunks.remove(1);
    assert_eq!(moved(&pool), [3 * GIB]);
    // A gap that is shorter than the chunk is none.
    pool.chunks[1].length_bytes = 257 * MIB;
    assert_eq!(moved(&pool), [0_u64; 0]);
    // What lies wrong is moved anyway.
    pool.chunks.remove(1);
    pool.chunks[0].stripes.iter_mut().for_each(|stripe| stripe.physical = Physical::new(GIB));
    assert_eq!(moved(&pool), [0_u64; 0]);
}
