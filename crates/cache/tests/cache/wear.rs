//! The budget of wear: it holds for overwrites too, and outlives the process.

use crate::world::{BLOCK, SMALL, Shape, TestClock, contents, open, open_with};
use brindle_cache::{Cache, Mode, inspect};
use brindle_device::{Device, WritableDevice};
use std::sync::Arc;

/// A budget whose hour is 64 blocks.
const PER_DAY: &str = "1572864";
const HOUR_BYTES: u64 = 64 * BLOCK;

fn write(cache: &Cache, block: u64, fill: u8) {
    cache.write_at(block * BLOCK, &[fill; 1024]).expect("it works");
}

fn read(cache: &Cache, block: u64) -> u8 {
    let mut bytes = [0; 1024];
    cache.read_at(block * BLOCK, &mut bytes).expect("it works");
    bytes[0]
}

fn left(cache: &Cache) -> i64 {
    cache.status().wear_left_bytes.expect("a limit")
}

#[test]
fn overwrites_of_cached_blocks_stay_within_the_budget() {
    for mode in [Mode::Back, Mode::Through] {
        let devices = Shape { mode, ..SMALL }.devices();
        let cache = Shape { mode, ..SMALL }.create(&devices);
        (0..8).for_each(|block| write(&cache, block, 1));
        cache.flush().expect("it works");
        cache.set("wear_bytes_per_day", PER_DAY).expect("a setting");
        let before = cache.status().counters.ssd_write_bytes;
        for round in 0..200_u8 {
            for block in 0..8 {
                write(&cache, block, round);
                // A part of a cached block.
                cache.write_at(block * BLOCK + 512, &[round; 512]).expect("it works");
                assert_eq!(read(&cache, block), round);
            }
            if round % 50 == 49 {
                cache.flush().expect("it works");
            }
        }
        let status = cache.status();
        let written = status.counters.ssd_write_bytes - before;
        // The table tells once more of each block that leaves the flash.
        assert!((HOUR_BYTES / 2..=HOUR_BYTES + 8192).contains(&written), "{mode}: {written}");
        assert!(status.counters.wear_refusals > 1000 && status.dirty_blocks == 0, "{mode}: {status:?}");
        cache.verify().expect("sums agree");
        drop(cache);
        let found = contents(&open(&devices, false).expect("as after a crash"));
        assert!(found[..8 * 1024].iter().all(|byte| *byte == 199), "{mode}");
    }
}

#[test]
fn a_spent_budget_leaves_the_mark_of_the_disk_alone() {
    let devices = SMALL.devices();
    let cache = SMALL.create(&devices);
    assert!(cache.veil().expect("it works"));
    cache.set("wear_bytes_per_day", "24").expect("a setting");
    (1..20).for_each(|round| write(&cache, 0, round));
    write(&cache, 300, 7);
    cache.flush().expect("it works");
    assert!(cache.status().is_veiled && left(&cache) < 0, "the place of the mark is on the flash alone");
    assert_eq!((read(&cache, 0), contents(&*devices[1])[300 * 1024]), (19, 7));
    cache.close().expect("it works");
    assert_eq!(contents(&*devices[1])[0], 19);
}

#[test]
fn budget_and_total_of_wear_outlive_the_process() {
    let (devices, clock) = (SMALL.devices(), Arc::new(TestClock::default()));
    let load = || open_with(&devices, false, Arc::clone(&clock)).expect("it can be loaded");
    let cache = SMALL.create_with(&devices, Arc::clone(&clock));
    cache.set("wear_bytes_per_day", PER_DAY).expect("a setting");
    assert_eq!(left(&cache), HOUR_BYTES as i64);
    (0..32).for_each(|block| write(&cache, block, 1));
    let spent = left(&cache);
    assert_eq!(spent, HOUR_BYTES as i64 / 2);
    cache.close().expect("it works");
    let (rest, total) = (left(&cache), cache.status().written_bytes);
    assert!(total >= 32 * BLOCK && rest <= spent);
    drop(cache);
    let facts = inspect(&*devices[0]).expect("a cache");
    assert_eq!((facts.wear_bytes_per_day.to_string().as_str(), facts.written_bytes), (PER_DAY, total));
    let cache = load();
    assert_eq!((left(&cache), cache.status().written_bytes), (rest, total));
    assert_eq!(cache.status().settings.wear_bytes_per_day.to_string(), PER_DAY);
    cache.close().expect("it works");
    drop(cache);
    // It fills while the cache is not in use.
    clock.pass(600);
    let cache = load();
    let filled = left(&cache);
    assert!(filled > rest && filled <= rest + HOUR_BYTES as i64 / 6, "{rest} {filled}");
    drop(cache);
    let cache = load();
    assert_eq!(left(&cache), 0, "what a crashed process had left is not known");
    clock.pass(1800);
    assert_eq!(left(&cache), HOUR_BYTES as i64 / 2);
    cache.set("wear_bytes_per_day", "0").expect("a setting");
    drop(cache);
    assert_eq!(load().status().wear_left_bytes, None);
}
