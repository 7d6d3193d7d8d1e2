//! Caches that are loaded, refused, forced and destroyed.

use crate::world::{BLOCK, SMALL, Shape, TINY, TestClock, contents, open};
use brindle_cache::{CacheError, CreateOptions, Mode, create, destroy, inspect};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_sim::{Image, ImageDevice};
use std::sync::Arc;

fn try_create(devices: &[Arc<ImageDevice>; 2], options: &CreateOptions) -> Result<(), CacheError> {
    let [flash, disk] = devices.clone();
    create(flash, disk, options, Arc::new(TestClock::default())).map(drop)
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let devices = SMALL.devices();
    let options = SMALL.options();
    for wrong in [
        CreateOptions { block_bytes: 1000, ..options.clone() },
        CreateOptions { block_bytes: 256, ..options.clone() },
        CreateOptions { block_bytes: 2 << 20, ..options.clone() },
        CreateOptions { associativity: 0, ..options.clone() },
        CreateOptions { associativity: 48, ..options.clone() },
        CreateOptions { associativity: 1 << 16, ..options.clone() },
        CreateOptions { associativity: 4096, ..options.clone() },
        CreateOptions { size_bytes: Some(1 << 30), ..options.clone() },
        CreateOptions { size_bytes: Some(4096), ..options.clone() },
        CreateOptions { name: "n".repeat(65), ..options.clone() },
        CreateOptions { name: String::new(), ..options.clone() },
        CreateOptions { is_write_only: true, mode: Mode::Through, ..options.clone() },
    ] {
        assert!(matches!(try_create(&devices, &wrong), Err(CacheError::Refused { .. })), "{wrong:?}");
        assert!(matches!(inspect(&*devices[0]), Err(CacheError::NoCache { .. })), "nothing was written");
    }
}

#[test]
fn a_cache_is_neither_overwritten_nor_destroyed_with_dirty_blocks() {
    let devices = SMALL.devices();
    assert!(matches!(open(&devices, false), Err(CacheError::NoCache { .. })));
    assert!(matches!(destroy(&*devices[0], false), Err(CacheError::NoCache { .. })));
    let cache = SMALL.create(&devices);
    cache.write_at(0, &[1; 1024]).expect("it works");
    cache.flush().expect("it works");
    drop(cache);
    assert!(
        matches!(try_create(&devices, &SMALL.options()), Err(CacheError::Exists { cache, .. }) if cache == "pair")
    );
    assert!(matches!(destroy(&*devices[0], false), Err(CacheError::Dirty { dirty_blocks: 1, .. })));
    let facts = inspect(&*devices[0]).expect("it is there");
    assert_eq!((facts.name.as_str(), facts.disk.as_str(), facts.is_closed), ("pair", "disk", false));
    open(&devices, false).expect("it is there").close().expect("it works");
    assert!(inspect(&*devices[0]).expect("it is there").is_closed);
    destroy(&*devices[0], false).expect("nothing is dirty");
    assert!(matches!(open(&devices, false), Err(CacheError::NoCache { .. })));
    try_create(&devices, &SMALL.options()).expect("there is none");
    try_create(&devices, &CreateOptions { is_forced: true, ..SMALL.options() }).expect("forced");
}

#[test]
fn devices_of_other_sizes_are_refused() {
    let [flash, disk] = SMALL.devices();
    drop(SMALL.create(&[Arc::clone(&flash), Arc::clone(&disk)]));
    let other = |bytes| Arc::new(ImageDevice::new("other", Image::new(bytes), DeviceClass::Unknown));
    let refused = open(&[Arc::clone(&flash), other(SMALL.disk_bytes - 4096)], false);
    assert!(matches!(refused, Err(CacheError::Size { expected, .. }) if expected == SMALL.disk_bytes));
    flash.set_size(SMALL.flash_bytes - 4096).expect("it works");
    assert!(matches!(open(&[flash, disk], false), Err(CacheError::Size { .. })));
}

#[test]
fn clean_blocks_survive_a_clean_end_unless_the_disk_was_written() {
    for mode in Mode::ALL {
        for is_written in [false, true] {
            let devices = SMALL.devices();
            let cache = small_of(mode).create(&devices);
            let mut bytes = vec![0; 1024];
            cache.write_at(0, &[1; 1024]).expect("it works");
            cache.read_at(0, &mut bytes).expect("it works");
            cache.close().expect("it works");
            drop(cache);
            if is_written {
                devices[1].write_at(0, &[2; 1024]).expect("it works");
            }
            let cache = open(&devices, false).expect("it was closed");
            assert_eq!(cache.status().cached_blocks, u64::from(!is_written), "{mode}");
            cache.read_at(0, &mut bytes).expect("it works");
            assert_eq!(bytes[0], 1 + u8::from(is_written), "{mode}");
            // Blocks that were left out do not come back after the next end.
            cache.close().expect("it works");
            drop(cache);
            assert_eq!(contents(&open(&devices, false).expect("it was closed"))[0], bytes[0]);
        }
    }
}

#[test]
fn a_write_of_the_disk_that_no_sample_tells_of_is_found_before_a_block_counts() {
    // 200 KiB: behind the first samples, before the next one.
    let (at, block) = (200 << 10, 1024);
    for mode in Mode::ALL {
        let devices = SMALL.devices();
        let cache = small_of(mode).create(&devices);
        let mut bytes = vec![0; 4 * block];
        cache.write_at(at, &[1; 4 * 1024]).expect("it works");
        cache.read_at(at, &mut bytes).expect("it works");
        cache.close().expect("it works");
        drop(cache);
        devices[1].write_at(at + 1024, &[2; 1024]).expect("it works");
        let cache = open(&devices, false).expect("it was closed");
        assert_eq!(cache.status().cached_blocks, 4, "{mode}: no sample has changed");
        for hits in [0, 4] {
            let before = cache.status().counters;
            cache.read_at(at, &mut bytes).expect("it works");
            let found: Vec<u8> = bytes.chunks(block).map(|block| block[0]).collect();
            assert_eq!(found, [1, 2, 1, 1], "{mode}");
            let after = cache.status().counters;
            assert_eq!(after.read_hits - before.read_hits, hits, "{mode}");
            let written = if hits == 0 { 1 } else { 0 };
            assert_eq!(after.ssd_writes - before.ssd_writes, written, "{mode}: the others are on the flash");
        }
        cache.verify().expect("sums agree");
        // A part of a doubted block is written: the rest is the disk's.
        cache.close().expect("it works");
        drop(cache);
        devices[1].write_at(at, &[3; 1024]).expect("it works");
        let cache = open(&devices, false).expect("it was closed");
        cache.write_at(at, &[4; 512]).expect("it works");
        cache.read_at(at, &mut bytes).expect("it works");
        assert_eq!((bytes[0], bytes[512]), (4, 3), "{mode}");
    }
}

#[test]
fn under_the_mark_clean_blocks_count_at_once() {
    let devices = SMALL.devices();
    let cache = SMALL.create(&devices);
    cache.veil().expect("it works");
    cache.write_at(200 << 10, &[1; 4096]).expect("it works");
    cache.clean_all().expect("it works");
    cache.set("fast_remove", "1").expect("a setting");
    cache.close().expect("it works");
    drop(cache);
    let cache = open(&devices, false).expect("it was closed");
    let mut bytes = [0; 4096];
    cache.read_at(200 << 10, &mut bytes).expect("it works");
    assert_eq!((bytes, cache.status().counters.read_hits), ([1; 4096], 4));
}

#[test]
fn written_blocks_keep_their_uses_when_a_scan_comes_by() {
    let devices = Shape { associativity: 512, ..SMALL }.devices();
    let cache = Shape { associativity: 512, ..SMALL }.create(&devices);
    let block = |number: u64| number * 1024;
    for round in 0..10 {
        (0..100).for_each(|number| cache.write_at(block(number), &[round; 1024]).expect("it works"));
    }
    cache.clean_all().expect("it works");
    let mut bytes = [0; 1024];
    (200..800).for_each(|number| cache.read_at(block(number), &mut bytes).expect("it works"));
    let before = cache.status().counters.read_hits;
    (0..100).for_each(|number| cache.read_at(block(number), &mut bytes).expect("it works"));
    assert_eq!(cache.status().counters.read_hits - before, 100);
}

fn small_of(mode: Mode) -> Shape {
    Shape { mode, ..SMALL }
}

#[test]
fn dirty_blocks_of_a_disk_that_was_written_are_refused_unless_forced() {
    let devices = TINY.devices();
    let cache = TINY.create(&devices);
    cache.write_at(5 * BLOCK, &[1; 1024]).expect("it works");
    cache.set("fast_remove", "1").expect("a setting");
    cache.close().expect("it works");
    drop(cache);
    devices[1].write_at(0, &[2]).expect("it works");
    let refused = open(&devices, false);
    assert!(matches!(refused, Err(CacheError::DiskChanged { dirty_blocks: 1, .. })), "{refused:?}");
    let cache = open(&devices, true).expect("forced");
    assert_eq!(contents(&cache), contents(&*devices[1]));
    drop(cache);
    assert_eq!(contents(&open(&devices, false).expect("they are gone")), contents(&*devices[1]));
}

#[test]
fn damage_of_the_table_is_refused_unless_forced() {
    let devices = SMALL.devices();
    let cache = SMALL.create(&devices);
    for round in 1..4 {
        cache.write_at(0, &vec![round; 400 * 1024]).expect("it works");
        cache.flush().expect("it works");
    }
    drop(cache);
    let whole = devices.each_ref().map(|device| device.image());
    let (mut refused, mut accepted) = (0, 0);
    for page in 2..2 + 6 {
        for byte in [100, 20, 4000] {
            let images = whole.clone();
            let devices = images.map(|image| Arc::new(ImageDevice::new("copy", image, DeviceClass::Unknown)));
            let mut found = [0];
            let at = page * 4096 + byte;
            devices[0].read_at(at, &mut found).expect("it works");
            devices[0].write_at(at, &[!found[0]]).expect("it works");
            match open(&devices, false) {
                // The older copy of a block, or one of the last transaction, which looks torn.
                Ok(cache) => {
                    accepted += 1;
                    // Blocks that found no room went to the disk, and are as they were written last.
                    let found = contents(&cache);
                    assert!(found[..400 * 1024].iter().all(|byte| (2..=3).contains(byte)), "page {page}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("corrupt table of slots"), "{error}");
                    drop(open(&devices, true).expect("forced"));
                    drop(open(&devices, false).expect("it was mended"));
                }
            }
        }
    }
    assert!(refused >= 6 && accepted >= 3, "{refused} refused, {accepted} accepted");
}
