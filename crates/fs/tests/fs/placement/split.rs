//! The fast tier of data with fewer fast devices than copies: one copy lies on each fast device.

use super::ground::{Making, MixedPool, devices_of, devices_of_file, directory, mark, names, put};
use super::sorting::{apply, look};
use super::writeback::{destage, sync_more, waiting};
use super::{DATA, MIB, fill};
use brindle_care::balance::{self, BalanceError};
use brindle_care::job::Control;
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{
    AllocateMode, AllocationHint, Filesystem, InodeId, NewInode, PlacementMode, WriteBackMode,
    WriteBackSettings, WriteBackWish,
};
use brindle_ondisk::Profile;
use brindle_policy::balance::Balance;
use brindle_policy::tier::files::FileTiers;
use brindle_tree::FastTier;

/// Two disks and an SSD, `memory3`.
fn pool() -> MixedPool {
    pool_of(&[(Rotating, 1024), (Rotating, 1024), (Solid, 512)], Profile::Raid1)
}

fn pool_of(devices: super::Devices<'_>, data: Profile) -> MixedPool {
    let mut pool = MixedPool::new(devices, Making::of(data, Profile::Raid1));
    pool.write.small_file_bytes = Some(64 << 10);
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    pool
}

/// True if one of the two copies is on the SSD, false if none is.
fn is_on_flash(fs: &Filesystem, file: InodeId) -> bool {
    let devices = devices_of_file(fs, file);
    assert_eq!(devices.len(), 2, "both copies of all extents: {devices:?}");
    devices.contains("memory3")
}

fn hint(fs: &Filesystem, name: &str, hint: AllocationHint) {
    let devices = fs.pool().volume().devices();
    let device = devices.iter().find(|device| device.name == name).expect("of the pool");
    fs.pool().set_allocation_hint(device.devid, hint).expect("there");
}

#[test]
fn small_and_marked_files_have_a_copy_on_the_only_ssd_and_others_have_none() {
    let pool = pool();
    let fs = pool.open();
    assert_eq!(fs.pool().fast_tier(), FastTier::Split);
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    let slow = directory(&fs, fs.root(), "slow");
    mark(&fs, slow, "bulk");
    for number in 0..20 {
        for (parent, bytes, expected) in
            [(fs.root(), 5000, true), (fs.root(), MIB, false), (fast, MIB, true), (slow, 5000, false)]
        {
            let file = put(&fs, parent, &format!("{number} of {bytes}"), bytes).expect("room");
            assert_eq!(is_on_flash(&fs, file), expected, "{bytes} bytes");
        }
    }
    let preallocated = put(&fs, fast, "preallocated", 0).expect("room");
    let file = fs.open_file(preallocated).expect("there");
    fs.allocate(&file, AllocateMode::Allocate, 0, 4 << 20).expect("room");
    drop(file);
    assert!(is_on_flash(&fs, preallocated));
    assert!(look(&fs).fast_in_place.extents >= 40);
    assert_eq!(apply(&fs).expect("room").progress.moved_bytes, 0, "all of it is right");
    pool.close(fs);
}

#[test]
fn three_copies_take_the_fast_devices_that_there_are() {
    let disks = [(Rotating, 1024); 4];
    for (ssds, on_flash) in [(1, 1), (2, 2)] {
        let devices: Vec<_> = disks.iter().copied().chain(vec![(Solid, 512); ssds]).collect();
        let pool = pool_of(&devices, Profile::Raid1c3);
        let fs = pool.open();
        let small = put(&fs, fs.root(), "small", 5000).expect("room");
        let large = put(&fs, fs.root(), "large", MIB).expect("room");
        let count = |file| {
            let devices = devices_of_file(&fs, file);
            (devices.len(), devices.intersection(&names(&["memory5", "memory6"])).count())
        };
        assert_eq!((count(small), count(large)), ((3, on_flash), (3, 0)));
        pool.close(fs);
    }
}

#[test]
fn profiles_that_stripe_and_pools_with_too_few_disks_have_no_such_tier() {
    let one_ssd = [(Rotating, 1024), (Rotating, 1024), (Rotating, 1024), (Rotating, 1024), (Solid, 512)];
    for (devices, data) in [
        (&one_ssd[..], Profile::Raid10),
        (&one_ssd[..], Profile::Raid5),
        (&one_ssd[3..], Profile::Raid1),
        (&one_ssd[..4], Profile::Raid1),
    ] {
        let pool = pool_of(devices, data);
        let fs = pool.open();
        assert_eq!(fs.pool().fast_tier(), FastTier::Absent, "{data}");
        put(&fs, fs.root(), "small", 5000).expect("room");
        assert_eq!(fs.pool().space_summary().expect("writable").fast_data_room.bytes, 0, "{data}");
        assert_eq!(look(&fs), FileTiers::default(), "{data}");
        pool.close(fs);
    }
    // An SSD that takes no data can't have a copy.
    let pool = pool();
    let fs = pool.open();
    hint(&fs, "memory3", AllocationHint::MetadataOnly);
    assert_eq!(fs.pool().fast_tier(), FastTier::Absent);
    let small = put(&fs, fs.root(), "small", 5000).expect("room");
    assert!(!is_on_flash(&fs, small));
    pool.close(fs);
}

#[test]
fn marks_that_come_and_go_move_what_is_there() {
    let mut pool = pool();
    pool.write.small_file_bytes = None;
    let fs = pool.open();
    let file = put(&fs, fs.root(), "file", 4 * MIB).expect("room");
    let other = put(&fs, fs.root(), "other", 4 * MIB).expect("room");
    let small = put(&fs, fs.root(), "small", 5000).expect("room");
    assert_eq!([file, other, small].map(|file| is_on_flash(&fs, file)), [false; 3]);
    mark(&fs, file, "fast");
    fs.set_small_file_bytes(64 << 10).expect("writable");
    assert_eq!(look(&fs).fast_on_bulk.extents, 2);
    apply(&fs).expect("room");
    assert_eq!([file, other, small].map(|file| is_on_flash(&fs, file)), [true, false, true]);
    // A balance of everything keeps it so.
    balance::start(&fs, &Balance::full(), false, &mut |_| Control::Continue).expect("room");
    assert_eq!([file, other, small].map(|file| is_on_flash(&fs, file)), [true, false, true]);
    fs.remove_xattr(file, b"user.brindle.tier").expect("it was there");
    fs.set_small_file_bytes(0).expect("writable");
    apply(&fs).expect("room");
    assert_eq!([file, other, small].map(|file| is_on_flash(&fs, file)), [false; 3]);
    assert_eq!(apply(&fs).expect("room").progress.moved_bytes, 0);
    pool.close(fs);
}

#[test]
fn small_files_go_on_on_the_disks_when_the_ssd_is_full_and_metadata_keeps_its_part() {
    let pool = pool_of(&[(Rotating, 1024), (Rotating, 1024), (Solid, 256)], Profile::Raid1);
    let fs = pool.open();
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    let room = fs.pool().space_summary().expect("writable").fast_data_room.bytes;
    assert!((100 << 20..192 << 20).contains(&room), "{room}");
    let files: Vec<InodeId> =
        (0..64).map(|number| put(&fs, fast, &format!("{number}"), 4 * MIB).expect("room")).collect();
    let on_flash =
        files.iter().filter(|file| devices_of_file(&fs, **file).contains("memory3")).count() as u64;
    assert!((on_flash * 4) << 20 >= room - (8 << 20), "{on_flash} of {room}");
    let summary = fs.pool().space_summary().expect("writable");
    assert!(summary.metadata_room.preferred_bytes >= 32 << 20, "{summary:?}");
    pool.close(fs);
}

#[test]
fn data_that_spills_fills_the_chunks_that_are_there_and_goes_back_when_there_is_room() {
    let pool = pool_of(&[(Rotating, 256), (Rotating, 1024), (Solid, 1024)], Profile::Raid1);
    let fs = pool.open();
    let before = fs.pool().space_summary().expect("writable");
    let mut files = Vec::new();
    let is_spilled = |fs: &Filesystem, file| devices_of_file(fs, file).contains("memory3");
    while files.last().is_none_or(|file| !is_spilled(&fs, *file)) {
        files.push(put(&fs, fs.root(), &format!("{}", files.len()), 4 * MIB).expect("room"));
    }
    let chunks = || fs.pool().volume().chunks().len();
    let count = chunks();
    for number in 0..8 {
        let file = put(&fs, fs.root(), &format!("more {number}"), 128 << 10).expect("room");
        assert!(is_on_flash(&fs, file), "the smaller disk is full");
    }
    assert_eq!(chunks(), count, "no chunk is made as long as there is room in those of before");
    assert!(look(&fs).bulk_on_fast.bytes > 1 << 20);
    fs.sync().expect("commits");
    assert!(matches!(apply(&fs), Err(BalanceError::NoSpace { .. })), "the disks are full");
    for file in &files[..files.len() / 2] {
        let number = files.iter().position(|other| other == file).expect("there");
        fs.unlink(fs.root(), format!("{number}").as_bytes()).expect("there");
    }
    fs.sync().expect("commits");
    apply(&fs).expect("there is room again");
    assert_eq!(look(&fs).bulk_on_fast.bytes, 0);
    fill(&fs, 4 * MIB, "full");
    let after = fs.pool().space_summary().expect("writable");
    assert!(after.data_room.bytes < 24 << 20, "what was said to fit did: {before:?}, {after:?}");
    pool.close(fs);
}

#[test]
fn strict_keeps_other_data_off_the_ssd_and_small_files_on_it() {
    let mut pool = pool_of(&[(Rotating, 256), (Rotating, 1024), (Solid, 512)], Profile::Raid1);
    pool.write.placement = PlacementMode::Strict;
    let fs = pool.open();
    let small = put(&fs, fs.root(), "small", 5000).expect("room");
    assert!(is_on_flash(&fs, small));
    let count = fill(&fs, 4 * MIB, "large");
    let root = fs.root();
    for number in 0..count {
        let file = fs.lookup(root, format!("large{number}").as_bytes()).expect("readable").expect("there");
        assert!(!is_on_flash(&fs, file.inode));
    }
    let summary = fs.pool().space_summary().expect("writable");
    assert!(summary.fast_data_room.bytes > 64 << 20, "{summary:?}");
    pool.close(fs);
}

#[test]
fn a_pool_without_one_of_its_devices_goes_on_without_the_tier() {
    for missing in [0, 2] {
        let mut pool = pool();
        let fs = pool.open();
        let small = put(&fs, fs.root(), "small", 5000).expect("room");
        fs.shutdown().expect("closes");
        drop(fs);
        pool.devices.remove(missing);
        pool.open.pool.volume.degraded = true;
        let fs = pool.open();
        assert_eq!(fs.pool().fast_tier(), FastTier::Absent);
        let file = fs.open_file(small).expect("there");
        let mut found = vec![0; 5000];
        assert_eq!(fs.read(&file, 0, &mut found).expect("a copy is left"), 5000);
        drop(file);
        for (name, bytes) in [("new", 5000), ("large", 200 * MIB)] {
            let new = put(&fs, fs.root(), name, bytes).expect("room");
            // A chunk of before may lack a copy, as in any degraded pool; new ones have all.
            assert!(devices_of_file(&fs, new).len() >= 2, "{name}");
        }
        let is_whole = |chunk: &brindle_volume::ChunkStatus| chunk.stripes.len() == 2;
        assert!(fs.pool().volume().chunks().iter().all(is_whole));
        fs.shutdown().expect("closes");
    }
}

#[test]
fn a_second_ssd_takes_the_other_copies() {
    let pool = pool_of(&[(Rotating, 1024), (Rotating, 1024), (Solid, 512), (Rotating, 512)], Profile::Raid1);
    let fs = pool.open();
    let files: Vec<InodeId> =
        (0..20).map(|number| put(&fs, fs.root(), &format!("{number}"), 20_000).expect("room")).collect();
    let large = put(&fs, fs.root(), "large", 8 * MIB).expect("room");
    assert!(files.iter().all(|file| is_on_flash(&fs, *file)) && !is_on_flash(&fs, large));
    for name in ["memory3", "memory4"] {
        hint(&fs, name, AllocationHint::MetadataPreferred);
    }
    assert_eq!(fs.pool().fast_tier(), FastTier::Alone);
    apply(&fs).expect("room");
    let both = names(&["memory3", "memory4"]);
    assert!(files.iter().all(|file| devices_of_file(&fs, *file) == both));
    assert!(devices_of_file(&fs, large).is_disjoint(&both));
    // And away again.
    hint(&fs, "memory4", AllocationHint::DataPreferred);
    apply(&fs).expect("room");
    assert!(files.iter().all(|file| is_on_flash(&fs, *file)) && !is_on_flash(&fs, large));
    pool.close(fs);
}

#[test]
fn nothing_waits_on_a_disk_and_what_waits_goes_to_its_tier() {
    let pool = pool();
    let fs = pool.open();
    let new = |name: &str, bytes| {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let id = fs.create(fs.root(), name.as_bytes(), &new).expect("room").id;
        sync_more(&fs, id, 0, bytes);
        id
    };
    // Redundancy is not traded for speed: a sync waits for the disk.
    let small = new("small", 20_000);
    assert!(is_on_flash(&fs, small));
    assert_eq!(waiting(&fs), 0);
    let single = WriteBackSettings { mode: None, profile: Some(Profile::Single) };
    fs.set_write_back(single).expect("writable");
    let files = [new("waits", 20_000), new("large", MIB)];
    let marked = new("marked", MIB);
    mark(&fs, marked, "fast");
    sync_more(&fs, marked, 0, MIB);
    let pieces = new("pieces", 8192);
    for round in 1..6 {
        sync_more(&fs, pieces, round * 8192, 8192);
    }
    let ssd = names(&["memory3"]);
    for file in [files[0], files[1], marked, pieces] {
        assert_eq!(devices_of_file(&fs, file), ssd, "a sync asks nothing of the disks");
    }
    assert!(waiting(&fs) >= 2 << 20);
    fs.sync().expect("commits");
    destage(&fs);
    assert_eq!(waiting(&fs), 0);
    assert_eq!(files.map(|file| is_on_flash(&fs, file)), [true, false]);
    assert!(is_on_flash(&fs, marked) && is_on_flash(&fs, pieces));
    assert_eq!(apply(&fs).expect("room").progress.moved_bytes, 0, "all of it is right");
    assert!(devices_of(&fs, DATA).contains("memory3"));
    pool.close(fs);
}
