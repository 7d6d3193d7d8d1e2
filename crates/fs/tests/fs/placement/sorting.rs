//! Misplaced data is moved on request: data that found its tier full, and data that was marked later.

use super::ground::{Making, MixedPool, append, directory, is_no_space, mark, names, put};
use super::{DATA, MIB, devices_of_file, fill};
use brindle_care::balance::{self, BalanceError, LookEnded};
use brindle_care::job::{Control, Ended, Progress};
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{Filesystem, InodeId, NewInode, RangePair};
use brindle_ondisk::Profile;
use brindle_policy::balance::Balance;
use brindle_policy::tier::files::FileTiers;

fn pool() -> MixedPool {
    let devices = &[(Rotating, 512), (Solid, 512)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Single, Profile::Dup));
    pool.write.small_file_bytes = Some(64 << 10);
    pool
}

/// `memory1` is the disk.
fn is_on_flash(fs: &Filesystem, file: InodeId) -> bool {
    devices_of_file(fs, file) == names(&["memory2"])
}

pub(super) fn apply(fs: &Filesystem) -> Result<Ended, BalanceError> {
    balance::start(fs, &Balance::of_misplaced(), false, &mut |_| Control::Continue)
}

pub(super) fn look(fs: &Filesystem) -> FileTiers {
    let facts = balance::facts(fs.pool()).expect("writable");
    match balance::look_at_files(fs.pool(), &facts, fs.small_file_bytes(), &mut || true) {
        Ok(LookEnded::Whole(tiers)) => tiers,
        other => panic!("{other:?}"),
    }
}

fn wrong_bytes(fs: &Filesystem) -> u64 {
    let tiers = look(fs);
    tiers.bulk_on_fast.bytes + tiers.fast_on_bulk.bytes
}

fn data_used(fs: &Filesystem) -> u64 {
    fs.sync().expect("a commit");
    let groups = fs.pool().space_summary().expect("writable").groups;
    groups.iter().filter(|group| group.kind.contains(DATA)).map(|group| group.used_bytes).sum()
}

fn contents(fs: &Filesystem, file: InodeId) -> Vec<u8> {
    let file = fs.open_file(file).expect("there");
    let mut all = vec![0; usize::try_from(file.size()).expect("short")];
    let found = fs.read(&file, 0, &mut all).expect("readable");
    assert_eq!(found, all.len());
    all
}

#[test]
fn data_spilled_from_a_full_disk_goes_back_when_there_is_room() {
    let pool = pool();
    let fs = pool.open();
    let small: Vec<InodeId> =
        (0..20).map(|number| put(&fs, fs.root(), &format!("small{number}"), 9000).expect("room")).collect();
    let files = fill(&fs, 4 * MIB, "large");
    let id = |number| {
        fs.lookup(fs.root(), format!("large{number}").as_bytes()).expect("read").expect("there").inode
    };
    let spilled: Vec<usize> = (0..files).filter(|number| is_on_flash(&fs, id(*number))).collect();
    assert!(spilled.len() > 20, "{spilled:?} of {files}");
    let before = look(&fs);
    // One may lie in both.
    let whole = spilled.len() as u64 * (4 << 20);
    assert!((whole..whole + (4 << 20)).contains(&before.bulk_on_fast.bytes), "{before:?}");
    assert_eq!((before.fast_on_bulk.extents, before.fast_in_place.extents), (0, 20));
    // The disk is full: nothing is lost, and nothing has changed.
    let refused = apply(&fs);
    assert!(matches!(refused, Err(BalanceError::NoSpace { .. })), "{refused:?}");
    assert_eq!(look(&fs).bulk_on_fast.bytes, before.bulk_on_fast.bytes);
    // Part of it has room.
    let gone = spilled.len() / 2;
    for number in 0..gone {
        assert!(!is_on_flash(&fs, id(number)));
        fs.unlink(fs.root(), format!("large{number}").as_bytes()).expect("there is always room to delete");
    }
    fs.sync().expect("a commit");
    let refused = apply(&fs);
    assert!(matches!(refused, Err(BalanceError::NoSpace { .. })), "{refused:?}");
    let left = look(&fs).bulk_on_fast.bytes;
    assert!(left < before.bulk_on_fast.bytes * 2 / 3, "{left} of {before:?}");
    // All of it does.
    // And some more, for what is left in pieces has no room for a whole extent.
    let all_gone = spilled.len() + 15;
    for number in gone..all_gone {
        fs.unlink(fs.root(), format!("large{number}").as_bytes()).expect("there is always room to delete");
    }
    fs.sync().expect("a commit");
    let ended = apply(&fs).expect("there is room");
    assert_eq!((ended.progress.left, ended.control), (0, Control::Continue));
    assert_eq!(wrong_bytes(&fs), 0);
    for number in all_gone..files {
        assert!(!is_on_flash(&fs, id(number)), "large{number}");
        assert!(contents(&fs, id(number)) == vec![0; 4 * MIB]);
    }
    assert!(small.iter().all(|file| is_on_flash(&fs, *file)));
    let unmoved = apply(&fs).expect("nothing to do").progress;
    assert_eq!((unmoved.expected, unmoved.moved_bytes), (0, 0));
    pool.close(fs);
}

/// A disk on which only ranges of a megabyte are free, here and there.
fn riddle(fs: &Filesystem) {
    let files = fill(fs, MIB, "grain");
    let is_odd = |number: usize| number % 2 == 1;
    for number in 0..files {
        let name = format!("grain{number}");
        let id = fs.lookup(fs.root(), name.as_bytes()).expect("read").expect("there").inode;
        if is_odd(number) || is_on_flash(fs, id) {
            fs.unlink(fs.root(), name.as_bytes()).expect("there is always room to delete");
        }
    }
    fs.sync().expect("a commit");
}

#[test]
fn long_extents_go_in_parts_where_free_space_is_in_pieces() {
    let mut pool = pool();
    pool.write.small_file_bytes = Some(1 << 30);
    let fs = pool.open();
    let above = directory(&fs, fs.root(), "above");
    let volume = fs.create_subvolume(above, b"volume", &NewInode { mode: 0o755, ..NewInode::default() });
    let volume = InodeId::root_of(volume.expect("room"));
    let long: Vec<InodeId> = (0..4)
        .map(|number| {
            let file = put(&fs, volume, &format!("long{number}"), 0).expect("room");
            // Of one piece each, with contents that tell where they belong.
            let open = fs.open_file(file).expect("there");
            let words =
                (0..6 * MIB / 8).map(|word| (word as u64 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let contents: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
            for (part, at) in contents.chunks(MIB).zip((0..).step_by(MIB)) {
                assert_eq!(fs.write(&open, at, part).expect("room"), MIB);
            }
            fs.write_back(&open).expect("room");
            file
        })
        .collect();
    // Part of the first is overwritten, and part of the second is in another file.
    append(&fs, long[0], 2 << 20, 1000).expect("room");
    let clone = fs.create(fs.root(), b"clone", &NewInode { mode: 0o100_644, ..NewInode::default() });
    let clone = clone.expect("room").id;
    let (source, target) = (fs.open_file(long[1]).expect("there"), fs.open_file(clone).expect("there"));
    assert_eq!(
        fs.copy_range(&RangePair {
            source: &source,
            source_offset: 1 << 20,
            target: &target,
            target_offset: 0,
            length: 3 << 20
        })
        .expect("room"),
        3 << 20
    );
    fs.write_back(&target).expect("room");
    drop((source, target));
    let snapshot = fs.snapshot(volume.tree, above, b"snapshot", true).expect("room");
    fs.set_small_file_bytes(0).expect("it can be stored");
    riddle(&fs);
    let before: Vec<Vec<u8>> = long.iter().chain([&clone]).map(|file| contents(&fs, *file)).collect();
    let used = data_used(&fs);
    assert!(long.iter().chain([&clone]).all(|file| is_on_flash(&fs, *file)));
    let ended = apply(&fs).expect("there is room in pieces");
    assert_eq!(ended.progress.left, 0);
    assert_eq!(wrong_bytes(&fs), 0);
    let after: Vec<Vec<u8>> = long.iter().chain([&clone]).map(|file| contents(&fs, *file)).collect();
    assert!(before == after);
    for file in &long {
        let copy = InodeId { tree: snapshot, number: file.number };
        assert!(!is_on_flash(&fs, *file) && !is_on_flash(&fs, copy));
        assert!(contents(&fs, copy) == contents(&fs, *file));
    }
    assert_eq!(data_used(&fs), used, "nothing was torn apart");
    pool.close(fs);
}

#[test]
fn parts_that_belong_elsewhere_than_their_extent_did_go_there_at_once() {
    let mut pool = pool();
    pool.write.moved_extent_bytes_max = 64 << 10;
    let fs = pool.open();
    let large = put(&fs, fs.root(), "large", 2 * MIB).expect("room");
    let clone = fs.create(fs.root(), b"clone", &NewInode { mode: 0o100_644, ..NewInode::default() });
    let clone = clone.expect("room").id;
    let (source, target) = (fs.open_file(large).expect("there"), fs.open_file(clone).expect("there"));
    assert_eq!(
        fs.copy_range(&RangePair {
            source: &source,
            source_offset: 512 << 10,
            target: &target,
            target_offset: 0,
            length: 256 << 10
        })
        .expect("room"),
        256 << 10
    );
    fs.write_back(&target).expect("room");
    drop((source, target));
    mark(&fs, clone, "fast");
    assert_eq!(look(&fs).fast_on_bulk.bytes, 2 << 20, "all of the extent");
    let moved = apply(&fs).expect("there is room").progress.moved_bytes;
    assert!(is_on_flash(&fs, clone));
    assert_eq!((wrong_bytes(&fs), moved), (0, (4 << 20) - (256 << 10)), "all but what is shared went back");
    assert!(contents(&fs, large) == vec![0; 2 * MIB] && contents(&fs, clone) == vec![0; 256 << 10]);
    pool.close(fs);
}

#[test]
fn marks_and_limits_that_come_later_move_what_is_there() {
    let mut pool = pool();
    pool.write.small_file_bytes = None;
    let fs = pool.open();
    let small = put(&fs, fs.root(), "small", 9000).expect("room");
    let large = put(&fs, fs.root(), "large", 2 * MIB).expect("room");
    let marked = put(&fs, fs.root(), "marked", 300_000).expect("room");
    let all = [small, large, marked].map(|file| contents(&fs, file));
    assert!(![small, large, marked].iter().any(|file| is_on_flash(&fs, *file)));
    fs.set_small_file_bytes(16 << 10).expect("it can be stored");
    mark(&fs, marked, "fast");
    assert_eq!(look(&fs).fast_on_bulk.extents, 2);
    apply(&fs).expect("there is room");
    assert_eq!([small, large, marked].map(|file| is_on_flash(&fs, file)), [true, false, true]);
    fs.set_small_file_bytes(0).expect("it can be stored");
    mark(&fs, large, "fast");
    fs.remove_xattr(marked, b"user.brindle.tier").expect("it was there");
    apply(&fs).expect("there is room");
    assert_eq!([small, large, marked].map(|file| is_on_flash(&fs, file)), [false, true, false]);
    assert!([small, large, marked].map(|file| contents(&fs, file)) == all);
    pool.close(fs);
}

#[test]
fn shared_extents_stay_shared_and_go_to_the_best_tier_of_their_owners() {
    let pool = pool();
    let fs = pool.open();
    let above = directory(&fs, fs.root(), "above");
    let volume = fs.create_subvolume(above, b"volume", &NewInode { mode: 0o755, ..NewInode::default() });
    let volume = InodeId::root_of(volume.expect("room"));
    let large = put(&fs, volume, "large", 2 * MIB).expect("room");
    let other = put(&fs, volume, "other", 2 * MIB).expect("room");
    let clone = fs.create(fs.root(), b"clone", &NewInode { mode: 0o100_644, ..NewInode::default() });
    let clone = clone.expect("room").id;
    let (source, target) = (fs.open_file(large).expect("there"), fs.open_file(clone).expect("there"));
    assert_eq!(
        fs.copy_range(&RangePair {
            source: &source,
            source_offset: 0,
            target: &target,
            target_offset: 0,
            length: 2 << 20
        })
        .expect("room"),
        2 << 20
    );
    fs.write_back(&target).expect("room");
    drop((source, target));
    fs.snapshot(volume.tree, above, b"snapshot", true).expect("room");
    let used = data_used(&fs);
    assert_eq!(used, 4 << 20);
    // One of its owners, in a tree that has a snapshot.
    mark(&fs, clone, "fast");
    mark(&fs, other, "fast");
    let tiers = look(&fs);
    assert_eq!((tiers.fast_on_bulk.bytes, tiers.bulk_on_fast.bytes), (4 << 20, 0));
    apply(&fs).expect("there is room");
    assert_eq!(data_used(&fs), used, "nothing was torn apart");
    assert!([large, other, clone].iter().all(|file| is_on_flash(&fs, *file)));
    mark(&fs, clone, "bulk");
    // The snapshot has no mark, so nothing asks for its place on flash.
    mark(&fs, other, "bulk");
    apply(&fs).expect("there is room");
    assert_eq!(data_used(&fs), used);
    assert!(![large, other, clone].iter().any(|file| is_on_flash(&fs, *file)));
    assert_eq!(wrong_bytes(&fs), 0);
    assert!(contents(&fs, clone) == vec![0; 2 * MIB]);
    pool.close(fs);
}

#[test]
fn files_that_are_written_meanwhile_are_as_they_were_written() {
    let pool = pool();
    let fs = pool.open();
    let files: Vec<InodeId> =
        (0..40).map(|number| put(&fs, fs.root(), &format!("file{number}"), 300_000).expect("room")).collect();
    let mut version = 0;
    // Between batches, all that an observer can do is done: files are overwritten, cut, and deleted.
    for round in 0..4_u64 {
        for file in &files {
            mark(&fs, *file, if round % 2 == 0 { "fast" } else { "bulk" });
        }
        fs.sync().expect("a commit");
        let observer = &mut |_: &Progress| {
            version += 1;
            let file = files[version % files.len()];
            append(&fs, file, (version as u64 % 7) * 40_000, 50_000).expect("room");
            Control::Continue
        };
        balance::start(&fs, &Balance::of_misplaced(), false, observer).expect("there is room");
    }
    assert!(version >= 8, "{version}");
    apply(&fs).expect("there is room");
    assert_eq!(wrong_bytes(&fs), 0);
    for file in &files {
        assert_eq!(contents(&fs, *file).len(), 300_000);
    }
    pool.close(fs);
}

#[test]
fn a_pool_that_makes_no_difference_is_left_alone() {
    let mut pool = pool();
    pool.write.placement = brindle_fs::PlacementMode::Classic;
    let fs = pool.open();
    put(&fs, fs.root(), "file", 9000).expect("room");
    fs.sync().expect("a commit");
    assert!(matches!(apply(&fs), Err(BalanceError::Refused(_))));
    assert!(fill(&fs, 4 * MIB, "full") > 100);
    let full = put(&fs, fs.root(), "more", 8 * MIB).expect_err("it is full");
    assert!(is_no_space(&full));
    pool.close(fs);
}
