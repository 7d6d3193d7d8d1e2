//! Devices with older superblocks of the same series lack nothing, unless their mark or the pool's records say so.

use super::flaky::Flaky;
use super::support::*;
use crate::{DeviceSet, OpenOptions, SuperblockCopies, Volume, VolumeError};
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::item::SuperblockAge;
use brindle_ondisk::{
    DevId, Generation, Holders, Profile, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Series, Superblock,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: usize = 1 << 20;

fn member(superblock: &Superblock, size: usize) -> Arc<Flaky> {
    let mut image = vec![0; size];
    put_superblock(&mut image, superblock, STRIP);
    Arc::new(Flaky::new(&format!("member{}", superblock.dev_item.devid), &image))
}

fn of_series(devid: u64, generation: u64, series: Option<u64>) -> Arc<Flaky> {
    let mut superblock = superblock(FSID, devid, 2, generation);
    superblock.set_series(series.map(Series::new));
    member(&superblock, SIZE)
}

/// Opens two devices, the first one newer; `mark` is in the item of the second, `age` the recorded one of its superblock.
fn open(
    first: Option<u64>,
    second: Option<u64>,
    mark: u64,
    age: Option<u64>,
) -> (Result<Volume, VolumeError>, Volume) {
    open_devices(&[of_series(1, 90, first), of_series(2, 20, second)], mark, age)
}

fn open_devices(
    devices: &[Arc<Flaky>; 2],
    mark: u64,
    age: Option<u64>,
) -> (Result<Volume, VolumeError>, Volume) {
    let record = |generation| SuperblockAge { devid: DevId::new(2), generation: Generation::new(generation) };
    let ages: Vec<SuperblockAge> = age.map(record).into_iter().collect();
    let tell = |volume: &Volume| {
        for devid in [1, 2] {
            let mut item = dev_item(devid, FSID, SIZE as u64);
            item.generation = Generation::new(if devid == 2 { mark } else { 0 });
            volume.add_device(&item).expect("device");
        }
    };
    let readable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>);
    let reader = Volume::open(readable.collect(), &OpenOptions::default()).expect("opens");
    tell(&reader);
    assert!(
        !reader.has_sleepers() || reader.snapshot().devices[1].is_read_last(),
        "its record is not known yet"
    );
    reader.judge_sleepers(&ages).expect("it is only read");
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    let writer = Volume::open_writable(writable.collect(), &OpenOptions::default()).expect("opens");
    tell(&writer);
    let judged = writer.check_complete().and_then(|()| writer.judge_sleepers(&ages));
    (judged.map(|()| writer), reader)
}

#[test]
fn a_device_of_the_same_series_slept() {
    for mark in [0, 20] {
        let (writer, reader) = open(Some(7), Some(7), mark, Some(20));
        assert_eq!(writer.expect("both are written").writable_devices().len(), 2);
        let second = &reader.devices()[1];
        assert!(second.is_asleep && !second.is_stale && !second.is_incomplete, "mark {mark}");
        assert_eq!(second.generation, Some(Generation::new(20)));
        assert!(reader.warnings().is_empty() && !reader.devices()[0].is_asleep);
    }
}

#[test]
fn a_device_of_another_series_or_with_a_newer_mark_was_away() {
    for (first, second, mark) in [
        (Some(7), Some(8), 0),
        (Some(7), None, 0),
        (None, Some(7), 0),
        (None, None, 0),
        (Some(7), Some(7), 21),
    ] {
        expect_stale(&open(first, second, mark, Some(20)), &format!("{first:?} {second:?} {mark}"));
    }
}

#[test]
fn a_device_that_held_a_newer_superblock_is_an_old_copy_of_it() {
    for age in [None, Some(21), Some(90)] {
        expect_stale(&open(Some(7), Some(7), 0, age), &format!("recorded {age:?}"));
    }
    let (writer, _) = open(Some(7), Some(7), 0, Some(19));
    writer.expect("it may have been written since the record was");
}

/// The newest superblock names it, whatever else it says.
#[test]
fn a_device_that_held_the_newest_superblock_is_an_old_copy_of_it() {
    for (generation, series, is_named) in [(20, 7, true), (89, 7, true), (89, 8, true), (89, 8, false)] {
        let mut newest = superblock(FSID, 1, 2, 90);
        newest.set_series(Some(Series::new(7)));
        newest.add_holders(Holders::of([(DevId::new(1), true), (DevId::new(2), is_named)]));
        let devices = [member(&newest, SIZE), of_series(2, generation, Some(series))];
        let opened = open_devices(&devices, 0, Some(20));
        match is_named {
            true => expect_stale(&opened, &format!("{generation} of series {series}")),
            false => assert!(opened.0.is_ok(), "it is one behind, as a crash leaves it"),
        }
    }
}

fn expect_stale((writer, reader): &(Result<Volume, VolumeError>, Volume), what: &str) {
    let refused = writer.as_ref().err().unwrap_or_else(|| panic!("{what} is written"));
    assert!(refused.to_string().contains("member2 (devid 2) is stale"), "{what}: {refused}");
    let second = &reader.devices()[1];
    assert!(!second.is_asleep && second.is_stale && second.is_incomplete, "{what}");
    assert_eq!(reader.warnings().len(), 1, "{what}");
}

#[test]
fn a_device_that_was_written_is_sealed_by_its_next_superblock() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(93));
    let (volume, _devices) = pool.open_writable(&[]);
    let both: DeviceSet = [1, 2].map(DevId::new).into_iter().collect();
    assert_eq!(volume.unsealed_devices(), both, "whatever came before");
    let mut superblock = Superblock::clone(&volume.superblock());
    superblock.generation = Generation::new(30);
    superblock.set_series(Some(Series::new(5)));
    volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &DeviceSet::ALL).expect("works");
    assert!(volume.superblock_ages().is_empty(), "not flushed");
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    let ages: Vec<u64> = volume.superblock_ages().iter().map(|age| age.generation.get()).collect();
    assert_eq!((volume.unsealed_devices().is_empty(), ages), (true, vec![30, 30]));
    let holders = volume.holders(Generation::new(30));
    assert!([1, 2].iter().all(|devid| holders.contains(DevId::new(*devid))));
    assert_eq!(volume.holders(Generation::new(31)), Holders::default());
    volume.write_data(START, &[1; SECTOR]).expect("works");
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    assert_eq!(volume.unsealed_devices(), both, "durable, and not known to the superblock");
    volume.write_log_superblocks(&superblock, &DeviceSet::ALL).expect("nothing fails");
    assert_eq!(volume.unsealed_devices(), both, "it is that of the commit before");
}

#[test]
fn superblocks_are_of_the_series_of_the_one_given_and_marks_are_not_among_them() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(90));
    let (volume, devices) = pool.open_writable(&[]);
    let stored = |device: &Flaky| {
        let bytes = device.bytes();
        let bytes = bytes[STRIP..][..SUPERBLOCK_SIZE].try_into().expect("the size of one");
        let superblock = Superblock::parse(bytes, SUPERBLOCK_OFFSETS[0]).expect("whole");
        (superblock.generation.get(), superblock.dev_item.generation.get())
    };
    let mut superblock = Superblock::clone(&volume.superblock());
    superblock.generation = Generation::new(30);
    superblock.set_series(Some(Series::new(5)));
    let first: DeviceSet = [DevId::new(1)].into_iter().collect();
    volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &first).expect("nothing fails");
    assert_eq!(stored(&devices[0]), (30, 0x6272 << 48 | 5));
    assert_ne!(stored(&devices[1]).0, 30, "it was not asked");
    assert_eq!(
        volume.devices_without_superblock(Generation::new(30)),
        [1, 2].map(DevId::new).into_iter().collect()
    );
    volume.flush(&first).expect("nothing fails");
    let second: DeviceSet = [DevId::new(2)].into_iter().collect();
    assert_eq!(volume.devices_without_superblock(Generation::new(30)), second);
    volume.mark_device(DevId::new(1), Generation::new(31));
    superblock.set_series(None);
    volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &DeviceSet::ALL).expect("works");
    assert_eq!((stored(&devices[0]).1, stored(&devices[1]).1), (0, 0));
}

/// Regression: a device that was marked, and was given a superblock of a log before it failed again, was not marked again.
#[test]
fn a_superblock_of_a_log_counts_for_the_next_mark() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(91));
    let (volume, devices) = pool.open_writable(&[]);
    let fail = |byte: u8| {
        devices[1].fail_writes(true);
        volume.write_data(START, &[byte; SECTOR]).expect("one may fail");
        devices[1].fail_writes(false);
    };
    fail(1);
    assert_eq!(volume.devices_to_mark(), [DevId::new(2)]);
    volume.mark_device(DevId::new(2), Generation::new(11));
    let mut superblock = Superblock::clone(&volume.superblock());
    superblock.generation = Generation::new(11);
    let first: DeviceSet = [DevId::new(1)].into_iter().collect();
    volume.write_superblocks(&superblock, &[], SuperblockCopies::First, &first).expect("one is enough");
    volume.make_whole(&DeviceSet::ALL).expect("mended");
    volume.write_log_superblocks(&superblock, &DeviceSet::ALL).expect("nothing fails");
    fail(2);
    assert_eq!(volume.devices_to_mark(), [DevId::new(2)], "it has a superblock as new as the mark");
}

#[test]
fn a_pool_is_whole_when_no_device_is_missing_or_lacks_a_write() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(92));
    let (volume, devices) = pool.open_writable(&[]);
    assert!(volume.is_whole());
    devices[1].fail_writes(true);
    volume.write_data(START, &[1; SECTOR]).expect("one may fail");
    assert!(!volume.is_whole());
    devices[1].fail_writes(false);
    volume.make_whole(&DeviceSet::ALL).expect("mended");
    assert!(volume.is_whole());
    let (volume, _) = pool.open_writable(&[1]);
    assert!(!volume.is_whole());
}

/// The copies behind the first are unflushed by themselves: they are no reason to ask a device for anything else.
#[test]
fn copies_of_superblocks_are_flushed_later() {
    let size = (64 << 20) + 4096;
    let devices = [1, 2].map(|devid| member(&superblock(FSID, devid, 2, 9), size));
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    let volume = Volume::open_writable(writable.collect(), &OpenOptions::default()).expect("opens");
    for devid in [1, 2] {
        volume.add_device(&dev_item(devid, FSID, size as u64)).expect("device");
    }
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    assert!(volume.unflushed_copies().is_empty() && volume.unflushed_devices().is_empty());
    let first: DeviceSet = [DevId::new(1)].into_iter().collect();
    let superblock = volume.superblock();
    volume.write_superblocks(&superblock, &[], SuperblockCopies::Others, &first).expect("nothing fails");
    assert_eq!(volume.unflushed_copies(), first);
    assert!(volume.unflushed_devices().is_empty());
    let before = devices[0].flushes.load(Relaxed);
    volume.flush(&volume.unflushed_copies()).expect("nothing fails");
    assert!(volume.unflushed_copies().is_empty());
    assert_eq!((devices[0].flushes.load(Relaxed), devices[1].flushes.load(Relaxed)), (before + 1, before));
}
