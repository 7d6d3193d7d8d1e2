//! Classes within the sides: the lowest ranks that are enough.

use super::*;

fn of_rank(devid: u64, rank: u8, free: u64) -> DeviceSummary {
    let class = if rank < 2 { Fast } else { Bulk };
    DeviceSummary { rank, ..device(devid, class, free) }
}

/// One device of each of four classes: 1 is the fastest and smallest, 4 the slowest and largest.
fn four() -> Vec<DeviceSummary> {
    (0..4).map(|rank| of_rank(u64::from(rank) + 1, rank, (10 * GIB) << (2 * rank))).collect()
}

fn without(devices: &[DeviceSummary], full: &[u64]) -> Vec<DeviceSummary> {
    let is_full = |device: &DeviceSummary| full.contains(&device.devid.get());
    let empty = |device: &DeviceSummary| match is_full(device) {
        true => DeviceSummary { max_available_bytes: 0, total_available_bytes: 0, ..*device },
        false => *device,
    };
    devices.iter().map(empty).collect()
}

#[test]
fn metadata_takes_the_fastest_class_with_room_and_the_slowest_last() {
    let single = |full: &[u64]| placed(&without(&four(), full), METADATA, Profile::Single);
    assert_eq!(single(&[]), [1]);
    assert_eq!(single(&[1]), [2]);
    assert_eq!(single(&[1, 2]), [3]);
    assert_eq!(single(&[1, 2, 3]), [4]);
    assert_eq!(placed(&four(), METADATA, Profile::Raid1), [1, 2]);
    assert_eq!(placed(&four(), METADATA, Profile::Raid1c3), [1, 2, 3]);
}

#[test]
fn data_takes_the_fastest_bulk_class_and_spills_to_the_slowest_fast_one() {
    let single = |full: &[u64]| placed(&without(&four(), full), DATA, Profile::Single);
    assert_eq!(single(&[]), [3]);
    assert_eq!(single(&[3]), [4]);
    assert_eq!(single(&[3, 4]), [2]);
    assert_eq!(single(&[2, 3, 4]), [1]);
    assert_eq!(placed(&four(), DATA, Profile::Raid1), [3, 4]);
}

#[test]
fn ranks_that_are_not_asked_for_hold_nothing() {
    let of = |ranks: Ranks, tier| {
        let request =
            ChunkRequest { ranks, tier, ..request(DATA, Profile::Single, PlacementMode::Preferred) };
        place_chunk(&four(), &request).ok().map(|plan| ids(&plan))
    };
    let one = |rank| Ranks { first: rank, last: rank };
    assert_eq!((of(one(3), Bulk), of(one(2), Bulk)), (Some(vec![4]), Some(vec![3])));
    assert_eq!((of(one(0), Fast), of(one(1), Fast)), (Some(vec![1]), Some(vec![2])));
    assert_eq!(of(one(3), Fast), None);
    // They make no difference where classes make none.
    let classic = ChunkRequest { ranks: one(0), ..request(DATA, Profile::Single, PlacementMode::Classic) };
    assert_eq!(place_chunk(&four(), &classic).map(|plan| ids(&plan)), Ok(vec![4]));
}

/// Devices in the order in which content of one copy a device takes them, by the plainest means: side, rank, room.
fn by_preference(devices: &[DeviceSummary], is_data: bool) -> Vec<u64> {
    let mut order: Vec<&DeviceSummary> =
        devices.iter().filter(|device| device.max_available_bytes >= GIB).collect();
    order.sort_by_key(|device| {
        let is_home = (device.class == Bulk) == is_data;
        let rank = if is_data && !is_home { 100 - device.rank } else { device.rank };
        (!is_home, rank, Reverse(device.max_available_bytes), device.devid)
    });
    order.into_iter().map(|device| device.devid.get()).collect()
}

proptest! {
    #[test]
    fn mirrors_lie_on_the_first_devices_by_side_rank_and_room(
        devices in proptest::collection::vec((0..5u8, 0..6u64), 1..9),
        is_data in any::<bool>(),
        copies in 1..=4usize,
    ) {
        let device = |(index, (rank, free)): (usize, &(u8, u64))| of_rank(index as u64 + 1, *rank, free * GIB);
        let devices: Vec<DeviceSummary> = devices.iter().enumerate().map(device).collect();
        let profile = [Profile::Single, Profile::Raid1, Profile::Raid1c3, Profile::Raid1c4][copies - 1];
        let content = if is_data { DATA } else { METADATA };
        let request = request(content, profile, PlacementMode::Preferred);
        let order = by_preference(&devices, is_data);
        match place_chunk(&devices, &request) {
            Ok(plan) => {
                let mut expected = order[..copies].to_vec();
                expected.sort_unstable();
                prop_assert_eq!(ids(&plan), expected);
            }
            Err(_) => prop_assert!(order.len() < copies),
        }
    }
}
