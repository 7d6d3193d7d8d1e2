//! The veil: a disk that is in use by a write-back cache can't be taken for a complete one.

use crate::world::{BLOCK, SMALL, Shape, TestClock, contents, open};
use brindle_cache::{
    Cache, CacheError, CreateOptions, DestroyedCache, Mode, create, destroy, disk_mark, inspect, load_to_read,
};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_sim::{Fault, FaultyDevice, ImageDevice};
use std::sync::Arc;

/// Place of the superblock of btrfs.
const BTRFS: u64 = 64 << 10;

/// A veiled cache with some contents, most of them on the flash alone.
fn veiled() -> ([Arc<ImageDevice>; 2], Cache) {
    let devices = SMALL.devices();
    devices[1].write_at(0, &[7; 4096]).expect("memory");
    devices[1].write_at(BTRFS, &[8; 4096]).expect("memory");
    let cache = SMALL.create(&devices);
    assert!(cache.veil().expect("it works"));
    cache.write_at(100 * BLOCK, &[9; 2048]).expect("it works");
    cache.flush().expect("it works");
    (devices, cache)
}

#[test]
fn a_disk_in_use_shows_the_mark_and_a_disk_after_the_end_everything() {
    let (devices, cache) = veiled();
    let mark = disk_mark(&*devices[1]).expect("memory").expect("it is there");
    assert_eq!((mark.name.as_str(), mark.flash.as_str(), mark.uuid), ("pair", "flash", [1; 16]));
    assert!(inspect(&*devices[0]).expect("a cache").is_veiled);
    for place in [0, BTRFS] {
        let mut bytes = [0; 4096];
        devices[1].read_at(place, &mut bytes).expect("memory");
        assert!(!bytes.contains(&7) && !bytes.contains(&8), "the contents are not on the disk");
    }
    let expected = contents(&cache);
    assert_eq!((expected[0], expected[65536], expected[100 << 10]), (7, 8, 9));
    // All can be cleaned but the blocks of the mark.
    assert_eq!(cache.clean_all().expect("it works"), 8);
    cache.write_at(BTRFS, &[10; 1024]).expect("it works");
    assert!(cache.discard(0, 8192).expect("it works"), "a discard leaves the mark");
    assert!(disk_mark(&*devices[1]).expect("memory").is_some());
    let expected = contents(&cache);
    assert_eq!((expected[0], expected[65536]), (0, 10));
    cache.close().expect("it works");
    assert_eq!(disk_mark(&*devices[1]).expect("memory"), None);
    assert_eq!(contents(&*devices[1]), expected);
    assert!(!inspect(&*devices[0]).expect("a cache").is_veiled);
}

#[test]
fn a_disk_that_was_made_anew_after_a_crash_is_refused() {
    let (devices, cache) = veiled();
    drop(cache);
    devices[1].write_at(BTRFS, &[3; 4096]).expect("memory");
    let refused = open(&devices, false).expect_err("it lost the mark");
    assert!(matches!(refused, CacheError::DiskChanged { dirty_blocks: 10, .. }), "{refused}");
    let forced = open(&devices, true).expect("forced");
    let found = contents(&forced);
    assert_eq!((found[0], found[65536], found[100 << 10]), (7, 3, 0), "what is under the mark is kept");
    forced.close().expect("it works");
    assert_eq!(contents(&*devices[1]), found);
}

#[test]
fn a_cache_that_is_closed_with_dirty_blocks_leaves_the_mark() {
    let (devices, cache) = veiled();
    cache.set("fast_remove", "1").expect("a setting");
    cache.close().expect("it works");
    assert!(disk_mark(&*devices[1]).expect("memory").is_some());
    let cache = open(&devices, false).expect("nothing has changed");
    let found = contents(&cache);
    assert_eq!((found[0], found[65536], found[100 << 10]), (7, 8, 9));
    cache.veil().expect("it works");
    cache.close().expect("it works");
    assert_eq!(contents(&*devices[1]), found);
}

#[test]
fn a_flash_that_fails_tears_the_veil_and_loses_nothing() {
    let plain = SMALL.devices();
    let devices = plain.clone().map(|device| Arc::new(FaultyDevice::new(device)));
    let cache = SMALL.create(&devices);
    assert!(cache.veil().expect("it works"));
    devices[0].inject(Fault::WritesWithin(64 << 10..u64::MAX));
    cache.write_at(BTRFS, &[5; 1024]).expect("the disk takes it");
    assert_eq!(contents(&cache)[65536], 5);
    assert!(!inspect(&*plain[0]).expect("a cache").is_veiled, "a crash is not taken for a disk made anew");
    drop(cache);
    drop(open(&plain, false).expect("nobody else wrote the disk"));
    // Without a word in the superblock, nothing is written.
    let cache = open(&devices, false).expect("the superblock can be written");
    devices[0].heal();
    assert!(cache.veil().expect("it works"));
    devices[0].inject(Fault::WritesWithin(0..u64::MAX));
    cache.write_at(BTRFS, &[6; 1024]).expect_err("neither the flash nor its superblock can be written");
    devices[0].heal();
    drop(cache);
    assert_eq!(contents(&open(&plain, false).expect("the mark is there"))[65536], 0);
}

/// Copies of devices as they are now.
fn copies(devices: &[Arc<ImageDevice>; 2]) -> [Arc<ImageDevice>; 2] {
    let copy =
        |device: &Arc<ImageDevice>| Arc::new(ImageDevice::new(device.name(), device.image(), device.class()));
    devices.each_ref().map(copy)
}

#[test]
fn the_disk_of_another_cache_is_refused() {
    let (devices, cache) = veiled();
    drop(cache);
    let [other_flash, other_disk] = SMALL.devices();
    let options = CreateOptions { uuids: [[9; 16]; 3], name: "other".to_owned(), ..SMALL.options() };
    let made = |flash: &Arc<ImageDevice>, disk: &Arc<ImageDevice>, options: &CreateOptions| {
        create(Arc::clone(flash) as _, Arc::clone(disk) as _, options, Arc::new(TestClock::default()))
    };
    drop(made(&other_flash, &other_disk, &options).expect("a new pair"));
    let before = devices[1].image();
    let wrong = [Arc::clone(&other_flash), Arc::clone(&devices[1])];
    let refused = open(&wrong, false).expect_err("the wrong flash").to_string();
    assert_eq!(
        refused,
        "disk is the disk of the flash cache pair on flash, and incomplete without: flash is another one"
    );
    // Nor is a cache made for it, by whatever force, over the flash that it needs least of all.
    for (flash, is_forced) in [(&other_flash, true), (&devices[0], true), (&devices[0], false)] {
        let refused = made(flash, &devices[1], &CreateOptions { is_forced, ..options.clone() });
        assert!(matches!(refused, Err(CacheError::OtherCache { .. })), "{refused:?}");
    }
    assert_eq!(devices[1].image(), before, "nothing was written");
    // One place is enough.
    devices[1].write_at(0, &[0; 4096]).expect("memory");
    assert!(matches!(open(&wrong, false), Err(CacheError::OtherCache { .. })));
    devices[1]
        .write_at(0, &contents(&*Arc::new(ImageDevice::new("b", before, DeviceClass::Unknown)))[..4096])
        .expect("memory");
    let found = contents(&open(&devices, false).expect("the right one"));
    assert_eq!((found[0], found[65536], found[100 << 10]), (7, 8, 9));
}

#[test]
fn an_earlier_state_of_the_flash_is_refused() {
    let (devices, cache) = veiled();
    let [in_use, _] = copies(&devices);
    cache.close().expect("it works");
    let [closed, whole] = copies(&devices);
    let again = open(&devices, false).expect("it was closed");
    assert!(again.veil().expect("it works") && again.veil().expect("once"));
    again.write_at(100 * BLOCK, &[11; 2048]).expect("it works");
    again.flush().expect("it works");
    drop(again);
    for stale in [&in_use, &closed] {
        let pair = [Arc::clone(stale), Arc::clone(&devices[1])];
        let refused = open(&pair, false).expect_err("the disk lacks what it does not have");
        assert!(matches!(refused, CacheError::StaleFlash { .. }), "{refused}");
        let pair = [Arc::clone(stale) as _, Arc::clone(&devices[1]) as _];
        let refused = load_to_read(&pair[0], &pair[1], Arc::new(TestClock::default()));
        assert!(matches!(refused, Err(CacheError::StaleFlash { .. })), "{refused:?}");
    }
    let refused = open(&[in_use, whole], false).expect_err("the disk has it all");
    assert!(matches!(refused, CacheError::DiskChanged { .. }), "{refused}");
    assert_eq!(contents(&open(&devices, false).expect("the right one"))[100 << 10], 11);
}

#[test]
fn a_disk_that_lacks_a_block_at_the_end_keeps_the_mark() {
    // One of the mark, and another one.
    for block in [64, 100] {
        let plain = SMALL.devices();
        let devices = plain.clone().map(|device| Arc::new(FaultyDevice::new(device)));
        let cache = SMALL.create(&devices);
        assert!(cache.veil().expect("it works"));
        cache.write_at(block * BLOCK, &[9; 1024]).expect("it works");
        cache.flush().expect("it works");
        let slot =
            (64..576).find(|slot| contents(&*plain[0])[slot << 10] == 9).expect("it is on the flash") as u64;
        devices[0].inject(Fault::ReadsWithin(slot << 10..(slot + 1) << 10));
        let error = cache.close().expect_err("a block can't be read").to_string();
        assert_eq!(error, "1 dirty blocks on flash can't be read, and disk lacks them");
        assert!(disk_mark(&*plain[1]).expect("memory").is_some());
        drop(cache);
        let cache = open(&plain, false).expect("as after a crash");
        assert!(cache.veil().expect("it works"));
        cache.close().expect("all can be read");
        assert_eq!(contents(&*plain[1])[usize::try_from(block * BLOCK).expect("small")], 9);
    }
}

#[test]
fn a_torn_veil_is_lifted_whole_even_if_dirty_blocks_may_stay() {
    let plain = SMALL.devices();
    let devices = plain.clone().map(|device| Arc::new(FaultyDevice::new(device)));
    let cache = SMALL.create(&devices);
    assert!(cache.veil().expect("it works"));
    devices[0].inject(Fault::WritesWithin(64 << 10..u64::MAX));
    cache.write_at(0, &[9; 1024]).expect("the disk takes it");
    devices[0].heal();
    assert!(!cache.status().is_veiled);
    cache.set("fast_remove", "1").expect("a setting");
    cache.close().expect("it works");
    drop(cache);
    assert_eq!(contents(&open(&plain, false).expect("it was closed"))[0], 9);
}

#[test]
fn a_cache_that_is_destroyed_tells_its_losses() {
    let (devices, cache) = veiled();
    drop(cache);
    let destroyed = destroy(&*devices[0], true).expect("forced");
    let lost_bytes = Some(10 * BLOCK);
    assert_eq!(destroyed, DestroyedCache { disk: Some("disk".to_owned()), lost_bytes, is_veiled: true });
    let devices = SMALL.devices();
    SMALL.create(&devices).close().expect("it works");
    let destroyed = destroy(&*devices[0], false).expect("nothing is lost");
    assert_eq!((destroyed.lost_bytes, destroyed.is_veiled), (Some(0), false));
}

#[test]
fn disks_of_other_modes_are_complete_and_bear_no_mark() {
    for mode in [Mode::Through, Mode::Around] {
        let shape = Shape { mode, ..SMALL };
        let devices = shape.devices();
        assert!(!shape.create(&devices).veil().expect("it works"));
        assert_eq!(disk_mark(&*devices[1]).expect("memory"), None);
    }
}
