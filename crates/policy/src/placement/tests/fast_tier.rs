//! Chunks of the fast tier of data with fewer copies on fast devices than they have.

use super::*;

const MIRRORS: [Profile; 3] = [Profile::Raid1, Profile::Raid1c3, Profile::Raid1c4];

fn split(profile: Profile, copies: usize) -> ChunkRequest {
    let copies_on_fast = Some(copies);
    ChunkRequest { tier: Fast, copies_on_fast, ..request(DATA, profile, PlacementMode::Preferred) }
}

fn chosen(devices: &[DeviceSummary], request: &ChunkRequest) -> Option<Vec<u64>> {
    place_chunk(devices, request).ok().map(|plan| ids(&plan))
}

#[test]
fn a_pool_has_fewer_copies_on_flash_where_a_mirrored_profile_lacks_fast_devices_alone() {
    assert_eq!(copies_on_fast(Profile::Raid1, 1, 2), Some(1));
    assert_eq!(copies_on_fast(Profile::Raid1c3, 2, 3), Some(2));
    assert_eq!(copies_on_fast(Profile::Raid1c4, 1, 4), Some(1));
    assert_eq!(copies_on_fast(Profile::Raid1, 2, 2), None, "all copies lie there");
    assert_eq!(copies_on_fast(Profile::Raid1, 0, 2), None);
    assert_eq!(copies_on_fast(Profile::Raid1, 1, 1), None, "other data lies there as well");
    for profile in [Profile::Raid0, Profile::Raid10, Profile::Raid5, Profile::Raid6] {
        assert_eq!(copies_on_fast(profile, 1, 8), None, "{profile}: reads would come from disks as before");
    }
    for profile in [Profile::Single, Profile::Dup] {
        assert_eq!(copies_on_fast(profile, 1, 8), None, "{profile}: one device is enough");
    }
}

#[test]
fn one_copy_lies_on_the_fast_device_and_the_others_on_the_roomiest_disks() {
    let mut devices = vec![
        device(1, Bulk, 100 * GIB),
        device(2, Fast, 20 * GIB),
        device(3, Bulk, 300 * GIB),
        device(4, Bulk, 200 * GIB),
    ];
    assert_eq!(chosen(&devices, &split(Profile::Raid1, 1)), Some(vec![2, 3]));
    assert_eq!(chosen(&devices, &split(Profile::Raid1c3, 1)), Some(vec![2, 3, 4]));
    let strict = ChunkRequest { mode: PlacementMode::Strict, ..split(Profile::Raid1, 1) };
    assert_eq!(chosen(&devices, &strict), Some(vec![2, 3]), "data may lie on disks in that mode, too");
    devices[2].hint = AllocationHint::NoNewChunks;
    assert_eq!(chosen(&devices, &split(Profile::Raid1, 1)), Some(vec![2, 4]));
    devices[1] = device(2, Fast, 0);
    assert_eq!(chosen(&devices, &split(Profile::Raid1, 1)), None, "a full fast device has no copy");
}

#[test]
fn a_chunk_without_a_copy_on_each_fast_device_is_none_of_the_fast_tier() {
    let devices = [device(1, Fast, GIB), device(2, Fast, 0), device(3, Bulk, GIB), device(4, Bulk, GIB)];
    assert_eq!(chosen(&devices, &split(Profile::Raid1c3, 2)), None);
    let devices = [device(1, Fast, GIB), device(2, Fast, GIB), device(3, Bulk, GIB), device(4, Bulk, 0)];
    assert_eq!(chosen(&devices, &split(Profile::Raid1c3, 2)), Some(vec![1, 2, 3]));
    assert_eq!(chosen(&devices[..2], &split(Profile::Raid1c3, 2)), None, "no copy is left out");
}

#[test]
fn ranks_are_those_of_the_fast_devices() {
    let of_rank = |devid, class, rank| DeviceSummary { rank, ..device(devid, class, GIB) };
    let devices = [of_rank(1, Fast, 1), of_rank(2, Bulk, 3), of_rank(3, Bulk, 2), of_rank(4, Bulk, 3)];
    let of = |first, last| ChunkRequest { ranks: Ranks { first, last }, ..split(Profile::Raid1, 1) };
    assert_eq!(chosen(&devices, &of(1, 1)), Some(vec![1, 3]), "the fastest disk");
    assert_eq!(chosen(&devices, &of(0, 0)), None);
    assert_eq!(chosen(&devices, &of(0, 1)), Some(vec![1, 3]));
}

/// Every pool of up to six devices that are fast or bulk, and have room or none.
#[test]
fn in_all_pools_a_chunk_has_all_copies_and_one_on_each_fast_device() {
    let kinds = [(Fast, GIB), (Fast, 0), (Bulk, GIB), (Bulk, 0)];
    let mut placed = 0;
    for number in 0..4u32.pow(6) {
        for count in 1..=6 {
            let kind = |devid: u32| kinds[usize::try_from(number >> (2 * devid) & 3).expect("small")];
            let devices: Vec<DeviceSummary> =
                (0..count).map(|devid| device(u64::from(devid) + 1, kind(devid).0, kind(devid).1)).collect();
            let of_class = |class| devices.iter().filter(|device| device.class == class).count();
            for profile in MIRRORS {
                let Some(copies) = copies_on_fast(profile, of_class(Fast), of_class(Bulk)) else { continue };
                let Some(found) = chosen(&devices, &split(profile, copies)) else {
                    let full = devices.iter().filter(|device| device.max_available_bytes == 0);
                    assert_ne!(full.count(), 0, "there was room: {devices:?}");
                    continue;
                };
                placed += 1;
                let on_fast =
                    devices.iter().filter(|one| one.class == Fast && found.contains(&one.devid.get()));
                assert_eq!(on_fast.count(), of_class(Fast), "{devices:?}");
                let distinct: std::collections::BTreeSet<u64> = found.iter().copied().collect();
                assert_eq!(distinct.len(), usize::from(profile.attributes().devs_max));
            }
        }
    }
    assert_ne!(placed, 0);
}
