//! Thresholds and pace of cleaning, and the counters of it.

use crate::world::{BLOCK, SMALL, TestClock};
use brindle_cache::{Cache, CacheError, Change};
use brindle_device::WritableDevice;
use std::sync::Arc;

fn write(cache: &Cache, blocks: std::ops::Range<u64>) {
    for block in blocks {
        cache.write_at(block * BLOCK, &[7; 1024]).expect("it works");
    }
}

fn upkeep(cache: &Cache) -> u64 {
    while cache.upkeep().expect("it works") {}
    cache.verify().expect("sums agree");
    cache.status().dirty_blocks
}

#[test]
fn all_sets_together_stay_below_the_overall_threshold() {
    let cache = SMALL.create(&SMALL.devices());
    cache.set("dirty_thresh_pct", "95").expect("a setting");
    cache.set("fallow_delay", "0").expect("a setting");
    // A region of 64 blocks is in one set of 64 slots. None has a neighbour that would be cleaned with it.
    (0..192).step_by(2).for_each(|block| write(&cache, block..block + 1));
    cache.flush().expect("it works");
    let dirty = upkeep(&cache);
    assert_eq!(dirty, 96, "below the threshold of each set, and of 512 slots");
    cache.set("dirty_thresh_total_pct", "10").expect("a setting");
    let dirty = upkeep(&cache);
    assert!((6..=51).contains(&dirty), "{dirty} of 512");
    let counters = cache.status().counters;
    assert_eq!(counters.cleanings, 96 - dirty);
    assert_eq!((counters.metadata_dirties, counters.metadata_cleans), (96, 96 - dirty));
    assert_eq!((counters.disk_writes, counters.back_merge), (counters.cleanings, 0));
    write(&cache, 200..208);
    cache.clean_all().expect("it works");
    assert_eq!(cache.status().counters.back_merge, 7);
}

#[test]
fn fallow_blocks_are_cleaned_at_the_speed_that_was_set() {
    let clock = Arc::new(TestClock::default());
    let cache = SMALL.create_with(&SMALL.devices(), Arc::clone(&clock));
    for (name, value) in [("dirty_thresh_pct", "95"), ("fallow_delay", "60"), ("fallow_clean_speed", "1")] {
        cache.set(name, value).expect("a setting");
    }
    write(&cache, 0..40);
    clock.pass(60);
    upkeep(&cache);
    clock.pass(60);
    let mut before = 40;
    // Eight sets: eight blocks a second.
    for second in 1..=4 {
        let dirty = upkeep(&cache);
        assert!(dirty + 8 >= before && dirty < before, "second {second}: {before} {dirty}");
        before = dirty;
        clock.pass(1);
    }
    cache.set("fallow_clean_speed", "0").expect("a setting");
    assert_eq!(upkeep(&cache), 0);
}

#[test]
fn works_are_asked_for_by_names_of_flashcache() {
    let cache = SMALL.create(&SMALL.devices());
    write(&cache, 0..8);
    for (name, value) in [("do_sync", "0"), ("stop_sync", "0"), ("zero_stats", "0"), ("stop_sync", "1")] {
        cache.change(name, value).expect("known");
    }
    assert_eq!((cache.status().dirty_blocks, cache.status().counters.writes), (8, 8));
    cache.change("do_sync", "1").expect("it works");
    cache.change("zero_stats", "1").expect("it works");
    assert_eq!((cache.status().dirty_blocks, cache.status().counters.writes), (0, 0));
    for (name, value) in [("do_sync", "2"), ("zero_stats", "yes"), ("nothing", "1")] {
        assert!(matches!(cache.change(name, value), Err(CacheError::Setting { .. })), "{name}={value}");
    }
    assert_eq!(Change::parse("grow", "1").expect("known"), Change::Grow);
}

#[test]
fn times_of_requests_are_counted_unless_told_otherwise() {
    let cache = SMALL.create(&SMALL.devices());
    let counted =
        |cache: &Cache| -> u64 { cache.status().latencies.writes.buckets().map(|(_, count)| count).sum() };
    write(&cache, 0..4);
    cache.set("io_latency_hist", "0").expect("a setting");
    write(&cache, 0..4);
    assert_eq!(counted(&cache), 4);
}

#[test]
fn status_has_every_counter_of_flashcache() {
    let cache = SMALL.create(&SMALL.devices());
    let lines = cache.status().lines();
    let names = "reads writes read_hits read_hit_percent write_hits write_hit_percent dirty_write_hits \
                 dirty_write_hit_percent replacement write_replacement write_invalidates read_invalidates \
                 pending_enqueues pending_inval metadata_dirties metadata_cleans metadata_batch \
                 metadata_ssd_writes cleanings fallow_cleanings no_room front_merge back_merge disk_reads \
                 disk_writes ssd_reads ssd_writes uncached_reads uncached_writes uncached_IO_requeue \
                 uncached_sequential_reads uncached_sequential_writes pid_adds pid_dels pid_drops pid_expiry \
                 disk_read_errors disk_write_errors ssd_read_errors ssd_write_errors memory_alloc_errors";
    for name in names.split_whitespace() {
        assert_eq!(lines.iter().filter(|(found, _)| found == name).count(), 1, "{name}");
    }
}
