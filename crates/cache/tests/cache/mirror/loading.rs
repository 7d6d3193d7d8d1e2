//! Two SSDs, one of them, the stale one, strangers.

use super::NARROW;
use crate::world::{BLOCK, SMALL, Shape, contents, open, open_half, open_mirrored};
use brindle_cache::{Cache, CacheError, MirrorState, Mode, add_mirror, destroy, disk_mark, inspect};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_sim::{Fault, FaultyDevice, Image, ImageDevice};
use std::sync::Arc;

type Devices = [Arc<ImageDevice>; 3];

fn mirrored() -> (Devices, Cache) {
    let devices = SMALL.mirrored_devices();
    let cache = SMALL.create_mirrored(&devices).expect("it can be made");
    assert!(cache.veil().expect("it works"));
    (devices, cache)
}

fn write(cache: &Cache, block: u64, fill: u8) {
    cache.write_at(block * BLOCK, &[fill; 1024]).expect("it works");
    cache.flush().expect("it works");
}

fn reads(cache: &Cache, block: u64) -> u8 {
    let mut bytes = [0; 1024];
    cache.read_at(block * BLOCK, &mut bytes).expect("it works");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

fn role(device: &ImageDevice) -> &'static str {
    inspect(device).expect("a cache").mirror.expect("of a mirror")
}

/// A cache from one SSD, in use: the disk bears its mark.
fn alone(devices: &Devices, half: usize) -> Cache {
    let cache = open_half(devices, half, false).expect("it is the newest");
    assert!(cache.veil().expect("it works"));
    assert_eq!(cache.status().mirror, Some(MirrorState::Degraded { failed: None }));
    cache
}

#[test]
fn each_of_both_has_every_dirty_block() {
    let (devices, cache) = mirrored();
    write(&cache, 100, 9);
    let status = cache.status();
    assert_eq!((status.flash.as_str(), status.mirror), ("flash+mirror", Some(MirrorState::InSync)));
    let mark = disk_mark(&*devices[2]).expect("memory").expect("it is there");
    assert_eq!(mark.flash, "flash+mirror", "the word for both");
    drop(cache);
    for half in [0, 1] {
        let copies = devices
            .each_ref()
            .map(|device| Arc::new(ImageDevice::new(device.name(), device.image(), DeviceClass::Unknown)));
        assert_eq!(reads(&alone(&copies, half), 100), 9);
        let again = alone(&copies, half);
        assert_eq!((reads(&again, 100), role(&copies[half])), (9, "alone"));
        again.close().expect("it works");
        assert_eq!(contents(&*copies[2])[100 << 10], 9);
    }
    let cache = open_mirrored(&devices, false).expect("both are there");
    assert_eq!((reads(&cache, 100), cache.status().mirror), (9, Some(MirrorState::InSync)));
}

#[test]
fn an_ssd_that_was_away_is_refused_alone_and_brought_up_to_date_with_the_other() {
    for (half, closes) in [(0, false), (0, true), (1, false), (1, true)] {
        let (devices, cache) = mirrored();
        write(&cache, 100, 1);
        drop(cache);
        let cache = alone(&devices, half);
        write(&cache, 100, 2);
        write(&cache, 101, 3);
        if closes {
            cache.set("fast_remove", "1").expect("a setting");
            cache.close().expect("it works");
        }
        drop(cache);
        let stale = 1 - half;
        let refused = open_half(&devices, stale, false).expect_err("it is stale");
        assert!(matches!(refused, CacheError::StaleFlash { .. }), "{refused}");
        let cache = open_mirrored(&devices, false).expect("one is the newest");
        assert!(cache.veil().expect("it works"));
        assert_eq!(cache.status().mirror, Some(MirrorState::InSync));
        assert_eq!((reads(&cache, 100), reads(&cache, 101)), (2, 3));
        assert_eq!((role(&devices[0]), role(&devices[1])), ("in sync", "in sync"));
        write(&cache, 102, 4);
        drop(cache);
        let cache = alone(&devices, stale);
        assert_eq!([100, 101, 102].map(|block| reads(&cache, block)), [2, 3, 4]);
    }
}

#[test]
fn an_ssd_that_was_away_is_refused_after_a_clean_end_of_the_other() {
    let (devices, cache) = mirrored();
    write(&cache, 100, 1);
    drop(cache);
    let cache = alone(&devices, 0);
    write(&cache, 100, 2);
    cache.close().expect("it works");
    // The disk bears no mark, and the other SSD has an older block.
    let refused = open_half(&devices, 1, false).expect_err("it is stale");
    assert!(matches!(refused, CacheError::DiskChanged { .. }), "{refused}");
    let cache = open_mirrored(&devices, false).expect("one is the newest");
    assert_eq!(reads(&cache, 100), 2);
}

#[test]
fn clean_blocks_of_one_ssd_are_not_trusted() {
    let (devices, cache) = mirrored();
    write(&cache, 100, 1);
    cache.close().expect("it works");
    let both = open_mirrored(&devices, false).expect("it was closed");
    assert!(both.status().cached_blocks > 0, "neither was alone");
    both.close().expect("it works");
    let cache = alone(&devices, 0);
    // To the disk, around the cache and outside of the samples.
    cache.set("cache_all", "0").expect("a setting");
    write(&cache, 100, 2);
    cache.close().expect("it works");
    assert_eq!(reads(&open_half(&devices, 1, false).expect("it has no dirty block"), 100), 2);
}

#[test]
fn two_that_were_each_used_alone_are_refused_together() {
    let (devices, cache) = mirrored();
    cache.close().expect("it works");
    for half in [0, 1] {
        let cache = alone(&devices, half);
        write(&cache, 100, 7 + u8::try_from(half).expect("small"));
        cache.close().expect("it works");
    }
    let refused = open_mirrored(&devices, false).expect_err("which one counts?");
    assert!(matches!(refused, CacheError::Diverged { .. }), "{refused}");
    add_mirror(&*devices[1], &*devices[0], [9; 16], false).expect_err("it holds a cache");
    add_mirror(&*devices[1], &*devices[0], [9; 16], true).expect("forced");
    assert_eq!((role(&devices[0]), role(&devices[1])), ("behind", "alone"));
    let refused = open_half(&devices, 0, true).expect_err("it has nothing");
    assert!(matches!(refused, CacheError::Behind { .. }), "{refused}");
    let cache = open_mirrored(&devices, false).expect("one counts");
    assert_eq!((reads(&cache, 100), role(&devices[0])), (8, "in sync"));
}

#[test]
fn a_cache_on_one_ssd_gets_a_mirror_and_a_lost_one_is_replaced() {
    let [first, second, disk] = SMALL.mirrored_devices();
    let pair = [Arc::clone(&first), Arc::clone(&disk)];
    let cache = SMALL.create(&pair);
    assert!(cache.veil().expect("it works"));
    write(&cache, 100, 1);
    drop(cache);
    let short = ImageDevice::new("short", Image::new(SMALL.flash_bytes - 4096), DeviceClass::Solid);
    let refused = add_mirror(&*first, &short, [8; 16], false).expect_err("no room");
    assert!(matches!(refused, CacheError::Size { .. }), "{refused}");
    let devices = [first, second, disk];
    let refused = open_mirrored(&devices, false).expect_err("an empty one");
    assert!(matches!(refused, CacheError::NoCache { .. }), "{refused}");
    let before = contents(&*devices[0]);
    add_mirror(&*devices[0], &*devices[1], [6; 16], false).expect("it is empty");
    // The power is cut between the two.
    devices[0].write_at(0, &before).expect("memory");
    let refused = open_mirrored(&devices, false).expect_err("one of them knows");
    assert!(matches!(refused, CacheError::NoMirror { .. }), "{refused}");
    add_mirror(&*devices[0], &*devices[1], [8; 16], false).expect("it is nothing else");
    let cache = open_mirrored(&devices, false).expect("both are there");
    assert!(cache.veil().expect("it works"));
    write(&cache, 101, 2);
    drop(cache);
    // The first one is lost, and replaced.
    let new = Arc::new(ImageDevice::new("new", Image::new(SMALL.flash_bytes), DeviceClass::Solid));
    add_mirror(&*devices[1], &*new, [7; 16], false).expect("it is empty");
    let refused = open_mirrored(&devices, false).expect_err("it was replaced");
    assert!(matches!(refused, CacheError::NoMirror { .. }), "{refused}");
    let [lost, second, disk] = devices;
    let replaced = [Arc::clone(&new), second, Arc::clone(&disk)];
    let cache = open_mirrored(&replaced, false).expect("both are there");
    assert!(cache.veil().expect("it works"));
    write(&cache, 102, 3);
    drop(cache);
    let cache = alone(&replaced, 0);
    assert_eq!([100, 101, 102].map(|block| reads(&cache, block)), [1, 2, 3]);
    drop(cache);
    let refused = open(&[lost, disk], false).expect_err("it is stale");
    assert!(matches!(refused, CacheError::StaleFlash { .. }), "{refused}");
}

#[test]
fn ssds_that_cannot_be_read_or_are_damaged_are_left_out() {
    for damages_table in [false, true] {
        let (devices, cache) = mirrored();
        write(&cache, 100, 1);
        write(&cache, 100, 2);
        drop(cache);
        // Within the entries, or the uuids.
        let places = if damages_table { 2..8 } else { 0..2 };
        for page in places {
            devices[0].write_at(page * 4096 + 40, &[0xa5; 64]).expect("memory");
        }
        let cache = open_mirrored(&devices, false).expect("the other one is whole");
        assert!(cache.veil().expect("it works"));
        assert_eq!(reads(&cache, 100), 2);
        let is_mended = cache.status().mirror == Some(MirrorState::InSync);
        assert_eq!(is_mended, damages_table, "without a superblock it is no mirror");
        write(&cache, 100, 3);
        drop(cache);
        if damages_table {
            assert_eq!(reads(&alone(&devices, 0), 100), 3);
        }
    }
}

#[test]
fn an_ssd_alone_is_the_newest_though_its_mark_was_twice_not_written() {
    let (devices, cache) = mirrored();
    write(&cache, 100, 1);
    drop(cache);
    for _ in 0..2 {
        let failing = devices.each_ref().map(|device| Arc::new(FaultyDevice::new(Arc::clone(device) as _)));
        let cache = open_half(&failing, 0, false).expect("it is the newest");
        failing[2].inject(Fault::WritesWithin(0..4096));
        cache.veil().expect_err("the mark can't be written");
    }
    assert_eq!(reads(&alone(&devices, 0), 100), 1);
}

#[test]
fn an_ssd_that_fails_while_the_cache_is_loaded_spoils_nothing_of_its_mirror() {
    let faults = |number| [Fault::VanishAfter { calls: number }, Fault::WrongRead { number }];
    let both = |fault: Fault| [0, 1].map(|half| (half, fault.clone()));
    for (half, fault) in (0..40).flat_map(faults).flat_map(both) {
        let (devices, cache) = mirrored();
        write(&cache, 100, 1);
        drop(cache);
        let failing = devices.each_ref().map(|device| Arc::new(FaultyDevice::new(Arc::clone(device) as _)));
        failing[half].inject(fault.clone());
        let cache = open_mirrored(&failing, false).expect("it goes on with the other one");
        assert_eq!(reads(&cache, 100), 1, "SSD {half}, {fault:?}");
        drop(cache);
        let cache = open_half(&devices, 1 - half, false);
        let cache = cache.unwrap_or_else(|error| panic!("SSD {half}, {fault:?}: {error}"));
        assert_eq!(reads(&cache, 100), 1, "SSD {half}, {fault:?}: the other one alone");
    }
}

#[test]
fn a_slot_is_not_written_over_by_a_wrong_one_of_its_mirror() {
    for is_behind in [false, true] {
        let (devices, cache) = mirrored();
        let blocks: Vec<u64> = (100..124).collect();
        let fill = |block: u64| u8::try_from(block).expect("small");
        blocks.iter().for_each(|block| write(&cache, *block, fill(*block)));
        drop(cache);
        if is_behind {
            let cache = alone(&devices, 1);
            write(&cache, 0, 1);
        } else {
            // Its table can't be read, so that all of its slots are copied from the other one.
            for page in 2..8 {
                devices[0].write_at(page * 4096 + 40, &[0xa5; 64]).expect("memory");
            }
        }
        let whole = contents(&*devices[1]);
        for block in blocks.iter().step_by(3) {
            let slot = whole.chunks(1024).position(|slot| slot == [fill(*block); 1024]).expect("there");
            devices[1].write_at(slot as u64 * 1024 + 100, &[0xee; 300]).expect("memory");
        }
        let cache = open_mirrored(&devices, false).expect("one of both has each block");
        assert_eq!(cache.status().counters.mirror_repairs, 8, "{is_behind}");
        blocks.iter().for_each(|block| assert_eq!(reads(&cache, *block), fill(*block), "{is_behind}"));
        assert_eq!(cache.status().counters.mirror_repairs, 8, "{is_behind}: right on both");
    }
}

#[test]
fn strangers_and_modes_that_need_no_mirror_are_refused() {
    let (devices, cache) = mirrored();
    drop(cache);
    let other = SMALL.devices();
    drop(SMALL.create(&other));
    let [first, _, disk] = devices.clone();
    let refused = open_mirrored(&[first, Arc::clone(&other[0]), disk], false).expect_err("strangers");
    assert!(matches!(refused, CacheError::NoMirror { .. }), "{refused}");
    for shape in [Shape { mode: Mode::Through, ..SMALL }, Shape { associativity: 16, ..NARROW }] {
        let refused = shape.create_mirrored(&shape.mirrored_devices()).expect_err("no use");
        assert!(matches!(refused, CacheError::Refused { .. }), "{refused}");
    }
    let through = Shape { mode: Mode::Through, ..SMALL };
    let pair = through.devices();
    drop(through.create(&pair));
    let refused = add_mirror(&*pair[0], &*devices[1], [8; 16], true).expect_err("no use");
    assert!(matches!(refused, CacheError::Refused { .. }), "{refused}");
    let refused = destroy(&*devices[1], false).expect_err("the blocks of the mark");
    assert!(matches!(refused, CacheError::Dirty { .. }), "{refused}");
}
