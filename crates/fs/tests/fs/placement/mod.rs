//! Placement of new chunks and data in pools of two classes of devices, without ENOSPC before its time. The published
//! cases of `ssd_metadata` are named by their numbers there.

mod autodefrag;
mod classes;
mod ground;
mod kernel;
mod limits;
mod log_alone;
mod preallocated;
mod refusing;
mod sorting;
mod split;
mod tiers;
mod writeback;

use brindle_care::balance;
use brindle_care::job::Control;
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{AllocationHint, Filesystem, NewInode, PlacementClass, PlacementMode};
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use brindle_policy::balance::{Balance, Filter};
use ground::{Devices, Making, MixedPool, devices_of, devices_of_file, is_no_space, names, put};
use std::collections::BTreeSet;

const DATA: BlockGroupType = BlockGroupType::DATA;
const METADATA: BlockGroupType = BlockGroupType::METADATA;
const SYSTEM: BlockGroupType = BlockGroupType::SYSTEM;
const MIB: usize = 1 << 20;

const TWO_AND_TWO: Devices<'_> = &[(Rotating, 512), (Solid, 256), (Rotating, 512), (Solid, 256)];

/// Files until there is no space any more; how many.
fn fill(fs: &Filesystem, bytes: usize, name: &str) -> usize {
    for number in 0.. {
        match put(fs, fs.root(), &format!("{name}{number}"), bytes) {
            Ok(_) if number % 16 == 15 => fs.sync().expect("what was accepted can be written"),
            Ok(_) => {}
            Err(error) if is_no_space(&error) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("numbers do not end")
}

#[test]
fn s0_01_metadata_on_ssds_and_data_on_disks() {
    for making in [Making::of(Profile::Raid1, Profile::Raid1), Making::of(Profile::Single, Profile::Dup)] {
        let pool = MixedPool::new(TWO_AND_TWO, making);
        let fs = pool.open();
        for number in 0..24 {
            put(&fs, fs.root(), &format!("file{number}"), 8 * MIB).expect("room");
        }
        let chunks = fs.pool().volume().chunks();
        assert!(chunks.iter().filter(|chunk| chunk.kind.contains(DATA)).count() > 1, "there are new ones");
        assert!(devices_of(&fs, DATA).is_subset(&names(&["memory1", "memory3"])));
        assert!(devices_of(&fs, METADATA).is_subset(&names(&["memory2", "memory4"])));
        assert!(devices_of(&fs, SYSTEM).is_subset(&names(&["memory2", "memory4"])));
        pool.close(fs);
    }
}

#[test]
fn s0_02_the_class_is_that_of_the_host_unless_the_user_or_the_pool_says_otherwise() {
    let mut pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Single, Profile::Single));
    let classes = |fs: &Filesystem| {
        let devices = fs.pool().space_summary().expect("writable").devices;
        devices.iter().map(|device| (device.devid.get(), device.class)).collect::<Vec<_>>()
    };
    use PlacementClass::{Bulk, Fast};
    // mkfs gives fast devices the lowest ids.
    let fs = pool.open();
    assert_eq!(classes(&fs), [(1, Fast), (2, Fast), (3, Bulk), (4, Bulk)]);
    // A hint makes all of them count.
    fs.pool().set_allocation_hint(DevId::new(3), AllocationHint::MetadataPreferred).expect("it is there");
    assert_eq!(classes(&fs), [(1, Bulk), (2, Bulk), (3, Fast), (4, Bulk)]);
    assert!(fs.pool().set_allocation_hint(DevId::new(9), AllocationHint::DataOnly).is_err());
    pool.close(fs);
    pool.write.classes.insert("memory3".to_owned(), Fast);
    let fs = pool.open();
    let of_name = |name: &str| {
        let devices = fs.pool().volume().devices();
        devices.iter().find(|device| device.name == name).expect("of the pool").devid.get()
    };
    let third = of_name("memory3");
    let found = classes(&fs);
    let fast: Vec<u64> = found.iter().filter(|(_, class)| *class == Fast).map(|(devid, _)| *devid).collect();
    assert!(fast.contains(&third) && fast.contains(&3) && fast.len() <= 2, "{found:?}, memory3 is {third}");
    pool.close(fs);
}

#[test]
fn a_hint_is_stored_in_the_device_item_and_in_the_superblock() {
    let pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Raid1, Profile::Raid1));
    let fs = pool.open();
    for (devid, hint) in [(1, AllocationHint::MetadataOnly), (4, AllocationHint::NoNewChunks)] {
        fs.pool().set_allocation_hint(DevId::new(devid), hint).expect("it is there");
    }
    fs.sync().expect("a commit for it alone");
    let stored = |device: &std::sync::Arc<dyn brindle_device::WritableDevice>| {
        let mut bytes = [0; brindle_ondisk::SUPERBLOCK_SIZE];
        device.read_at(brindle_ondisk::SUPERBLOCK_OFFSETS[0], &mut bytes).expect("readable");
        let item = brindle_ondisk::Superblock::from_bytes(&bytes).dev_item;
        (item.devid.get(), item.device_type.get())
    };
    let mut in_superblocks: Vec<_> = pool.devices.iter().map(stored).collect();
    in_superblocks.sort_unstable();
    assert_eq!(in_superblocks, [(1, 2), (2, 0), (3, 0), (4, 4)]);
    pool.close(fs);
    let fs = pool.open();
    let hints: Vec<_> = fs.pool().volume().devices().iter().map(|device| device.hint.number()).collect();
    assert_eq!(hints, [2, 0, 0, 4], "in the chunk tree, too");
    pool.close(fs);
}

#[test]
fn a_device_that_is_missing_is_given_a_hint() {
    let pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Raid1, Profile::Raid1));
    let fs = pool.open();
    let absent = fs.pool().volume().devices().pop().expect("four");
    pool.close(fs);
    let mut options = pool.open.clone();
    options.pool.volume.degraded = true;
    let there = pool.devices.iter().filter(|device| device.name() != absent.name).cloned().collect();
    let fs = Filesystem::open_writable(there, &options, &pool.write).expect("a copy of everything is there");
    fs.pool().set_allocation_hint(absent.devid, AllocationHint::NoNewChunks).expect("of the pool");
    assert!(fs.pool().set_allocation_hint(DevId::new(9), AllocationHint::DataOnly).is_err());
    fs.sync().expect("a commit for it alone");
    let hint_of = |fs: &Filesystem| {
        let devices = fs.pool().volume().devices();
        devices.iter().find(|device| device.devid == absent.devid).expect("of the pool").hint
    };
    assert_eq!(hint_of(&fs), AllocationHint::NoNewChunks);
    fs.shutdown().expect("closes");
    drop(fs);
    let all = pool
        .devices
        .iter()
        .map(|device| std::sync::Arc::clone(device) as std::sync::Arc<dyn brindle_device::Device>)
        .collect();
    let fs = Filesystem::open(all, &pool.open).expect("readable");
    assert_eq!(hint_of(&fs), AllocationHint::NoNewChunks, "in the chunk tree");
}

#[test]
fn a_hint_counts_from_the_next_chunk_on() {
    let pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Single, Profile::Single));
    let fs = pool.open();
    let before = devices_of(&fs, DATA);
    let devices = fs.pool().volume().devices();
    let only = devices.iter().find(|device| before.contains(&device.name)).expect("one has the first chunk");
    fs.pool().set_allocation_hint(only.devid, AllocationHint::NoNewChunks).expect("it is there");
    let used = only.bytes_used;
    fill(&fs, 16 * MIB, "file");
    fs.sync().expect("there is room for that");
    let devices = fs.pool().volume().devices();
    let now = devices.iter().find(|device| device.devid == only.devid).expect("still there");
    assert_eq!(now.bytes_used, used, "nothing new at all");
    assert!(devices_of(&fs, DATA).len() == 4, "all others are full");
    pool.close(fs);
}

#[test]
fn s0_03_without_the_mode_chunks_go_where_the_most_space_is() {
    let mut pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Single, Profile::Single));
    pool.write.placement = PlacementMode::Classic;
    let fs = pool.open();
    assert!(!fs.pool().has_tiers());
    for round in 0..4 {
        let before = fs.pool().volume().chunks().len();
        let room = fs.pool().space_summary().expect("writable").devices;
        let most = room.iter().map(|device| device.unallocated_bytes).max().expect("some");
        for number in 0.. {
            put(&fs, fs.root(), &format!("{round}-{number}"), 8 * MIB).expect("room");
            let chunks = fs.pool().volume().chunks();
            if let Some(new) = chunks.get(before) {
                let device = room.iter().find(|device| device.devid == new.stripes[0].devid).expect("known");
                assert_eq!(device.unallocated_bytes, most, "round {round}");
                break;
            }
        }
    }
    pool.close(fs);
}

#[test]
fn s0_04_and_s0_06_when_disks_are_full_data_goes_to_ssds_and_nothing_fails() {
    for (data, metadata) in [(Profile::Raid1, Profile::Raid1), (Profile::Single, Profile::Dup)] {
        let pool = MixedPool::new(
            &[(Solid, 256), (Rotating, 128), (Solid, 256), (Rotating, 128), (Solid, 256)],
            Making::of(data, metadata),
        );
        let fs = pool.open();
        let before = fs.pool().space_summary().expect("writable");
        fill(&fs, 4 * MIB, "file");
        assert_eq!(devices_of(&fs, DATA).len(), 5);
        let after = fs.pool().space_summary().expect("writable");
        let written = before.data_room.bytes - after.data_room.bytes;
        assert!(after.data_room.bytes < 24 << 20, "{data}: {after:?}");
        assert!(written > before.data_room.bytes / 10 * 9, "{data}: what was said to fit did");
        pool.close(fs);
    }
}

#[test]
fn strict_says_that_there_is_no_space_rather_than_spill() {
    let mut pool =
        MixedPool::new(&[(Solid, 128), (Rotating, 256)], Making::of(Profile::Single, Profile::Single));
    pool.write.placement = PlacementMode::Strict;
    let fs = pool.open();
    let room = fs.pool().space_summary().expect("writable");
    assert_eq!(room.data_room.preferred_bytes, room.data_room.bytes);
    let statistics = fs.space().expect("readable");
    assert!(statistics.available_bytes < 260 << 20, "the SSD is not for data: {statistics:?}");
    fill(&fs, 4 * MIB, "file");
    assert_eq!(devices_of(&fs, DATA), names(&["memory2"]));
    // Metadata as well, in files that fit into the tree.
    fill(&fs, 1900, "small");
    assert_eq!(devices_of(&fs, METADATA), names(&["memory1"]));
    assert_eq!(devices_of(&fs, DATA), names(&["memory2"]));
    pool.close(fs);
}

#[test]
fn strict_asks_nothing_of_a_pool_of_one_class() {
    for class in [Solid, Rotating] {
        let mut pool =
            MixedPool::new(&[(class, 256), (class, 256)], Making::of(Profile::Raid1, Profile::Raid1));
        pool.write.placement = PlacementMode::Strict;
        let fs = pool.open();
        assert!(fill(&fs, 4 * MIB, "file") > 30);
        pool.close(fs);
    }
}

#[test]
fn the_mode_changes_from_the_next_chunk_on_and_strict_waits_for_what_was_accepted() {
    let pool = MixedPool::new(&[(Solid, 512), (Rotating, 256)], Making::of(Profile::Single, Profile::Single));
    let fs = pool.open();
    let set = |mode| fs.pool().set_placement(mode);
    set(PlacementMode::Strict).expect("nothing waits");
    fill(&fs, MIB, "strict");
    assert_eq!(devices_of(&fs, DATA), names(&["memory2"]));
    set(PlacementMode::Preferred).expect("always possible");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    for number in 0..20 {
        let id = fs.create(fs.root(), format!("waits{number}").as_bytes(), &new).expect("room").id;
        let file = fs.open_file(id).expect("there it is");
        fs.write(&file, 0, &vec![7; MIB]).expect("there is room on flash");
    }
    assert!(set(PlacementMode::Strict).is_err(), "it was accepted, and does not fit on the disk");
    assert_eq!(fs.pool().placement().expect("writable"), PlacementMode::Preferred);
    fs.sync().expect("so it is written");
    set(PlacementMode::Strict).expect("nothing waits any more");
    assert_eq!(fill(&fs, MIB, "refused"), 0);
    set(PlacementMode::Classic).expect("always possible");
    assert!(!fs.pool().has_tiers());
    assert!(fill(&fs, 4 * MIB, "classic") > 10, "flash is as good as any");
    pool.close(fs);
}

#[test]
fn strict_refuses_nothing_while_devices_are_missing() {
    let mut pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Raid1, Profile::Raid1));
    pool.write.placement = PlacementMode::Strict;
    pool.devices.remove(1);
    pool.open.pool.volume.degraded = true;
    let fs = pool.open();
    assert_eq!(fs.pool().space_summary().expect("writable").placement, PlacementMode::Preferred);
    // One SSD is left, and metadata is to have two copies.
    let before = fs.pool().volume().chunks().len();
    for number in 0..60_000 {
        put(&fs, fs.root(), &format!("file{number}"), 1900).expect("there is room on the disks");
        if fs.pool().volume().chunks().len() > before {
            break;
        }
    }
    let chunks = fs.pool().volume().chunks();
    let new = chunks.iter().skip(before).find(|chunk| chunk.kind.contains(METADATA)).expect("there is one");
    assert_eq!(new.stripes.len(), 2, "as redundant as ever");
    fs.shutdown().expect("closes");
}

#[test]
fn s0_12_mixed_block_groups_ignore_the_mode() {
    let making = Making { features: "mixed-bg", ..Making::of(Profile::Single, Profile::Single) };
    let pool = MixedPool::new(&[(Solid, 256), (Rotating, 1024)], making);
    let fs = pool.open();
    assert!(!fs.pool().has_tiers());
    for number in 0..80 {
        put(&fs, fs.root(), &format!("file{number}"), 4 * MIB).expect("room");
    }
    assert!(devices_of(&fs, DATA).contains("memory2"), "it has the most space");
    pool.close(fs);
}

#[test]
fn s0_15_mkfs_is_right_from_the_first_chunk_on() {
    for is_told in [false, true] {
        let pool =
            MixedPool::new(TWO_AND_TWO, Making { is_told, ..Making::of(Profile::Raid1, Profile::Raid1) });
        let fs = pool.open();
        assert_eq!(devices_of(&fs, METADATA), names(&["memory2", "memory4"]));
        assert_eq!(devices_of(&fs, SYSTEM), names(&["memory2", "memory4"]));
        assert_eq!(devices_of(&fs, DATA), names(&["memory1", "memory3"]));
        pool.close(fs);
    }
}

#[test]
fn s0_11_and_s0_16_a_balance_puts_what_lies_wrong_where_it_belongs() {
    // The devices all look alike to mkfs.
    let mut pool = MixedPool::new(&[(Rotating, 512); 4], Making::of(Profile::Single, Profile::Raid1));
    let fs = pool.open();
    for number in 0..300 {
        put(&fs, fs.root(), &format!("small{number}"), 5000).expect("room");
    }
    for number in 0..60 {
        put(&fs, fs.root(), &format!("large{number}"), 8 * MIB).expect("room");
    }
    let slow = devices_of(&fs, METADATA);
    assert_eq!(slow.len(), 2, "the two that mkfs chose");
    let fast = &names(&["memory1", "memory2", "memory3", "memory4"]) - &slow;
    pool.close(fs);
    let told =
        |names: &BTreeSet<String>, class| names.iter().map(|name| (name.clone(), class)).collect::<Vec<_>>();
    pool.write.classes.extend(told(&slow, PlacementClass::Bulk));
    pool.write.classes.extend(told(&fast, PlacementClass::Fast));
    let fs = pool.open();
    let misplaced = || Some(Filter { misplaced: true, ..Filter::default() });
    let wanted = Balance { data: None, metadata: misplaced(), system: misplaced() };
    let ended = balance::start(&fs, &wanted, false, &mut |_| Control::Continue).expect("there is room");
    assert_eq!(ended.progress.left, 0);
    fs.sync().expect("a commit");
    assert_eq!(devices_of(&fs, METADATA), fast);
    assert_eq!(devices_of(&fs, SYSTEM), fast);
    pool.close(fs);
}

#[test]
fn statfs_counts_no_device_that_data_never_lies_on() {
    let pool = MixedPool::new(
        &[(Rotating, 2048), (Rotating, 2048), (Solid, 1024)],
        Making::of(Profile::Single, Profile::Single),
    );
    let fs = pool.open();
    let before = fs.space().expect("readable");
    let ssd = DevId::new(1);
    fs.pool().set_allocation_hint(ssd, AllocationHint::MetadataOnly).expect("it is there");
    fs.sync().expect("commits");
    let after = fs.space().expect("readable");
    assert_eq!(before.total_bytes - after.total_bytes, 1024 << 20);
    assert!(before.available_bytes - after.available_bytes > 800 << 20);
    let room = fs.pool().space_summary().expect("writable");
    assert_eq!(room.data_room.preferred_bytes, room.data_room.bytes);
    assert_eq!(room.fast_data_room.bytes, 0);
    let difference = room.data_room.bytes.abs_diff(after.available_bytes);
    assert!(difference < 8 << 20, "{room:?} {after:?}");
    pool.close(fs);
}

#[test]
fn a_file_lies_where_its_chunk_does() {
    let pool = MixedPool::new(TWO_AND_TWO, Making::of(Profile::Raid1, Profile::Raid1));
    let fs = pool.open();
    let file = put(&fs, fs.root(), "file", MIB).expect("room");
    assert_eq!(devices_of_file(&fs, file), names(&["memory1", "memory3"]));
    pool.close(fs);
}
