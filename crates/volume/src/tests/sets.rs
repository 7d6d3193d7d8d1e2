//! Flushes and superblocks of some devices leave nothing out that was asked for, and remember the rest.

use super::flaky::Flaky;
use super::support::*;
use crate::{DeviceSet, SuperblockCopies, Volume, WriteError};
use brindle_device::Device;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Generation, Logical, Profile, SUPERBLOCK_SIZE, Superblock, Uuid, to_u64};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

fn devid(device: &Flaky) -> DevId {
    DevId::new(device.name()["disk".len()..].parse::<u64>().expect("named so") + 1)
}

/// The devices of which something holds.
fn those(devices: &[Arc<Flaky>], holds: impl Fn(&Flaky) -> bool) -> DeviceSet {
    devices.iter().filter(|device| holds(device)).map(|device| devid(device)).collect()
}

/// The devices that were written since this was last asked.
fn written(devices: &[Arc<Flaky>]) -> DeviceSet {
    those(devices, |device| !std::mem::take(&mut *device.writes.lock().expect("no panic")).is_empty())
}

fn all_but(devices: &[Arc<Flaky>], set: &DeviceSet, others: &DeviceSet) -> DeviceSet {
    those(devices, |device| set.contains(devid(device)) && !others.contains(devid(device)))
}

fn log_root(device: &Flaky) -> u64 {
    let bytes = device.bytes();
    let bytes = bytes[STRIP..][..SUPERBLOCK_SIZE].try_into().expect("the size of one");
    Superblock::parse(bytes, to_u64(STRIP)).expect("whole").log_root.get()
}

fn superblock_of_log(volume: &Volume, root: u64) -> Superblock {
    let mut superblock = Superblock::clone(&volume.superblock());
    superblock.log_root = Logical::new(root);
    superblock
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn unflushed_writes_are_remembered_until_their_device_is_flushed(
        shape in 0..SHAPES.len(),
        seed: u8,
        loss: prop::sample::Index,
        steps in prop::collection::vec((0..5u8, any::<prop::sample::Index>(), 1..40usize, any::<u8>()), 1..30),
    ) {
        let (profile, stripes) = SHAPES[shape];
        let pool = TestPool::new(profile, stripes, 3, &mut rng(seed));
        let losses = pool.tolerated_losses();
        // The first device alone holds the system chunk.
        let missing = losses[loss.index(losses.len())].iter().copied().filter(|device| *device > 0);
        let (volume, devices) = pool.open_writable(&missing.collect::<Vec<_>>());
        let mut model = those(&devices, |_| true);
        prop_assert_eq!(volume.unflushed_devices(), model.clone(), "an earlier process may have left something");
        for (what, place, length, byte) in steps {
            let set = those(&devices, |device| byte >> (devid(device).get() % 8) & 1 != 0);
            match what {
                0 => {
                    let before: Vec<usize> = devices.iter().map(|device| device.flushes.load(Relaxed)).collect();
                    volume.flush(&set).expect("nothing fails");
                    let flushed = |(device, before): (&Arc<Flaky>, &usize)| {
                        (device.flushes.load(Relaxed) > *before).then(|| devid(device))
                    };
                    let flushed: DeviceSet = devices.iter().zip(&before).filter_map(flushed).collect();
                    prop_assert_eq!(flushed, set.clone());
                    model = all_but(&devices, &model, &set);
                }
                1 => {
                    volume.make_whole(&DeviceSet::ALL).expect("nothing fails");
                    model = those(&devices, |_| false);
                }
                _ => {
                    let sectors = pool.contents.len() / SECTOR;
                    let start = place.index(sectors);
                    let length = length.min(sectors - start) * SECTOR;
                    let logical = START + to_u64(start * SECTOR);
                    volume.write_data(logical, &vec![byte; length]).expect("nothing fails");
                    let (written, expected) = (written(&devices), volume.devices_of([(logical, to_u64(length))]));
                    let expected = expected.expect("written");
                    // A part of a row leaves some of its columns alone.
                    prop_assert!(written.is_subset(&expected), "{written:?} {expected:?}");
                    prop_assert!(profile.has_parity() || written == expected, "{written:?} {expected:?}");
                    model = model.union(&written);
                }
            }
            prop_assert_eq!(volume.unflushed_devices(), model.clone());
        }
    }
}

#[test]
fn a_device_whose_flush_fails_stays_unflushed() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(70));
    let (volume, devices) = pool.open_writable(&[]);
    devices[1].fails_flushes.store(true, Relaxed);
    volume.flush(&DeviceSet::ALL).expect("one may fail");
    assert_eq!(volume.unflushed_devices(), those(&devices[1..], |_| true));
    devices[1].fails_flushes.store(false, Relaxed);
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    assert!(volume.unflushed_devices().is_empty());
}

#[test]
fn losses_of_a_device_outside_of_a_set_are_mended_with_all() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(71));
    let (volume, devices) = pool.open_writable(&[]);
    devices[1].fail_writes(true);
    volume.write_data(START, &[1; SECTOR]).expect("one may fail");
    devices[1].fail_writes(false);
    let (first, second) = (those(&devices[..1], |_| true), those(&devices[1..], |_| true));
    volume.make_whole(&first).expect("the first has everything");
    assert_eq!((volume.devices_to_mark(), devices[1].flushes.load(Relaxed)), (vec![DevId::new(2)], 0));
    volume.make_whole(&second).expect("the second gets it");
    assert_eq!((volume.devices_to_mark(), devices[0].flushes.load(Relaxed)), (Vec::new(), 1));
    assert!(volume.unflushed_devices().is_empty());
}

#[test]
fn superblocks_of_a_log_go_to_a_set_and_those_of_a_commit_to_all() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(72));
    let (volume, devices) = pool.open_writable(&[]);
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    let second = those(&devices[1..], |_| true);
    volume.write_log_superblocks(&superblock_of_log(&volume, 4096), &second).expect("nothing fails");
    assert_eq!([log_root(&devices[0]), log_root(&devices[1])], [0, 4096]);
    assert_eq!(volume.superblock().log_root.get(), 4096);
    assert!(volume.unflushed_devices().is_empty(), "durable already");
    let superblock = superblock_of_log(&volume, 0);
    volume
        .write_superblocks(&superblock, &[], SuperblockCopies::First, &DeviceSet::ALL)
        .expect("nothing fails");
    assert_eq!([log_root(&devices[0]), log_root(&devices[1])], [0, 0]);
    assert_eq!(volume.unflushed_devices(), those(&devices, |_| true), "superblocks are writes");
    // A device outside of the set may fail; one of the set may not.
    devices[0].fail_writes(true);
    volume.write_log_superblocks(&superblock_of_log(&volume, 8192), &second).expect("the second one works");
    let failed = volume.write_log_superblocks(&superblock_of_log(&volume, 12288), &DeviceSet::ALL);
    assert!(matches!(failed, Err(WriteError::Superblocks { failures }) if failures.len() == 1));
}

#[test]
fn devices_of_what_cannot_be_written_are_refused() {
    let pool = TestPool::new(Profile::Raid1, 2, 1, &mut rng(73));
    let (volume, _) = pool.open_writable(&[]);
    let unmapped = volume.devices_of([(Logical::new(1 << 40), 4096)]);
    assert!(matches!(unmapped, Err(WriteError::Unmapped { .. })), "{unmapped:?}");
    let beyond = volume.devices_of([(START, to_u64(pool.contents.len() + SECTOR))]);
    assert!(matches!(beyond, Err(WriteError::Request { .. })), "{beyond:?}");
}

/// A pool whose devices lose what was written since the last flush when a flush fails, and succeed in the next.
fn forgetful(profile: Profile, seed: u8) -> (TestPool, Volume, Vec<Arc<Flaky>>) {
    let pool = TestPool::new(profile, 2, 1, &mut rng(seed));
    let (volume, devices) = pool.open_writable(&[]);
    devices.iter().for_each(|device| device.forgets_what_is_not_flushed());
    (pool, volume, devices)
}

#[test]
fn a_flush_after_one_that_lost_something_everywhere_does_not_succeed() {
    let (pool, volume, devices) = forgetful(Profile::Raid1, 74);
    volume.write_data(START, &[1; SECTOR]).expect("nothing fails");
    devices.iter().for_each(|device| device.fails_flushes.store(true, Relaxed));
    let failed = volume.flush(&DeviceSet::ALL);
    assert!(matches!(&failed, Err(WriteError::Flush { failures }) if failures.len() == 2), "{failed:?}");
    devices.iter().for_each(|device| device.fails_flushes.store(false, Relaxed));
    assert!(devices.iter().zip(&pool.images).all(|(device, image)| device.bytes() == *image), "it is gone");
    let failed = volume.make_whole(&DeviceSet::ALL);
    assert!(matches!(&failed, Err(WriteError::Unflushed { devices }) if devices.len() == 2), "{failed:?}");
    let failed = volume.write_superblocks(
        &superblock_of_log(&volume, 0),
        &[],
        SuperblockCopies::First,
        &DeviceSet::ALL,
    );
    assert!(matches!(&failed, Err(WriteError::Unflushed { .. })), "{failed:?}");
}

/// Has a device lose what it took by an act, beside which another thread flushes.
fn loses_beside_a_flush(act: impl Fn(&Volume)) {
    let (_, volume, devices) = forgetful(Profile::Raid1, 76);
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    volume.write_data(START, &[1; SECTOR]).expect("nothing fails");
    devices[1].fails_flushes.store(true, Relaxed);
    let (answers, has_answered) = mpsc::channel();
    let (goes_on, wait) = mpsc::channel();
    *devices[1].tells.lock().expect("no panic") = Some((answers, wait));
    let volume = &volume;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            has_answered.recv().expect("it is to write out");
            // The device has forgotten its failure: this succeeds, and covers nothing of what was lost.
            volume.flush(&DeviceSet::ALL).expect("one may fail");
            assert_eq!(volume.devices_to_mark(), [DevId::new(2)], "its data are lost");
            let _ = goes_on.send(());
        });
        act(volume);
    });
    assert_eq!(volume.devices_to_mark(), [DevId::new(2)], "its data are lost");
    volume.make_whole(&DeviceSet::ALL).expect("the first one has everything");
    assert!(volume.devices_to_mark().is_empty());
}

#[test]
fn losses_of_a_device_that_writes_out_are_known_to_flushes_at_the_same_time() {
    loses_beside_a_flush(|volume| volume.write_out(&DeviceSet::ALL).expect("one may fail"));
}

#[test]
fn losses_that_a_flush_meets_are_known_to_flushes_at_the_same_time() {
    loses_beside_a_flush(|volume| volume.flush(&DeviceSet::ALL).expect("one may fail"));
}

#[test]
fn a_superblock_that_a_device_lost_while_it_wrote_out_does_not_count() {
    let (_, volume, devices) = forgetful(Profile::Raid1, 77);
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    let template = Superblock::clone(&volume.superblock());
    let generation = template.generation;
    let write = || volume.write_superblocks(&template, &[], SuperblockCopies::First, &DeviceSet::ALL);
    write().expect("nothing fails");
    devices[1].fails_flushes.store(true, Relaxed);
    volume.write_out(&DeviceSet::ALL).expect("one may fail");
    devices[1].fails_flushes.store(false, Relaxed);
    volume.flush(&DeviceSet::ALL).expect("nothing fails any more");
    let without = volume.devices_without_superblock(generation);
    assert_eq!(without, those(&devices[1..], |_| true));
    write().expect("nothing fails");
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    assert!(volume.devices_without_superblock(generation).is_empty());
}

#[test]
fn losses_are_those_of_the_device_that_has_an_id_now() {
    let (_, volume, _) = forgetful(Profile::Raid1, 78);
    let template = Superblock::clone(&volume.superblock());
    let item = |uuid: u8| DevItem { uuid: Uuid([uuid; 16]), ..dev_item(9, FSID, 1 << 20) };
    let [first, second] = ["disk8", "disk8"].map(|name| Arc::new(Flaky::new(name, &[0; 1 << 20])));
    volume.join_device(&item(41), &(Arc::clone(&first) as _));
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    volume.part_with_device(DevId::new(9)).expect("it is there");
    volume.join_device(&item(42), &(Arc::clone(&second) as _));
    volume.introduce_devices(&template, &[item(42)]);
    let mut next = template.clone();
    next.generation = Generation::new(template.generation.get() + 1);
    let written = volume.write_superblocks(&next, &[], SuperblockCopies::First, &DeviceSet::ALL);
    written.expect("nothing fails");
    second.fails_flushes.store(true, Relaxed);
    volume.write_out(&DeviceSet::ALL).expect("it holds no chunk");
    second.fails_flushes.store(false, Relaxed);
    volume.flush(&DeviceSet::ALL).expect("nothing fails any more");
    let without = volume.devices_without_superblock(next.generation);
    assert!(without.contains(DevId::new(9)), "its superblock is lost");
}

#[test]
fn a_flush_of_a_log_superblock_that_fails_makes_what_was_written_before_doubtful() {
    let (_, volume, devices) = forgetful(Profile::Raid1, 75);
    volume.flush(&DeviceSet::ALL).expect("nothing fails");
    volume.write_data(START, &[1; SECTOR]).expect("nothing fails");
    devices[1].fails_flushes.store(true, Relaxed);
    let failed = volume.write_log_superblocks(&superblock_of_log(&volume, 4096), &DeviceSet::ALL);
    assert!(
        matches!(&failed, Err(WriteError::Superblocks { failures }) if failures.len() == 1),
        "{failed:?}"
    );
    assert_eq!(volume.devices_to_mark(), [DevId::new(2)], "its data are lost");
    devices[1].fails_flushes.store(false, Relaxed);
    volume.make_whole(&DeviceSet::ALL).expect("the first one has everything");
    assert!(volume.devices_to_mark().is_empty());
    let mut bytes = [0; SECTOR];
    for mirror in 0..2 {
        volume.read_mirror(START, mirror, &mut bytes).expect("no device fails");
        assert_eq!(bytes, [1; SECTOR], "mirror {mirror}");
    }
}
