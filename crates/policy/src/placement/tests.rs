use super::*;
use PlacementClass::{Bulk, Fast};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn device(devid: u64, class: PlacementClass, free: u64) -> DeviceSummary {
    DeviceSummary {
        devid: DevId::new(devid),
        class,
        hint: AllocationHint::DataPreferred,
        rank: 0,
        max_available_bytes: free,
        total_available_bytes: free,
    }
}

fn request(content: BlockGroupType, profile: Profile, mode: PlacementMode) -> ChunkRequest {
    ChunkRequest {
        content,
        profile,
        mode,
        tier: Bulk,
        copies_on_fast: None,
        ranks: Ranks::ALL,
        max_stripe_bytes: GIB,
        max_chunk_bytes: 10 * GIB,
        min_stripe_bytes: 1 << 20,
        max_stripes: 64,
    }
}

fn ids(plan: &ChunkPlan) -> Vec<u64> {
    let mut ids: Vec<u64> = plan.stripes.iter().map(|devid| devid.get()).collect();
    ids.sort_unstable();
    ids
}

fn placed(devices: &[DeviceSummary], content: BlockGroupType, profile: Profile) -> Vec<u64> {
    let request = request(content, profile, PlacementMode::Preferred);
    ids(&place_chunk(devices, &request).expect("there is room"))
}

/// a, b, c are SSDs 1, 2, 3; e, f are hard disks 5, 6, with much more free.
fn five() -> Vec<DeviceSummary> {
    let ssds = (1..=3).map(|devid| device(devid, Fast, 100 * GIB));
    ssds.chain((5..=6).map(|devid| device(devid, Bulk, 4000 * GIB))).collect()
}

const DATA: BlockGroupType = BlockGroupType::DATA;
const METADATA: BlockGroupType = BlockGroupType::METADATA;
const SYSTEM: BlockGroupType = BlockGroupType::SYSTEM;
const MIXED: BlockGroupType = DATA.union(METADATA);

#[test]
fn example_a_metadata_on_flash_and_data_on_spindles() {
    let devices = five();
    for content in [METADATA, SYSTEM] {
        assert_eq!(placed(&devices, content, Profile::Raid1), [1, 2]);
    }
    assert_eq!(placed(&devices, DATA, Profile::Raid1), [5, 6]);
    // With the most room free among the SSDs, c has its turn: all of a, b, c are used in time.
    let mut later = devices;
    later[0].max_available_bytes -= GIB;
    assert_eq!(placed(&later, METADATA, Profile::Raid1), [2, 3]);
}

#[test]
fn example_a_prime_full_spindles_send_data_to_flash() {
    let mut devices = five();
    for spindle in &mut devices[3..] {
        (spindle.max_available_bytes, spindle.total_available_bytes) = (0, 0);
    }
    assert_eq!(placed(&devices, DATA, Profile::Raid1), [1, 2]);
    let strict = place_chunk(&devices, &request(DATA, Profile::Raid1, PlacementMode::Strict));
    let error = strict.expect_err("flash is not for data");
    assert_eq!((error.usable, error.needed, error.excluded), (0, 2, 3));
    assert!(error.to_string().contains("Data chunk of profile raid1"), "{error}");
}

#[test]
fn chunks_are_as_large_as_the_kernel_makes_them() {
    let chunk = |pool_bytes: u64, content, profile| {
        let limits = ChunkLimits::new(content, pool_bytes);
        let request = ChunkRequest {
            ranks: Ranks::ALL,
            max_stripe_bytes: limits.max_stripe_bytes,
            max_chunk_bytes: limits.max_chunk_bytes,
            ..request(content, profile, PlacementMode::Classic)
        };
        let devices = [device(1, Bulk, pool_bytes / 2), device(2, Bulk, pool_bytes / 2)];
        place_chunk(&devices, &request).expect("there is room").chunk_bytes
    };
    // As seen on pools that the kernel has filled.
    assert_eq!(chunk(3 * GIB, DATA, Profile::Single), 320 * MIB);
    assert_eq!(chunk(100 * GIB, DATA, Profile::Single), GIB);
    assert_eq!(chunk(100 * GIB, DATA, Profile::Raid0), 2 * GIB);
    assert_eq!(chunk(100 * GIB, METADATA, Profile::Raid1), GIB);
    assert_eq!(chunk(3 * GIB, METADATA, Profile::Dup), 256 * MIB);
    assert_eq!(chunk(256 * MIB, METADATA, Profile::Dup), 32 * MIB);
    assert_eq!(chunk(100 * GIB, SYSTEM, Profile::Raid1), 32 * MIB);
}

#[test]
fn example_b_raid6_needs_three_so_data_is_on_all() {
    assert_eq!(placed(&five(), DATA, Profile::Raid6), [1, 2, 3, 5, 6]);
    assert_eq!(placed(&five(), METADATA, Profile::Raid6), [1, 2, 3]);
}

#[test]
fn raid5_needs_two_so_data_stays_on_the_two_spindles() {
    assert_eq!(placed(&five(), DATA, Profile::Raid5), [5, 6]);
    assert_eq!(placed(&five(), METADATA, Profile::Raid5), [1, 2, 3]);
}

#[test]
fn one_nvme_keeps_its_copy_however_much_the_disks_have_free() {
    let mut devices = vec![device(1, Fast, GIB)];
    devices.extend((2..=5).map(|devid| device(devid, Bulk, devid * 4000 * GIB)));
    assert_eq!(placed(&devices, METADATA, Profile::Raid1c3), [1, 4, 5]);
    let plan = place_chunk(&devices, &request(METADATA, Profile::Raid1c3, PlacementMode::Preferred));
    let plan = plan.expect("there is room");
    assert_eq!((plan.stripes[0].get(), plan.spilled), (1, 2));
}

#[test]
fn classic_and_mixed_go_by_free_space_alone() {
    let plan = place_chunk(&five(), &request(METADATA, Profile::Raid1, PlacementMode::Classic));
    assert_eq!(ids(&plan.expect("there is room")), [5, 6]);
    assert_eq!(placed(&five(), MIXED, Profile::Raid1), [5, 6]);
    // The longest free range counts before free space.
    let mut devices = five();
    devices[0].max_available_bytes = 9000 * GIB;
    assert_eq!(placed(&devices, MIXED, Profile::Single), [1]);
}

#[test]
fn hints_say_more_than_the_class() {
    let mut devices = five();
    devices[3].hint = AllocationHint::MetadataOnly;
    devices[4].hint = AllocationHint::DataOnly;
    assert_eq!(placed(&devices, METADATA, Profile::Single), [5]);
    assert_eq!(placed(&devices, DATA, Profile::Single), [6]);
    assert_eq!(placed(&devices, DATA, Profile::Raid1), [1, 6]);
    assert_eq!(placed(&devices, METADATA, Profile::Raid1c4), [1, 2, 3, 5]);
    let request = request(METADATA, Profile::Raid1c4, PlacementMode::Preferred);
    let error = place_chunk(&devices[1..], &request).expect_err("6 holds no metadata");
    assert_eq!((error.usable, error.excluded), (3, 1));
    assert_eq!(AllocationHint::from_disk(2), Some(AllocationHint::MetadataOnly));
}

#[test]
fn geometry_follows_the_profile() {
    let devices: Vec<_> = (1..=5).map(|devid| device(devid, Bulk, 3 * GIB)).collect();
    let of = |profile| {
        let plan = place_chunk(&devices, &request(DATA, profile, PlacementMode::Preferred));
        let plan = plan.expect("there is room");
        (plan.stripes.len(), plan.stripe_bytes, plan.chunk_bytes)
    };
    assert_eq!(of(Profile::Single), (1, GIB, GIB));
    assert_eq!(of(Profile::Dup), (2, GIB, GIB));
    assert_eq!(of(Profile::Raid0), (5, GIB, 5 * GIB));
    assert_eq!(of(Profile::Raid1c3), (3, GIB, GIB));
    assert_eq!(of(Profile::Raid10), (4, GIB, 2 * GIB));
    assert_eq!(of(Profile::Raid5), (5, GIB, 4 * GIB));
    assert_eq!(of(Profile::Raid6), (5, GIB, 3 * GIB));
}

fn any_hint() -> impl Strategy<Value = AllocationHint> {
    prop_oneof![
        6 => Just(AllocationHint::DataPreferred),
        1 => Just(AllocationHint::MetadataPreferred),
        1 => Just(AllocationHint::MetadataOnly),
        1 => Just(AllocationHint::DataOnly),
        1 => Just(AllocationHint::NoNewChunks),
        1 => Just(AllocationHint::Indifferent),
    ]
}

fn any_device(hinted: bool) -> impl Strategy<Value = DeviceSummary> {
    let hint = if hinted { any_hint().boxed() } else { Just(AllocationHint::DataPreferred).boxed() };
    (any::<bool>(), hint, 0..6u64, 0..4u64).prop_map(|(fast, hint, longest, more)| DeviceSummary {
        devid: DevId::new(0),
        class: if fast { Fast } else { Bulk },
        hint,
        rank: 0,
        max_available_bytes: longest << 20,
        total_available_bytes: (longest + more) << 20,
    })
}

fn any_devices() -> impl Strategy<Value = Vec<DeviceSummary>> {
    any::<bool>().prop_flat_map(|hinted| prop::collection::vec(any_device(hinted), 0..=8)).prop_map(
        |mut all| {
            for (devid, device) in (1..).zip(&mut all) {
                device.devid = DevId::new(devid);
            }
            all
        },
    )
}

/// Preference for a device, straight from the table of the hints; 0 for none.
fn wish(device: &DeviceSummary, content: BlockGroupType, hinted: bool, mode: PlacementMode) -> u8 {
    if device.hint.number() == 4 {
        return 0;
    }
    if mode == PlacementMode::Classic || content == MIXED {
        return 9;
    }
    let hint = match (hinted, device.class == Fast) {
        (true, _) => device.hint.number(),
        (false, fast) => u8::from(fast),
    };
    match (content == DATA, hint) {
        (false, 2) | (true, 3) => 9,
        (false, 1) | (true, 0) => 8,
        (_, 80) => 7,
        (false, 0) | (true, 1) if mode != PlacementMode::Strict => 6,
        _ => 0,
    }
}

/// Preferred first, redundancy kept, spill only when allowed and needed, no refusal while an allowed layout exists.
fn assert_right(devices: &[DeviceSummary], request: &ChunkRequest) {
    let attributes = request.attributes();
    let least = u64::from(attributes.dev_stripes) << 20;
    let hinted = devices.iter().any(|device| !matches!(device.hint.number(), 0 | 4));
    let wish = |device: &DeviceSummary| wish(device, request.content, hinted, request.mode);
    let is_usable = |device: &&DeviceSummary| wish(device) > 0 && device.max_available_bytes >= least;
    let usable: Vec<&DeviceSummary> = devices.iter().filter(is_usable).collect();
    let minimum = usize::from(attributes.devs_min);
    let Ok(plan) = place_chunk(devices, request) else {
        assert!(usable.len() < minimum, "an allowed layout was missed: {devices:?} {request:?}");
        return;
    };
    assert!(usable.len() >= minimum);

    // Redundancy: each device once (dup: one device twice), as many as the profile allows.
    let mut chosen = plan.stripes.clone();
    chosen.sort_unstable();
    chosen.dedup();
    assert_eq!(chosen.len() * usize::from(attributes.dev_stripes), plan.stripes.len());
    assert!(chosen.len() >= minimum);
    assert!(attributes.devs_max == 0 || chosen.len() <= usize::from(attributes.devs_max));
    assert_eq!(chosen.len() % usize::from(attributes.devs_increment), 0);

    let summary = |devid: &DevId| *devices.iter().find(|device| device.devid == *devid).expect("given");
    let chosen: Vec<DeviceSummary> = chosen.iter().map(summary).collect();
    let worst = chosen.iter().map(wish).min().expect("not empty");
    assert!(worst > 0, "a device that may not hold it: {devices:?} {request:?}");
    assert_eq!(plan.spilled, chosen.iter().filter(|device| wish(device) == 6).count());
    // Spill only when the better classes are too few, and then none of them is left out.
    let better: Vec<_> = usable.iter().filter(|device| wish(device) > worst).collect();
    assert!(better.len() < minimum, "spilled although the preferred were enough: {devices:?} {request:?}");
    if attributes.devs_max == 0 || usize::from(attributes.devs_max) >= better.len() {
        assert!(better.iter().all(|device| chosen.contains(device)), "a preferred device was passed by");
    }
    // Within a class the one with more room first.
    let key = |device: &DeviceSummary| (device.max_available_bytes, device.total_available_bytes);
    let mut passed_by = usable.iter().filter(|device| wish(device) == worst && !chosen.contains(device));
    let last = chosen.iter().filter(|device| wish(device) == worst).map(key).min().expect("not empty");
    assert!(passed_by.all(|device| key(device) <= last));

    // Geometry: it fits, and the range is what the stripes hold.
    for device in &chosen {
        assert!(plan.stripe_bytes * u64::from(attributes.dev_stripes) <= device.max_available_bytes);
    }
    let data_stripes =
        plan.stripes.len() as u64 / u64::from(attributes.ncopies) - u64::from(attributes.nparity);
    assert_eq!(plan.chunk_bytes, plan.stripe_bytes * data_stripes);
    assert!(plan.stripe_bytes % STRIP_BYTES == 0 && plan.stripe_bytes >= 1 << 20);

    // The order in which devices are given does not matter.
    let mut reversed = devices.to_vec();
    reversed.reverse();
    assert_eq!(place_chunk(&reversed, request), Ok(plan));
}

const MODES: [PlacementMode; 3] = [PlacementMode::Classic, PlacementMode::Preferred, PlacementMode::Strict];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_plan_is_allowed_and_none_is_missed(
        devices in any_devices(),
        row in 0..Profile::TABLE.len(),
        content in prop::sample::select(vec![DATA, METADATA, SYSTEM, MIXED]),
        mode in prop::sample::select(MODES.to_vec()),
    ) {
        assert_right(&devices, &request(content, Profile::TABLE[row].profile, mode));
    }

    #[test]
    fn room_is_what_chunks_can_have_of_it(
        devices in any_devices(),
        row in 0..Profile::TABLE.len(),
        content in prop::sample::select(vec![DATA, METADATA]),
        mode in prop::sample::select(MODES.to_vec()),
    ) {
        let request = request(content, Profile::TABLE[row].profile, mode);
        let room = room_for(&devices, &request);
        prop_assert!(room > 0 || place_chunk(&devices, &request).is_err());
        let attributes = &Profile::TABLE[row];
        let all: u64 = devices.iter().map(|device| device.total_available_bytes).sum();
        prop_assert!(room <= all / u64::from(attributes.ncopies));
    }
}

/// All sets of up to eight devices that differ in what they are for, and all profiles.
#[test]
fn every_set_of_up_to_eight_devices_is_served_as_its_hints_say() {
    use AllocationHint::{
        DataOnly, DataPreferred, Indifferent, MetadataOnly, MetadataPreferred, NoNewChunks,
    };
    let hinted = [DataPreferred, MetadataPreferred, MetadataOnly, DataOnly, NoNewChunks, Indifferent];
    let kinds = hinted.map(|hint| (Bulk, hint)).into_iter();
    // What the host says counts where there are no hints.
    let kinds: Vec<_> = kinds.chain([(Fast, DataPreferred), (Fast, NoNewChunks)]).collect();
    let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
    let mut number = 0;
    while let Some(set) = sets.get(number).cloned() {
        number += 1;
        let devices: Vec<DeviceSummary> = (1..)
            .zip(&set)
            .map(|(devid, kind)| DeviceSummary {
                hint: kinds[*kind].1,
                ..device(devid, kinds[*kind].0, devid << 21)
            })
            .collect();
        for attributes in &Profile::TABLE {
            for (content, mode) in
                [DATA, METADATA].into_iter().flat_map(|content| MODES.map(|mode| (content, mode)))
            {
                assert_right(&devices, &request(content, attributes.profile, mode));
            }
        }
        if set.len() < 8 {
            let last = set.last().copied().unwrap_or(0);
            sets.extend((last..kinds.len()).map(|kind| set.iter().copied().chain([kind]).collect()));
        }
    }
    assert_eq!(sets.len(), 12870, "as many as there are");
}

#[test]
fn the_fast_tier_lies_on_devices_that_rather_hold_metadata_or_nowhere() {
    let fast = |profile| ChunkRequest { tier: Fast, ..request(DATA, profile, PlacementMode::Preferred) };
    let of = |devices: &[DeviceSummary], profile| place_chunk(devices, &fast(profile)).map(|plan| ids(&plan));
    assert_eq!(of(&five(), Profile::Raid1), Ok(vec![1, 2]));
    assert_eq!(of(&five(), Profile::Raid5), Ok(vec![1, 2, 3]));
    assert!(of(&five(), Profile::Raid1c4).is_err(), "redundancy is not traded for speed");
    let mut hinted = five();
    hinted[0].hint = AllocationHint::MetadataOnly;
    hinted[4].hint = AllocationHint::MetadataPreferred;
    assert_eq!(of(&hinted, Profile::Single), Ok(vec![6]));
    assert!(of(&hinted, Profile::Raid1).is_err(), "what is for metadata alone is given no data");
    let classes = classes(&hinted);
    assert_eq!(classes, [Fast, Bulk, Bulk, Bulk, Fast]);
}

#[test]
fn room_is_counted_by_profile_and_class() {
    let devices = [device(1, Fast, 100 * GIB), device(2, Bulk, 3000 * GIB), device(3, Bulk, 1000 * GIB)];
    let room = |content, profile, mode| room_for(&devices, &request(content, profile, mode)) / GIB;
    assert_eq!(room(DATA, Profile::Raid1, PlacementMode::Strict), 1000, "the larger one finds no partner");
    assert_eq!(room(DATA, Profile::Raid1, PlacementMode::Preferred), 1100);
    assert_eq!(room(DATA, Profile::Single, PlacementMode::Strict), 4000);
    assert_eq!(room(METADATA, Profile::Raid1, PlacementMode::Strict), 0);
    assert_eq!(room(METADATA, Profile::Dup, PlacementMode::Strict), 50);
}

#[test]
fn a_quarter_of_a_fast_device_is_for_metadata() {
    assert_eq!(room_for_fast_data(100, 0, 100), 75);
    assert_eq!(room_for_fast_data(100, 20, 80), 75, "what metadata has counts");
    assert_eq!(room_for_fast_data(100, 30, 70), 70);
    assert_eq!(room_for_fast_data(100, 5, 10), 0);
}

#[test]
fn an_extent_has_the_best_tier_of_its_owners() {
    let best = |owners: &[DataTier]| tier_of_owners(owners.iter().copied(), 2);
    let [fast, bulk] = [Fast, Bulk].map(DataTier::from);
    assert_eq!(best(&[bulk, fast, bulk]), fast);
    assert_eq!((best(&[bulk]), best(&[])), (bulk, bulk));
    let class = |side, rank| DataTier { side, rank: Some(rank) };
    let order = [class(Bulk, 4), class(Bulk, 3), bulk, class(Bulk, 2), fast, class(Fast, 1), class(Fast, 0)];
    for pair in order.windows(2) {
        assert_eq!(best(pair), pair[1], "{pair:?}");
    }
}

mod classes;
mod fast_tier;
mod ssd_metadata;
