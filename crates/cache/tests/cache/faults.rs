//! Devices that fail: reads go on from the disk, dirty blocks are missed by name, and nothing is acknowledged in vain.

use crate::world::{BLOCK, SMALL, Shape, TINY, TestClock, contents, open};
use brindle_cache::{Cache, ERROR_COUNTERS, Mode};
use brindle_device::{Device, WritableDevice};
use brindle_sim::{Fault, FaultyDevice, ImageDevice};
use std::sync::Arc;

const BLOCKS: usize = 1024;

/// A cache over devices that can be made to fail, and the devices below them.
struct Weak {
    cache: Cache,
    devices: [Arc<FaultyDevice>; 2],
    plain: [Arc<ImageDevice>; 2],
}

fn weak(shape: Shape) -> Weak {
    let plain = shape.devices();
    let devices = plain.clone().map(|device| Arc::new(FaultyDevice::new(device)));
    Weak { cache: shape.create(&devices), devices, plain }
}

/// Place of the slots on flash.
fn slots() -> std::ops::Range<u64> {
    (64 << 10)..u64::MAX
}

impl Weak {
    fn flash(&self) -> &FaultyDevice {
        &self.devices[0]
    }

    fn write(&self, block: u64, fill: u8) {
        self.cache.write_at(block * BLOCK, &[fill; BLOCKS]).expect("it works");
    }

    fn reads(&self, block: u64) -> Result<u8, String> {
        let mut bytes = vec![0; BLOCKS];
        self.cache.read_at(block * BLOCK, &mut bytes).map_err(|error| error.to_string())?;
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        Ok(bytes[0])
    }

    /// The cache, as a new process finds it.
    fn loaded(&self) -> Cache {
        open(&self.plain, false).expect("it can be loaded")
    }
}

#[test]
fn a_block_that_the_flash_fails_to_take_goes_to_the_disk() {
    let weak = weak(SMALL);
    weak.write(5, 1);
    weak.cache.flush().expect("it works");
    weak.flash().inject(Fault::WritesWithin(slots()));
    weak.write(5, 2);
    weak.write(6, 3);
    assert_eq!((weak.reads(5), weak.reads(6)), (Ok(2), Ok(3)));
    assert_eq!(weak.cache.status().dirty_blocks, 0);
    assert!(weak.cache.status().counters.ssd_write_errors >= 2);
    weak.cache.flush().expect("the table can be written");
    let loaded = weak.loaded();
    let found = contents(&loaded);
    assert_eq!((found[5 * BLOCKS], found[6 * BLOCKS]), (2, 3));
}

#[test]
fn a_clean_block_that_is_wrong_comes_from_the_disk_and_a_dirty_one_is_an_error() {
    for fault in [Fault::ReadsWithin(slots()), Fault::WrongReadsWithin(slots())] {
        let weak = weak(SMALL);
        weak.write(1, 1);
        assert_eq!(weak.cache.clean_all().expect("it works"), 0);
        weak.write(2, 2);
        weak.flash().inject(fault);
        assert_eq!(weak.reads(1), Ok(1), "clean");
        let error = weak.reads(2).expect_err("dirty");
        assert!(error.contains("the dirty block at 2048 of flash is damaged"), "{error}");
        weak.cache.write_at(2 * BLOCK + 5, &[9]).expect_err("the rest of it can't be read");
        weak.flash().heal();
        weak.write(2, 4);
        assert_eq!(weak.reads(2), Ok(4), "written anew");
        weak.cache.verify().expect("sums agree");
    }
}

#[test]
fn a_dirty_block_that_cannot_be_read_is_not_cleaned_and_the_others_are() {
    let weak = weak(SMALL);
    (0..8).for_each(|block| weak.write(block, 7));
    weak.flash().inject(Fault::WrongRead { number: weak.flash().counts().reads + 3 });
    assert_eq!(weak.cache.clean_all().expect("the devices work"), 1);
    let on_disk = contents(&*weak.plain[1]);
    assert_eq!((0..8).filter(|block| on_disk[block * BLOCKS] == 7).count(), 7);
    assert_eq!(weak.reads(3), Ok(7), "it was the read alone");
}

#[test]
fn a_disk_that_fails_is_told_until_it_works_again() {
    let weak = weak(Shape { mode: Mode::Through, ..SMALL });
    let state = |weak: &Weak| {
        let lines = weak.cache.status().lines();
        lines.into_iter().find(|(name, _)| name == "state").expect("it is shown").1
    };
    assert_eq!(state(&weak), "in use");
    weak.devices[1].inject(Fault::WritesWithin(0..BLOCK));
    weak.cache.write_at(0, &[1; BLOCKS]).expect_err("the disk fails");
    assert!(
        state(&weak).starts_with("the disk fails: ") && state(&weak).contains("disk"),
        "{}",
        state(&weak)
    );
    weak.devices[1].heal();
    weak.devices[1].inject(Fault::ReadsWithin(0..BLOCK));
    weak.reads(0).expect_err("the disk fails");
    assert!(state(&weak).starts_with("the disk fails: "));
    weak.devices[1].heal();
    weak.write(0, 2);
    assert_eq!(state(&weak), "in use");
}

#[test]
fn requests_that_failed_are_counted_by_device_and_kind() {
    let weak = weak(Shape { mode: Mode::Through, ..SMALL });
    let errors = |weak: &Weak| {
        let lines = weak.cache.status().lines();
        let count =
            |name: &&str| lines.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let counts = ERROR_COUNTERS.iter().map(|name| (*name, count(name).expect("it is shown")));
        counts
            .filter(|(_, count)| count != "0")
            .map(|(name, count)| format!("{name} {count}"))
            .collect::<Vec<_>>()
    };
    weak.write(1, 1);
    weak.flash().inject(Fault::ReadsWithin(slots()));
    assert_eq!((weak.reads(1), errors(&weak)), (Ok(1), vec!["ssd_read_errors 1".to_owned()]));
    weak.cache.zero_counters();
    assert_eq!(errors(&weak), [""; 0]);
    weak.flash().heal();
    weak.flash().inject(Fault::WritesWithin(slots()));
    weak.write(2, 2);
    assert_eq!(errors(&weak), ["ssd_write_errors 1"]);
    weak.devices[1].inject(Fault::ReadsWithin(0..BLOCK));
    weak.reads(0).expect_err("the disk fails");
    weak.devices[1].inject(Fault::WritesWithin(0..BLOCK));
    weak.cache.write_at(0, &[1]).expect_err("the disk fails");
    weak.devices[1].inject(Fault::FlushesFrom { number: 0 });
    weak.cache.flush().expect_err("the disk fails");
    let of_disk = ["disk_read_errors 1", "disk_write_errors 1", "disk_flush_errors 1", "ssd_write_errors 1"];
    assert_eq!(errors(&weak), of_disk);
}

#[test]
fn an_ssd_that_is_given_up_is_told_with_the_time_until_it_works_again() {
    let shape = Shape { mode: Mode::Through, ..SMALL };
    let (plain, clock) = (shape.devices(), Arc::new(TestClock::default()));
    let devices = plain.clone().map(|device| Arc::new(FaultyDevice::new(device)));
    let weak = Weak { cache: shape.create_with(&devices, Arc::clone(&clock)), devices, plain };
    let shown = |weak: &Weak| {
        let lines = weak.cache.status().lines().into_iter();
        lines.filter(|(name, _)| name.starts_with("given_up")).map(|(_, value)| value).collect::<Vec<_>>()
    };
    (0..10).for_each(|block| weak.write(block, 1));
    clock.pass(70);
    weak.flash().inject(Fault::VanishAfter { calls: 0 });
    (0..7).for_each(|block| assert_eq!(weak.reads(block), Ok(1)));
    assert_eq!(shown(&weak), [""; 0]);
    assert_eq!(weak.reads(7), Ok(1));
    clock.pass(9);
    assert_eq!((weak.reads(8), shown(&weak)), (Ok(1), vec!["flash".to_owned(), "70".to_owned()]));
    weak.flash().heal();
    assert_eq!((weak.reads(9), shown(&weak)), (Ok(1), Vec::new()));
}

#[test]
fn a_commit_that_fails_stops_the_cache() {
    for fails_on_flash in [true, false] {
        let weak = weak(SMALL);
        weak.write(1, 1);
        weak.cache.flush().expect("it works");
        weak.write(1, 2);
        // One write that goes to the disk.
        weak.cache.set("cache_all", "0").expect("a setting");
        weak.write(9, 3);
        let device = &weak.devices[usize::from(!fails_on_flash)];
        device.inject(Fault::Flush { number: device.counts().flushes });
        weak.cache.flush().expect_err("the flush fails");
        weak.cache.flush().expect_err("what was lost stays lost");
        weak.cache.write_at(0, &[1]).expect_err("it is stopped");
        weak.cache.close().expect_err("it is stopped");
        assert!(weak.cache.status().stopped.is_some());
        assert_eq!(weak.reads(1), Ok(2), "reads go on");
        let found = contents(&weak.loaded());
        assert!([1, 2].contains(&found[BLOCKS]));
    }
}

#[test]
fn the_flash_of_a_cache_without_dirty_blocks_may_vanish() {
    for mode in [Mode::Through, Mode::Around, Mode::Back] {
        let weak = weak(Shape { mode, ..SMALL });
        (0..20).for_each(|block| weak.write(block, 1));
        (0..20).for_each(|block| assert_eq!(weak.reads(block), Ok(1)));
        assert_eq!(weak.cache.clean_all().expect("it works"), 0);
        weak.flash().inject(Fault::VanishAfter { calls: 0 });
        for round in 2..5 {
            (0..40).for_each(|block| weak.write(block, round));
            (0..40).for_each(|block| assert_eq!(weak.reads(block), Ok(round), "{mode}"));
            weak.cache.flush().expect("the disk has all");
        }
        let status = weak.cache.status();
        assert!(
            status.is_flash_off && status.counters.ssd_read_errors + status.counters.ssd_write_errors >= 8
        );
        assert!(contents(&*weak.plain[1])[..40 * BLOCKS].iter().all(|byte| *byte == 4));
    }
}

#[test]
fn a_full_set_of_dirty_blocks_passes_writes_on_to_the_disk() {
    let weak = weak(TINY);
    weak.devices[1].inject(Fault::WritesWithin(0..64 * BLOCK));
    // One region, hence one set of eight slots.
    (0..8).for_each(|block| weak.write(block, 1));
    weak.cache.flush().expect("it works");
    weak.cache.write_at(8 * BLOCK, &[1; BLOCKS]).expect_err("no slot, and the disk fails");
    weak.cache.clean_all().expect_err("the disk fails");
    assert_eq!(weak.cache.status().dirty_blocks, 8);
    weak.devices[1].heal();
    weak.write(8, 2);
    weak.write(3, 5);
    assert_eq!((weak.reads(8), weak.reads(3), weak.reads(4)), (Ok(2), Ok(5), Ok(1)));
    assert!(weak.cache.status().counters.no_room > 0);
    weak.cache.flush().expect("it works");
    let found = contents(&weak.loaded());
    assert_eq!((found[8 * BLOCKS], found[3 * BLOCKS], found[4 * BLOCKS]), (2, 5, 1));
}
