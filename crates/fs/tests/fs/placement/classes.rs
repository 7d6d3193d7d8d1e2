//! Four classes of devices: the order in which they are filled, marks that name them, and moves between them.

use super::ground::{Making, MixedPool, append, devices_of, devices_of_file, directory, mark, names, put};
use super::{DATA, METADATA, MIB, SYSTEM, fill};
use brindle_care::balance::{self, BalanceError};
use brindle_care::job::{Control, Ended};
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{
    DeviceClasses, Filesystem, InodeId, PlacementClass, PlacementMode, WriteBackMode, WriteBackWish,
};
use brindle_ondisk::item::DeviceClassesHeader;
use brindle_ondisk::{Profile, RootId, Uuid};
use brindle_policy::balance::Balance;
use brindle_tree::Need;
use std::collections::BTreeSet;

const NAMES: [&str; 4] = ["nvme", "ssd", "disk", "smr"];

/// Devices of four classes in their order, each larger than the one before.
fn pool() -> MixedPool {
    pool_of([384, 512, 640, 1024])
}

fn pool_of(mib: [u64; 4]) -> MixedPool {
    let classes = [Solid, Solid, Rotating, Rotating];
    let devices: Vec<_> = classes.into_iter().zip(mib).collect();
    MixedPool::new(&devices, Making::of(Profile::Single, Profile::Single))
}

fn uuid(fs: &Filesystem, name: &str) -> Uuid {
    let devices = fs.pool().volume().devices();
    devices.iter().find(|device| device.name == name).expect("of the pool").uuid
}

fn classes(fs: &Filesystem) -> DeviceClasses {
    let mut classes = DeviceClasses::default();
    classes.list(PlacementClass::Fast, &NAMES[..2]).expect("names");
    classes.list(PlacementClass::Bulk, &NAMES[2..]).expect("names");
    for (number, class) in NAMES.iter().enumerate() {
        classes.assign(uuid(fs, &format!("memory{}", number + 1)), class).expect("listed");
    }
    classes
}

/// The pool with four classes, and all that mkfs has made where it belongs.
fn open_with_classes(pool: &MixedPool) -> Filesystem {
    let fs = pool.open();
    fs.pool().set_classes(&classes(&fs)).expect("writable");
    apply(&fs).expect("room");
    fs
}

fn apply(fs: &Filesystem) -> Result<Ended, BalanceError> {
    fs.sync().expect("a commit");
    let ended = balance::start(fs, &Balance::of_misplaced(), false, &mut |_| Control::Continue);
    fs.sync().expect("a commit");
    ended
}

fn lies_on(fs: &Filesystem, file: InodeId) -> BTreeSet<String> {
    devices_of_file(fs, file)
}

#[test]
fn metadata_lies_on_the_fastest_class_and_data_on_the_fastest_bulk_one() {
    let pool = pool();
    let fs = open_with_classes(&pool);
    let file = put(&fs, fs.root(), "file", 20 * MIB).expect("room");
    assert_eq!(devices_of(&fs, METADATA), names(&["memory1"]));
    assert_eq!(devices_of(&fs, SYSTEM), names(&["memory1"]));
    assert_eq!(lies_on(&fs, file), names(&["memory3"]));
    pool.close(fs);
    // Without the host's word: the pool stores it.
    let fs = pool.open();
    assert_eq!(fs.pool().stored_classes().expect("readable"), Ok(classes(&fs)));
    let hints = fs.pool().space_summary().expect("writable").devices;
    assert_eq!(hints.iter().filter(|device| device.stored_type != 0).count(), 2, "{hints:?}");
    pool.close(fs);
}

#[test]
fn a_mark_names_a_class_which_is_inherited_and_kept_by_a_balance() {
    // Room for a second metadata chunk beside the first.
    let pool = pool_of([1024, 1024, 1024, 1024]);
    let fs = open_with_classes(&pool);
    let mut files = Vec::new();
    for (number, class) in NAMES.iter().enumerate() {
        let directory = directory(&fs, fs.root(), class);
        mark(&fs, directory, class);
        let file = put(&fs, directory, "file", 4 * MIB).expect("room");
        files.push((file, names(&[&format!("memory{}", number + 1)])));
    }
    let unknown = directory(&fs, fs.root(), "unknown");
    mark(&fs, unknown, "tape");
    files.push((put(&fs, unknown, "file", 4 * MIB).expect("room"), names(&["memory3"])));
    let check = |fs: &Filesystem| {
        for (file, expected) in &files {
            assert_eq!(lies_on(fs, *file), *expected, "{}", file.number);
        }
    };
    check(&fs);
    let all =
        Balance { data: Some(Default::default()), metadata: Some(Default::default()), ..Balance::default() };
    balance::start(&fs, &all, false, &mut |_| Control::Continue).expect("room");
    check(&fs);
    assert_eq!(devices_of(&fs, METADATA), names(&["memory1"]));
    assert_eq!(apply(&fs).expect("nothing to do").progress.moved_bytes, 0);
    pool.close(fs);
}

#[test]
fn files_that_are_marked_later_move_to_the_class_and_shared_ones_to_the_best() {
    let pool = pool();
    let fs = open_with_classes(&pool);
    let [first, second, shared] =
        ["first", "second", "shared"].map(|name| put(&fs, fs.root(), name, 8 * MIB).expect("room"));
    let target = put(&fs, fs.root(), "clone", 4096).expect("room");
    let (source, clone) = (fs.open_file(shared).expect("there"), fs.open_file(target).expect("there"));
    let pair = brindle_fs::RangePair {
        source: &source,
        source_offset: 0,
        target: &clone,
        target_offset: 0,
        length: 8 << 20,
    };
    fs.clone_range(&pair).expect("room");
    fs.close_file(source).and(fs.close_file(clone)).expect("closes");
    mark(&fs, first, "smr");
    mark(&fs, second, "nvme");
    // The other owner has no mark.
    mark(&fs, shared, "smr");
    apply(&fs).expect("room");
    assert_eq!(lies_on(&fs, first), names(&["memory4"]));
    assert_eq!(lies_on(&fs, second), names(&["memory1"]));
    assert_eq!(lies_on(&fs, shared), names(&["memory3"]));
    mark(&fs, target, "ssd");
    mark(&fs, second, "fast");
    apply(&fs).expect("room");
    assert_eq!(lies_on(&fs, shared), names(&["memory2"]));
    assert_eq!(lies_on(&fs, second), names(&["memory1"]), "right on any fast class");
    pool.close(fs);
}

#[test]
fn a_full_class_hands_on_to_the_next_and_nothing_is_refused_before_all_are_full() {
    let pool = pool();
    let fs = open_with_classes(&pool);
    let id = |name: &str| fs.lookup(fs.root(), name.as_bytes()).expect("read").expect("there").inode;
    let count = fill(&fs, 4 * MIB, "file");
    let places: Vec<BTreeSet<String>> =
        (0..count).map(|number| lies_on(&fs, id(&format!("file{number}")))).collect();
    // Disk, shingled disk, SSD, and at last the fastest; a file may lie on two of them.
    let order = ["memory3", "memory4", "memory2", "memory1"];
    let position = |places: &BTreeSet<String>| {
        let all = places.iter().map(|place| order.iter().position(|name| name == place).expect("a device"));
        (all.clone().min(), all.max())
    };
    let positions: Vec<_> = places.iter().map(position).collect();
    assert!(positions.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{positions:?}");
    assert_eq!(places.iter().flatten().collect::<BTreeSet<_>>().len(), 4, "all devices were filled");
    assert!(count * 4 > 1900, "{count} files");
    fs.sync().expect("a commit");
    pool.close(fs);
}

#[test]
fn metadata_spills_from_class_to_class_and_comes_back() {
    let pool = pool();
    let fs = open_with_classes(&pool);
    // No room on the fastest.
    let nvme = directory(&fs, fs.root(), "nvme");
    mark(&fs, nvme, "nvme");
    let mut number = 0;
    let mut last = None;
    while last.is_none_or(|file| lies_on(&fs, file) == names(&["memory1"])) {
        last = Some(put(&fs, nvme, &format!("file{number}"), 8 * MIB).expect("room"));
        number += 1;
    }
    let last = lies_on(&fs, last.expect("files"));
    assert!(last.is_subset(&names(&["memory1", "memory2"])), "{last:?}: the next class of its side");
    // A quarter is left to metadata, and used first.
    let grow = |from: usize, to: usize| {
        for number in from..to {
            let file = put(&fs, fs.root(), &format!("leaf{number}"), 0).expect("room");
            fs.set_xattr(file, b"user.leaf", &[7; 15_000], brindle_fs::XattrMode::Any).expect("room");
            if number % 500 == 499 {
                fs.sync().expect("a commit");
            }
        }
    };
    grow(0, 4000);
    assert_eq!(devices_of(&fs, METADATA), names(&["memory1"]));
    let mut count = 4000;
    while devices_of(&fs, METADATA) == names(&["memory1"]) {
        assert!(count < 40_000, "more metadata than the fastest device has room for");
        grow(count, count + 500);
        count += 500;
    }
    assert_eq!(devices_of(&fs, METADATA), names(&["memory1", "memory2"]));
    // Data that is marked for a class without room is misplaced, and stays.
    assert!(matches!(apply(&fs), Err(BalanceError::NoSpace { .. })));
    fs.unlink(nvme, format!("file{}", number - 1).as_bytes()).expect("there is always room to delete");
    // Not all of the metadata has room on the fastest: right on any fast device.
    assert_eq!(apply(&fs).expect("nothing has to move").progress.left, 0);
    for number in 0..count - 500 {
        fs.unlink(fs.root(), format!("leaf{number}").as_bytes()).expect("there is always room to delete");
    }
    fs.sync().expect("a commit");
    apply(&fs).expect("room");
    assert_eq!(devices_of(&fs, METADATA), names(&["memory1"]));
    pool.close(fs);
}

#[test]
fn the_write_back_tier_lies_on_the_fastest_class_with_room() {
    let mut pool = pool();
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::All);
    let fs = open_with_classes(&pool);
    let file = put(&fs, fs.root(), "waits", 4 * MIB).expect("room");
    assert_eq!(lies_on(&fs, file), names(&["memory1"]));
    let archive = directory(&fs, fs.root(), "archive");
    mark(&fs, archive, "smr");
    let marked = put(&fs, archive, "marked", 4 * MIB).expect("room");
    assert_eq!(lies_on(&fs, marked), names(&["memory4"]), "what is marked does not wait");
    fs.destage(&|| true).expect("room");
    assert_eq!(lies_on(&fs, file), names(&["memory3"]));
    pool.close(fs);
}

#[test]
fn a_hint_counts_more_than_a_class_of_the_other_side() {
    let pool = pool();
    let fs = open_with_classes(&pool);
    let devid =
        fs.pool().volume().devices().iter().find(|device| device.name == "memory1").expect("there").devid;
    fs.pool().set_allocation_hint(devid, brindle_fs::AllocationHint::DataOnly).expect("there");
    apply(&fs).expect("room");
    assert_eq!(devices_of(&fs, METADATA), names(&["memory2"]));
    let ranks: Vec<(PlacementClass, u8)> = fs
        .pool()
        .space_summary()
        .expect("writable")
        .devices
        .iter()
        .map(|device| (device.class, device.rank))
        .collect();
    use PlacementClass::{Bulk, Fast};
    assert_eq!(ranks.iter().filter(|device| **device == (Bulk, 2)).count(), 2, "{ranks:?}");
    assert!(ranks.contains(&(Fast, 1)) && ranks.contains(&(Bulk, 3)), "{ranks:?}");
    pool.close(fs);
}

#[test]
fn classes_make_no_difference_where_placement_is_classic() {
    let mut pool = pool();
    let fs = open_with_classes(&pool);
    pool.close(fs);
    pool.write.placement = PlacementMode::Classic;
    let fs = pool.open();
    let marked = directory(&fs, fs.root(), "nvme");
    mark(&fs, marked, "nvme");
    let file = put(&fs, marked, "file", 200 * MIB).expect("room");
    assert!(lies_on(&fs, file).contains("memory4"), "{:?}", lies_on(&fs, file));
    pool.close(fs);
}

#[test]
fn a_damaged_item_costs_the_classes_and_nothing_else() {
    let pool = pool();
    let fs = open_with_classes(&pool);
    let whole = classes(&fs).encode().expect("classes");
    let damaged = [whole[..whole.len() - 1].to_vec(), [&[9], &whole[1..]].concat(), Vec::new()];
    pool.close(fs);
    for data in damaged {
        let fs = pool.open();
        let tree = fs.pool().tree(RootId::DEV_TREE).expect("there");
        let transaction = fs.pool().join(Need::items(1)).expect("room");
        transaction.replace(&tree, &DeviceClassesHeader::KEY, &data).expect("room");
        drop(transaction);
        pool.close(fs);
        let fs = pool.open();
        assert!(fs.pool().stored_classes().expect("the tree is readable").is_err());
        assert!(fs.pool().space_summary().expect("writable").classes.is_empty());
        // The sides are as before.
        let file = put(&fs, fs.root(), "file", MIB).expect("room");
        append(&fs, file, MIB as u64, MIB).expect("room");
        assert!(lies_on(&fs, file).is_subset(&names(&["memory3", "memory4"])));
        fs.unlink(fs.root(), b"file").expect("there");
        fs.pool().set_classes(&classes(&fs)).expect("it is stored anew");
        assert_eq!(fs.pool().stored_classes().expect("readable"), Ok(classes(&fs)));
        fs.pool().set_classes(&DeviceClasses::default()).expect("it is taken away");
        assert_eq!(fs.pool().stored_classes().expect("readable"), Ok(DeviceClasses::default()));
        assert!(devices_of(&fs, DATA).is_subset(&names(&["memory3", "memory4"])));
        pool.close(fs);
    }
}
