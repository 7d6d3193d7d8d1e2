//! Disks that become larger while their cache is in use, and before it is loaded.

use crate::world::{BLOCK, SMALL, contents, open, open_mirrored};
use brindle_cache::{Cache, CacheError, MirrorState, inspect};
use brindle_device::{Device, DeviceError, WritableDevice};
use brindle_sim::ImageDevice;

const LARGER: u64 = SMALL.disk_bytes + 512 * 1024 + 512;

fn write(cache: &Cache, block: u64, fill: u8) {
    cache.write_at(block * BLOCK, &[fill; 1024]).expect("it works");
    cache.flush().expect("it works");
}

/// Grows a disk under its cache, and writes on both sides of the end that it had.
fn grow(cache: &Cache, disk: &ImageDevice) {
    let end = SMALL.disk_bytes / BLOCK;
    write(cache, end - 1, 1);
    cache.write_at(SMALL.disk_bytes, &[1]).expect_err("beyond the end");
    disk.set_size(LARGER).expect("memory");
    cache.write_at(SMALL.disk_bytes, &[1]).expect_err("it was not asked for yet");
    assert_eq!(cache.refresh_size().expect("it works"), LARGER);
    assert_eq!((cache.size_bytes(), cache.refresh_size().expect("once")), (LARGER, LARGER));
    write(cache, end, 2);
    write(cache, LARGER / BLOCK - 1, 3);
    cache.write_at(LARGER - 512, &[4; 512]).expect("the rest that no block has");
    cache.flush().expect("it works");
    cache.verify().expect("sums agree");
}

fn assert_grown(found: &[u8]) {
    let at = |place: u64| found[usize::try_from(place).expect("small")];
    let end = SMALL.disk_bytes;
    assert_eq!(found.len() as u64, LARGER);
    assert_eq!([at(end - 1024), at(end), at(LARGER - 1536), at(LARGER - 512)], [1, 2, 3, 4]);
}

#[test]
fn a_disk_that_grows_in_use_is_cached_to_its_end() {
    let devices = SMALL.devices();
    let cache = SMALL.create(&devices);
    assert!(cache.veil().expect("it works"));
    grow(&cache, &devices[1]);
    assert!(cache.status().dirty_blocks >= 8 + 3);
    drop(cache);
    let cache = open(&devices, false).expect("as after a crash");
    assert_grown(&contents(&cache));
    assert!(cache.veil().expect("it works"));
    cache.close().expect("it works");
    assert_grown(&contents(&*devices[1]));
    assert!(
        open(&devices, false).expect("it was closed").status().cached_blocks > 0,
        "the samples are the same"
    );
}

#[test]
fn both_ssds_of_a_mirror_know_the_size() {
    let devices = SMALL.mirrored_devices();
    let cache = SMALL.create_mirrored(&devices).expect("it can be made");
    assert!(cache.veil().expect("it works"));
    grow(&cache, &devices[2]);
    drop(cache);
    for half in [0, 1] {
        let size = inspect(&*devices[half]).expect("a cache").disk_bytes;
        assert_eq!(size, LARGER);
    }
    let cache = open_mirrored(&devices, false).expect("as after a crash");
    assert_eq!(cache.status().mirror, Some(MirrorState::InSync));
    assert_grown(&contents(&cache));
}

#[test]
fn a_disk_that_grew_meanwhile_has_the_size_that_it_had_until_it_is_asked_for() {
    for closes in [false, true] {
        let devices = SMALL.devices();
        let cache = SMALL.create(&devices);
        assert!(cache.veil().expect("it works"));
        write(&cache, 100, 9);
        devices[1].set_size(LARGER).expect("memory");
        if closes {
            cache.close().expect("it works");
        }
        drop(cache);
        let cache = open(&devices, false).expect("it is the same disk");
        assert_eq!((cache.size_bytes(), contents(&cache)[100 << 10]), (SMALL.disk_bytes, 9));
        assert!(cache.status().cached_blocks > 0, "the samples are of the size that it had");
        grow(&cache, &devices[1]);
        assert_grown(&contents(&cache));
    }
}

#[test]
fn a_disk_that_became_shorter_is_refused() {
    let devices = SMALL.devices();
    let cache = SMALL.create(&devices);
    devices[1].set_size(SMALL.disk_bytes - 4096).expect("memory");
    let refused = cache.refresh_size().expect_err("it is shorter");
    assert!(matches!(refused, DeviceError::Open { .. }), "{refused}");
    assert_eq!(cache.size_bytes(), SMALL.disk_bytes);
    drop(cache);
    assert!(matches!(open(&devices, false), Err(CacheError::Size { .. })));
}
