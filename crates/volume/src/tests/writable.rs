//! Pools that may be written, and pools that may only be read.

use super::flaky::Flaky;
use super::support::*;
use crate::{DeviceSet, NotWritable, OpenOptions, UnusedDevice, UnusedReason, Volume, VolumeError, Warning};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_ondisk::{BlockGroupType, DevId, Series, Superblock, Uuid};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use std::sync::Arc;

const SIZE: usize = 256 << 10;

fn member(superblock: &Superblock) -> Arc<Flaky> {
    let mut image = vec![0; SIZE];
    put_superblock(&mut image, superblock, STRIP);
    Arc::new(Flaky::new(&format!("member{}", superblock.dev_item.devid), &image))
}

fn open(devices: &[Arc<Flaky>], degraded: bool) -> Result<Volume, VolumeError> {
    let options = OpenOptions { degraded, ..OpenOptions::default() };
    let given = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    let volume = Volume::open_writable(given.collect(), &options)?;
    for devid in 1..=volume.superblock().num_devices.get() {
        volume.add_device(&dev_item(devid, FSID, SIZE as u64))?;
    }
    volume.check_complete()?;
    Ok(volume)
}

/// Refused, by these words, with nothing written, while reading is fine.
fn refused(devices: &[Arc<Flaky>], words: &str) {
    let error = open(devices, false).expect_err("not to be written");
    assert!(matches!(error, VolumeError::NotWritable(_)), "{error}");
    assert_eq!(error.to_string(), format!("cannot be written: {words}"));
    let given = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    let readable = Volume::open(given, &OpenOptions::default()).expect("to be read");
    assert!(!readable.is_writable() && readable.writable_devices().is_empty());
    assert!(devices.iter().all(|device| device.writes.lock().expect("no panic").is_empty()));
}

#[test]
fn unknown_features_and_flags_are_refused_by_name() {
    let with = |edit: fn(&mut Superblock)| {
        let mut superblock = superblock(FSID, 1, 1, 5);
        edit(&mut superblock);
        [member(&superblock)]
    };
    open(&with(|_| {}), false).expect("an ordinary pool");
    open(&with(|it| it.flags.set(1)), false).expect("written");
    open(&with(|it| it.compat_ro_flags.set(0b1111)), false).expect("all are known");
    refused(
        &with(|it| it.compat_ro_flags.set(1 << 40 | 1 << 9)),
        "unsupported features: unknown flag: 0x200, unknown flag: 0x10000000000",
    );
    refused(&with(|it| it.flags.set(1 << 32 | 1)), "it is a seed");
    refused(&with(|it| it.flags.set(1 << 33)), "unsupported superblock flags 0x200000000");
}

#[test]
fn twins_are_refused_and_the_target_of_a_replacement_is_no_member() {
    let first = member(&superblock(FSID, 1, 1, 5));
    for device_count in [1, 2] {
        let target = member(&superblock(FSID, 0, device_count, 9));
        let volume =
            open(&[Arc::clone(&target), Arc::clone(&first)], false).expect("the target counts for nothing");
        assert_eq!(volume.replacement_target().as_deref(), Some("member0"), "{:?}", volume.unused_devices());
        assert_eq!(volume.superblock().generation.get(), 5);
        let other = member(&superblock(Uuid([9; 16]), 1, 1, 3));
        let volume = open(&[Arc::clone(&target), other], false).expect("another pool");
        assert_eq!(volume.superblock().fsid, Uuid([9; 16]));
        let alone = open(&[target], false).expect_err("a target is no pool").to_string();
        assert!(
            alone.starts_with("member0 is the target of a replacement that the kernel has begun"),
            "{alone}"
        );
        assert!(alone.contains("`brindle device replace cancel`"), "{alone}");
    }
    let twin = member(&superblock(FSID, 1, 1, 5));
    refused(&[Arc::clone(&first), twin], "member1 is devid 1, as is member1, which is just as new");
    let older = member(&superblock(FSID, 1, 1, 4));
    open(&[member(&superblock(FSID, 1, 1, 5)), older], false).expect("the newer one counts");
}

#[test]
fn a_newer_device_does_not_win_if_the_others_go_with_an_older_one_of_its_devid() {
    let at = |devid: u64, generation: u64| member(&superblock(FSID, devid, 2, generation));
    for degraded in [false, true] {
        let error = open(&[at(1, 5), at(2, 20), at(2, 5)], degraded).expect_err("one of them was replaced");
        assert!(matches!(error, VolumeError::Rivals { .. }), "{error}");
        let words = "member2 (generation 20) and member2 (generation 5) are both devid 2, and member1 goes with the older";
        assert!(error.to_string().starts_with(words), "{error}");
    }
    // Old copies are no rivals: beside a device that goes with the newer one, nor after a crash between superblocks, nor of a
    // device that is as stale as any.
    open(&[at(1, 20), at(2, 20), at(2, 5)], false).expect("an old copy");
    open(&[at(1, 19), at(2, 20), at(2, 19)], false).expect("an old copy, and a crash");
    let are_rivals = |devices: &[Arc<Flaky>]| matches!(open(devices, true), Err(VolumeError::Rivals { .. }));
    assert!(!are_rivals(&[at(1, 5), at(2, 20), at(2, 7)]), "a stale one, and an old copy");
    // While the first device sleeps, nothing goes with a copy of the other one.
    let of_series = |devid: u64, generation: u64| {
        let mut superblock = superblock(FSID, devid, 2, generation);
        superblock.set_series(Some(Series::new(7)));
        member(&superblock)
    };
    assert!(!are_rivals(&[of_series(1, 5), of_series(2, 20), of_series(2, 5)]), "the first one sleeps");
}

#[test]
fn a_stale_device_is_left_out_unless_only_a_crash_came_between() {
    let devices =
        |behind: u64| [member(&superblock(FSID, 1, 2, 9)), member(&superblock(FSID, 2, 2, 9 - behind))];
    assert_eq!(open(&devices(1), false).expect("as after a crash").writable_devices().len(), 2);
    let words = "member2 (devid 2) is stale, its generation is 7, the pool's 9; mounted with -o degraded \
                 the pool is written without it, and `brindle device rejoin` takes it in again; where the pool can't do \
                 without it, `brindle rescue readmit` sees whether it lacks anything";
    refused(&devices(2), words);
    let devices = devices(2);
    let volume = open(&devices, true).expect("degraded");
    assert_eq!(volume.writable_devices().len(), 1);
    assert!(
        matches!(volume.unused_devices()[0].reason, UnusedReason::Stale(devid) if devid == DevId::new(2))
    );
    let raid1 = OwnedChunk::new(BlockGroupType::DATA | BlockGroupType::RAID1, STRIP as u64, {
        vec![stripe(1, 3 * STRIP as u64), stripe(2, 3 * STRIP as u64)]
    });
    volume.add_chunk(START, &raid1.view()).expect("chunk");
    volume.write_data(START, &[1; SECTOR]).expect("one copy is enough");
    volume
        .write_superblocks(&volume.superblock(), &[], crate::SuperblockCopies::All, &DeviceSet::ALL)
        .expect("one");
    volume.flush(&DeviceSet::ALL).expect("one");
    assert!(devices[1].writes.lock().expect("no panic").is_empty(), "it stays stale");
    let raid0 = OwnedChunk::new(BlockGroupType::DATA | BlockGroupType::RAID0, 2 * STRIP as u64, {
        vec![stripe(1, 0), stripe(2, 0)]
    });
    volume.add_chunk(START + (1 << 20), &raid0.view()).expect("chunk");
    assert!(matches!(volume.check_complete(), Err(VolumeError::MissingDevices { degraded_helps: true, .. })));
    let writable: Vec<bool> = volume.chunks().iter().map(|chunk| chunk.writable).collect();
    assert_eq!(writable, [true, true, false]);
}

#[test]
fn a_device_that_left_the_pool_while_it_was_away_is_not_missed() {
    let devices = [member(&superblock(FSID, 1, 1, 9)), member(&superblock(FSID, 2, 2, 3))];
    for degraded in [false, true] {
        let volume = open(&devices, degraded).expect("every device that the pool has is there");
        assert_eq!(volume.writable_devices().len(), 1);
        let unused = volume.unused_devices();
        assert!(
            matches!(unused[..], [UnusedDevice { reason: UnusedReason::NotInPool(devid), .. }] if devid == DevId::new(2)),
            "{unused:?}"
        );
        assert!(matches!(volume.warnings()[..], [Warning::NotInPool { .. }]), "{:?}", volume.warnings());
        volume
            .write_superblocks(&volume.superblock(), &[], crate::SuperblockCopies::All, &DeviceSet::ALL)
            .expect("one");
    }
    assert!(devices[1].writes.lock().expect("no panic").is_empty(), "it is nobody's");
}

#[test]
fn a_device_that_was_cut_off_is_refused() {
    let device = member(&superblock(FSID, 1, 1, 5));
    let volume = Volume::open_writable(vec![device], &OpenOptions::default()).expect("open");
    volume.add_device(&dev_item(1, FSID, SIZE as u64 + 4096)).expect("device");
    match volume.check_complete() {
        Err(VolumeError::NotWritable(NotWritable::Short { size_bytes, .. })) => {
            assert_eq!(size_bytes, SIZE as u64);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn facts_of_devices_for_placement_follow_their_items() {
    let devices = [member(&superblock(FSID, 1, 2, 5)), member(&superblock(FSID, 2, 2, 5))];
    let volume = open(&devices, false).expect("open");
    let mut item = dev_item(2, FSID, SIZE as u64);
    item.device_type.set(3);
    volume.add_device(&item).expect("again");
    assert!(volume.update_device(DevId::new(2), 1 << 17, 1 << 16));
    assert!(!volume.update_device(DevId::new(3), 1 << 17, 1 << 16));
    let status = &volume.writable_devices()[1];
    assert_eq!((status.item.total_bytes.get(), status.item.bytes_used.get()), (1 << 17, 1 << 16));
    assert_eq!((status.size_bytes, devices[1].class()), (SIZE as u64, DeviceClass::Solid));
    assert_eq!((status.class, status.hint), (PlacementClass::Fast, AllocationHint::DataOnly));
}
