//! Data that was fetched before it is read is handed out where it lies.

use super::support::*;
use crate::{DataChecksums, Volume};
use brindle_ondisk::{Logical, Profile, to_u64};
use brindle_policy::read::{ReadPolicy, ReadSettings};
use std::sync::Arc;

const SHAPES: [(Profile, usize); 4] =
    [(Profile::Single, 1), (Profile::Raid0, 2), (Profile::Raid1, 2), (Profile::Raid5, 3)];
const LENGTH: usize = 256 << 10;

/// A pool in which a range from its start on was fetched.
fn fetching(pool: &TestPool) -> (Volume, Vec<Arc<Faulty>>) {
    let devices = pool.devices(&[]);
    let volume = pool.open_devices(devices.clone());
    volume.set_read_settings(ReadSettings::of(ReadPolicy::Auto));
    assert_eq!(volume.prefetch(START, to_u64(LENGTH)), to_u64(LENGTH));
    (volume, devices)
}

fn reads_of(devices: &[Arc<Faulty>]) -> usize {
    devices.iter().map(|device| device.reads.lock().expect("no panic").len()).sum()
}

#[test]
fn fetched_bytes_are_the_contents_and_need_no_further_request() {
    for (profile, stripes) in SHAPES {
        let pool = TestPool::new(profile, stripes, 16, &mut rng(7));
        let (volume, devices) = fetching(&pool);
        let before = reads_of(&devices);
        let sums = &pool.checksums[..LENGTH / SECTOR * 4];
        let fetched = volume.fetched(START, to_u64(LENGTH)).expect("all of it");
        let parts = fetched.verified(&DataChecksums::all(sums)).expect("of whole sectors").expect("right");
        let found: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        assert!(found == pool.contents[..LENGTH], "{profile:?}");
        assert_eq!(reads_of(&devices), before, "{profile:?}");
        assert_eq!(
            volume.snapshot().choosing.prefetched().bytes(),
            0,
            "{profile:?}: nothing waits for a reader"
        );
        assert!(volume.fetched(START, to_u64(SECTOR)).is_none(), "{profile:?}: it was read");
    }
}

#[test]
fn a_range_that_was_fetched_in_part_is_not_handed_out() {
    let pool = TestPool::new(Profile::Single, 1, 16, &mut rng(7));
    let (volume, _) = fetching(&pool);
    assert!(volume.fetched(START, to_u64(LENGTH + SECTOR)).is_none());
    assert!(volume.fetched(START + to_u64(LENGTH), to_u64(SECTOR)).is_none());
    assert!(volume.fetched(Logical::new(u64::MAX - 1), 4096).is_none());
    let inner = volume.fetched(START + to_u64(SECTOR), to_u64(SECTOR)).expect("a part of it");
    let parts = inner.verified(&DataChecksums::none()).expect("a sector").expect("an answer");
    assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), SECTOR);
    let odd = volume.fetched(START, 100).expect("a part of it");
    odd.verified(&DataChecksums::none()).expect_err("not a whole sector");
}

#[test]
fn a_wrong_sector_is_left_to_a_read_that_recovers_it() {
    let pool = TestPool::new(Profile::Raid1, 2, 16, &mut rng(7));
    let (volume, _) = fetching(&pool);
    let mut wrong = pool.checksums[..LENGTH / SECTOR * 4].to_vec();
    wrong[9 * 4] ^= 1;
    let fetched = volume.fetched(START, to_u64(LENGTH)).expect("all of it");
    assert!(fetched.verified(&DataChecksums::all(&wrong)).expect("of whole sectors").is_none());
    let mut found = vec![0; LENGTH];
    let sums = DataChecksums::all(&pool.checksums[..LENGTH / SECTOR * 4]);
    volume.read_data(START, &mut found, &sums).expect("readable");
    assert!(found == pool.contents[..LENGTH]);
}

#[test]
fn a_range_that_a_device_did_not_answer_is_left_to_a_read_that_tells_of_it() {
    let mut pool = TestPool::new(Profile::Single, 1, 16, &mut rng(7));
    let (stripe, offset) = pool.copies_of(2 * SECTOR)[0];
    let (device, place) = pool.place(stripe, offset);
    pool.bad.push((device, to_u64(place)..to_u64(place) + 1));
    let (volume, _) = fetching(&pool);
    let sums = DataChecksums::all(&pool.checksums[..LENGTH / SECTOR * 4]);
    let fetched = volume.fetched(START, to_u64(LENGTH)).expect("all of it");
    assert!(fetched.verified(&sums).expect("of whole sectors").is_none());
    volume.read_data(START, &mut vec![0; LENGTH], &sums).expect_err("the only copy");
    let behind = START + to_u64(3 * SECTOR);
    let sums = DataChecksums::all(&pool.checksums[12..][..4]);
    volume.read_data(behind, &mut vec![0; SECTOR], &sums).expect("the rest is right");
}
