//! Small files and what is marked lie on fast devices.

use super::ground::{
    Making, MixedPool, append, devices_of, devices_of_file, directory, is_no_space, mark, names, put,
};
use super::{DATA, MIB, fill};
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{
    AllocateMode, Compression, CompressionChoice, Filesystem, NewInode, PlacementMode, RangePair, XattrMode,
};
use brindle_ondisk::Profile;

fn pool() -> MixedPool {
    let devices = &[(Rotating, 512), (Rotating, 512), (Solid, 256)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Single, Profile::Dup));
    pool.write.small_file_bytes = Some(64 << 10);
    pool
}

fn is_on_flash(fs: &Filesystem, file: brindle_fs::InodeId) -> bool {
    let devices = devices_of_file(fs, file);
    assert!(!devices.is_empty(), "it has extents");
    assert!(devices.len() == 1 || !devices.contains("memory3"), "all of it in one tier");
    devices.contains("memory3")
}

#[test]
fn small_files_lie_on_flash_and_large_ones_do_not() {
    let pool = pool();
    let fs = pool.open();
    for (bytes, expected) in [(5000, true), (64 << 10, true), ((64 << 10) + 1, false), (MIB, false)] {
        let file = put(&fs, fs.root(), &format!("of {bytes}"), bytes).expect("room");
        assert_eq!(is_on_flash(&fs, file), expected, "{bytes} bytes");
    }
    // Later writes go where the file belongs after it has grown.
    let file = put(&fs, fs.root(), "grows", 8192).expect("room");
    append(&fs, file, 8192, MIB).expect("room");
    assert_eq!(devices_of_file(&fs, file).len(), 2);
    pool.close(fs);
}

#[test]
fn the_length_after_compression_counts() {
    let mut pool = pool();
    let zstd = CompressionChoice { algorithm: Compression::Zstd, level: None, force: false };
    pool.write.compression = Some(zstd);
    let fs = pool.open();
    let id =
        fs.create(fs.root(), b"text", &NewInode { mode: 0o100_644, ..NewInode::default() }).expect("room").id;
    let file = fs.open_file(id).expect("there it is");
    fs.write(&file, 0, &b"all work and no play ".repeat(20_000)).expect("room");
    fs.write_back(&file).expect("room");
    assert!(is_on_flash(&fs, id), "400 KiB that shrink to nearly nothing");
    let file = put(&fs, fs.root(), "noise", 400 << 10).expect("room");
    assert!(!is_on_flash(&fs, file));
    pool.close(fs);
}

#[test]
fn marks_count_more_than_the_length_and_go_down() {
    let pool = pool();
    let fs = pool.open();
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    let below = directory(&fs, fast, "below");
    let large = put(&fs, below, "large", 4 * MIB).expect("room");
    assert!(is_on_flash(&fs, large));
    assert_eq!(fs.xattr(large, b"user.brindle.tier").expect("readable").as_deref(), Some(&b"fast"[..]));
    let slow = directory(&fs, fs.root(), "slow");
    mark(&fs, slow, "bulk");
    let small = put(&fs, slow, "small", 5000).expect("room");
    assert!(!is_on_flash(&fs, small));
    // From the next write on.
    mark(&fs, small, "fast");
    append(&fs, small, 0, 8192).expect("room");
    assert!(is_on_flash(&fs, small));
    fs.remove_xattr(large, b"user.brindle.tier").expect("it was there");
    append(&fs, large, 0, 4 * MIB).expect("room");
    assert!(!is_on_flash(&fs, large));
    let wrong = fs.set_xattr(small, b"user.brindle.tier", b"Warm", XattrMode::Any);
    assert!(wrong.is_err(), "there is no such tier");
    pool.close(fs);
}

#[test]
fn a_shared_extent_has_the_best_tier_of_its_owners() {
    let pool = pool();
    let fs = pool.open();
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    let copy = |from: brindle_fs::InodeId, parent, name: &[u8]| {
        let to =
            fs.create(parent, name, &NewInode { mode: 0o100_644, ..NewInode::default() }).expect("room").id;
        let (source, target) = (fs.open_file(from).expect("there"), fs.open_file(to).expect("there"));
        let length = source.size();
        assert_eq!(
            fs.copy_range(&RangePair {
                source: &source,
                source_offset: 0,
                target: &target,
                target_offset: 0,
                length
            })
            .expect("room"),
            length
        );
        fs.write_back(&target).expect("room");
        to
    };
    let data_used = || {
        fs.sync().expect("a commit");
        let groups = fs.pool().space_summary().expect("writable").groups;
        groups.iter().filter(|group| group.kind.contains(DATA)).map(|group| group.used_bytes).sum::<u64>()
    };
    let large = put(&fs, fs.root(), "large", 4 * MIB).expect("room");
    let before = data_used();
    // Into a fast directory: extents of its own, where they belong.
    let inside = copy(large, fast, b"inside");
    assert!(is_on_flash(&fs, inside) && !is_on_flash(&fs, large));
    assert_eq!(data_used() - before, 4 << 20);
    // Out of it, and beside: shared.
    let outside = copy(inside, fs.root(), b"outside");
    let beside = copy(large, fs.root(), b"beside");
    assert!(is_on_flash(&fs, outside) && !is_on_flash(&fs, beside));
    assert_eq!(data_used() - before, 4 << 20);
    pool.close(fs);
}

#[test]
fn preallocated_space_is_of_the_tier_too() {
    let pool = pool();
    let fs = pool.open();
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    for (parent, bytes, expected) in
        [(fast, 8 << 20, true), (fs.root(), 8 << 20, false), (fs.root(), 8192, true)]
    {
        let name = format!("{bytes}-{expected}");
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let id = fs.create(parent, name.as_bytes(), &new).expect("room").id;
        let file = fs.open_file(id).expect("there it is");
        fs.allocate(&file, AllocateMode::Allocate, 0, bytes).expect("room");
        assert_eq!(is_on_flash(&fs, id), expected, "{name}");
        append(&fs, id, 0, 8192).expect("it has room");
        assert_eq!(is_on_flash(&fs, id), expected, "{name}, written");
    }
    pool.close(fs);
}

#[test]
fn the_limit_is_stored_in_the_pool() {
    let mut pool = pool();
    pool.write.small_file_bytes = None;
    let fs = pool.open();
    let before = put(&fs, fs.root(), "before", 5000).expect("room");
    assert!(!is_on_flash(&fs, before), "there is no limit unless somebody sets one");
    fs.set_small_file_bytes(16 << 10).expect("it can be stored");
    pool.close(fs);
    let fs = pool.open();
    assert_eq!(fs.small_file_bytes(), 16 << 10);
    let after = put(&fs, fs.root(), "after", 5000).expect("room");
    assert!(is_on_flash(&fs, after));
    pool.close(fs);
    pool.write.small_file_bytes = Some(0);
    let fs = pool.open();
    let told = put(&fs, fs.root(), "told", 5000).expect("room");
    assert!(!is_on_flash(&fs, told), "the mount option counts more");
    assert_eq!(fs.pool().settings().expect("readable").small_file_bytes, 16 << 10, "and stores nothing");
    pool.close(fs);
}

#[test]
fn data_spills_to_disks_when_flash_is_full_and_metadata_keeps_its_part() {
    let mut pool = pool();
    pool.write.small_file_bytes = Some(1 << 20);
    let fs = pool.open();
    let room = fs.pool().space_summary().expect("writable").fast_data_room.bytes;
    assert!(room > 150 << 20 && room < 200 << 20, "three quarters of 256 MiB: {room}");
    let files = fill(&fs, MIB, "file");
    assert!(files > 1000, "{files} MiB: all of the disks, and flash");
    assert_eq!(devices_of(&fs, super::METADATA), names(&["memory3"]), "it was not driven off");
    assert_eq!(devices_of(&fs, DATA).len(), 3);
    pool.close(fs);
}

#[test]
fn small_files_alone_fill_flash_and_go_on_on_disks() {
    let mut pool = MixedPool::new(
        &[(Rotating, 512), (Solid, 256), (Rotating, 512), (Solid, 256)],
        Making::of(Profile::Raid1, Profile::Raid1),
    );
    pool.write.small_file_bytes = Some(1 << 20);
    let fs = pool.open();
    for number in 0..350 {
        put(&fs, fs.root(), &format!("file{number}"), MIB).expect("there is room on the disks");
        if number % 50 == 0 {
            fs.sync().expect("what was accepted can be written");
        }
    }
    let summary = fs.pool().space_summary().expect("writable");
    let used = |spread| {
        let groups =
            summary.groups.iter().filter(|group| group.kind.contains(DATA) && group.spread == spread);
        groups.map(|group| group.used_bytes + group.reserved_bytes).sum::<u64>()
    };
    assert!(used(brindle_fs::Spread::Fast) > 128 << 20, "{summary:?}");
    assert!(used(brindle_fs::Spread::Bulk) > 128 << 20, "{summary:?}");
    pool.close(fs);
}

#[test]
fn in_strict_mode_data_accepted_is_data_written() {
    let mut pool =
        MixedPool::new(&[(Solid, 512), (Rotating, 256)], Making::of(Profile::Single, Profile::Single));
    pool.write.placement = PlacementMode::Strict;
    pool.write.small_file_bytes = Some(64 << 10);
    let fs = pool.open();
    let mut refused = 0;
    for number in 0..20_000_usize {
        let bytes = if number % 3 == 0 { 5000 } else { 300 << 10 };
        match put(&fs, fs.root(), &format!("file{number}"), bytes) {
            Ok(_) => {}
            Err(error) if is_no_space(&error) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused > 20 {
            break;
        }
    }
    assert!(refused > 20, "disks are full");
    let summary = fs.pool().space_summary().expect("writable");
    assert!(summary.fast_data_room.bytes > 64 << 20, "and flash is not, for it is not for bulk data");
    pool.close(fs);
}

#[test]
fn without_the_mode_there_are_no_tiers() {
    let mut pool = pool();
    pool.write.placement = PlacementMode::Classic;
    let fs = pool.open();
    let file = put(&fs, fs.root(), "small", 5000).expect("room");
    assert!(!is_on_flash(&fs, file), "the first data chunk lies on a disk, and has room");
    pool.close(fs);
}
