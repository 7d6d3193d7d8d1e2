//! Long ranges are fetched past the host's cache, unless they are in it.

use super::support::*;
use crate::DataChecksums;
use brindle_ondisk::{Profile, to_u64};
use brindle_policy::read::{ReadPolicy, ReadSettings};
use std::ops::Range;
use std::sync::Arc;

const SHAPES: [(Profile, usize); 4] =
    [(Profile::Single, 1), (Profile::Raid0, 2), (Profile::Raid1, 2), (Profile::Raid5, 3)];

/// Work of the devices for a prefetch, in bytes: those read past the cache, those that the host was told to fetch, and those read
/// otherwise. The range is right afterwards.
fn fetched(shape: (Profile, usize), policy: ReadPolicy, cached: Range<u64>, length: usize) -> [u64; 3] {
    let pool = TestPool::new(shape.0, shape.1, 16, &mut rng(7));
    let mut devices = pool.devices(&[]);
    for device in &mut devices {
        Arc::get_mut(device).expect("just made").cached = Some(vec![cached.clone()]);
    }
    let volume = pool.open_devices(devices.clone());
    volume.set_read_settings(ReadSettings::of(policy));
    devices.iter().for_each(|device| device.reads.lock().expect("no panic").clear());
    assert_eq!(volume.prefetch(START, to_u64(length)), to_u64(length));
    let of = |list: fn(&Faulty) -> &std::sync::Mutex<Vec<Range<u64>>>| {
        let bytes = |device: &Arc<Faulty>| -> u64 {
            list(device).lock().expect("no panic").iter().map(|range| range.end - range.start).sum()
        };
        devices.iter().map(bytes).sum::<u64>()
    };
    let bypassed = of(|device| &device.bypassed);
    let answer = [bypassed, of(|device| &device.hinted), of(|device| &device.reads) - bypassed];
    let mut found = vec![0; length];
    volume.read_data(START, &mut found, &DataChecksums::none()).expect("readable");
    assert!(found == pool.contents[..length], "{shape:?}");
    assert_eq!(volume.snapshot().choosing.prefetched().bytes(), 0, "{shape:?}: memory is given back");
    answer
}

#[test]
fn a_long_range_that_the_host_does_not_have_is_read_past_its_cache() {
    for shape in SHAPES {
        for policy in [ReadPolicy::Auto, ReadPolicy::Pid] {
            assert_eq!(fetched(shape, policy, 0..0, 512 << 10), [512 << 10, 0, 0], "{shape:?} {policy:?}");
        }
    }
}

#[test]
fn a_range_that_the_host_has_is_left_to_it() {
    for shape in SHAPES {
        let is_mirrored = shape.0 == Profile::Raid1;
        let [bypassed, hinted, read] = fetched(shape, ReadPolicy::Auto, 0..u64::MAX, 512 << 10);
        assert_eq!((bypassed, read), (0, 0), "{shape:?}");
        assert_eq!(hinted, if is_mirrored { 0 } else { 512 << 10 }, "{shape:?}");
    }
}

#[test]
fn a_short_range_is_left_to_the_host() {
    for shape in [SHAPES[0], SHAPES[1], SHAPES[3]] {
        assert_eq!(fetched(shape, ReadPolicy::Auto, 0..0, 128 << 10), [0, 128 << 10, 0], "{shape:?}");
    }
    assert_eq!(fetched(SHAPES[2], ReadPolicy::Auto, 0..0, 128 << 10), [0, 0, 128 << 10]);
}
