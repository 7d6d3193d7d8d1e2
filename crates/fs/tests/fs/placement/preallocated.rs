//! Preallocated space and the write-back tier: what a sync makes durable lies on flash first, and no promise of space is broken.

use super::ground::{Making, MixedPool, append, devices_of_file, names, put};
use super::writeback::{contents, destage, is_on_flash, places, pool, read, sync_more, waiting};
use super::{MIB, fill};
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{AllocateMode, FileFlags, Filesystem, InodeId, NewInode, WriteBackMode, WriteBackWish};
use brindle_ondisk::{Profile, RootId};

const KIB: u64 = 1 << 10;

/// A file with preallocated space, which a commit has.
fn preallocated(fs: &Filesystem, name: &str, flags: FileFlags, bytes: u64) -> InodeId {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let id = fs.create(fs.root(), name.as_bytes(), &new).expect("room").id;
    fs.set_flags(id, flags).expect("it is empty");
    let file = fs.open_file(id).expect("there it is");
    fs.allocate(&file, AllocateMode::Allocate, 0, bytes).expect("room");
    fs.sync().expect("commits");
    id
}

#[test]
fn synced_writes_into_preallocated_space_lie_on_flash_until_they_are_destaged() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let file = preallocated(&fs, "journal", FileFlags::empty(), 2 << 20);
    let commits = || fs.pool().commit_statistics().log.commits;
    sync_more(&fs, file, 0, 64 << 10);
    let before = commits();
    for part in 1..16 {
        sync_more(&fs, file, part * 64 * KIB, 64 << 10);
    }
    assert_eq!((waiting(&fs), commits()), (MIB as u64, before), "in the tier, and logged");
    assert_eq!(devices_of_file(&fs, file).len(), 2, "what is not written yet stays on a disk");
    // Written again, in another order.
    for part in [3, 1, 2] {
        sync_more(&fs, file, part * 64 * KIB, 64 << 10);
    }
    fs.sync().expect("commits");
    assert_eq!(waiting(&fs), MIB as u64);
    destage(&fs);
    assert!(!is_on_flash(&fs, file) && waiting(&fs) == 0);
    let expected: Vec<u8> = (0..16).flat_map(|_| contents(64 << 10)).collect();
    let found = read(&fs, file);
    assert!(found[..MIB] == expected && found[MIB..].iter().all(|byte| *byte == 0));
    pool.close(fs);
}

#[test]
fn waiting_data_returns_into_the_preallocated_extent_that_it_was_written_into() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let file = preallocated(&fs, "image", FileFlags::empty(), 4 << 20);
    let [extent] = places(&fs, file.number)[..] else { panic!("one extent") };
    // In the middle, in pieces; alone; and up to the end.
    let parts = [16, 17, 18, 40, 62, 63];
    for part in parts {
        sync_more(&fs, file, part * 64 * KIB, 64 << 10);
    }
    assert!(places(&fs, file.number).iter().any(|place| *place != extent));
    destage(&fs);
    assert!(places(&fs, file.number).iter().all(|place| *place == extent), "all of it is there again");
    // What was written there once is not overwritten.
    sync_more(&fs, file, 17 * 64 * KIB, 64 << 10);
    destage(&fs);
    let elsewhere = places(&fs, file.number).into_iter().filter(|place| *place != extent).count();
    assert_eq!((elsewhere, waiting(&fs)), (1, 0));
    let found = read(&fs, file);
    for (part, found) in (0..).zip(found.chunks(64 << 10)) {
        let expected = if parts.contains(&part) { contents(64 << 10) } else { vec![0; 64 << 10] };
        assert!(found == expected, "part {part}");
    }
    pool.close(fs);
}

#[test]
fn waiting_data_that_a_snapshot_shares_does_not_return_into_preallocated_space() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let file = preallocated(&fs, "image", FileFlags::empty(), 1 << 20);
    sync_more(&fs, file, 256 * KIB, 64 << 10);
    let number = fs.snapshot(RootId::FS_TREE, fs.root(), b"snapshot", false).expect("room");
    sync_more(&fs, file, 512 * KIB, 64 << 10);
    destage(&fs);
    let of_snapshot = InodeId { tree: number, number: file.number };
    assert!(!is_on_flash(&fs, file) && !is_on_flash(&fs, of_snapshot) && waiting(&fs) == 0);
    let (found, before) = (read(&fs, file), read(&fs, of_snapshot));
    assert!(
        found[256 << 10..][..64 << 10] == contents(64 << 10) && found[..576 << 10] != before[..576 << 10]
    );
    assert!(found[..512 << 10] == before[..512 << 10]);
    pool.close(fs);
}

#[test]
fn no_sync_of_preallocated_space_that_is_nodatacow_or_on_flash_goes_elsewhere() {
    let mut pool = pool(WriteBackMode::Sync);
    pool.write.small_file_bytes = Some(512 << 10);
    let fs = pool.open();
    let in_place = preallocated(&fs, "in place", FileFlags::NOCOW, 1 << 20);
    let small = preallocated(&fs, "small", FileFlags::empty(), 256 << 10);
    for id in [in_place, small] {
        let before = devices_of_file(&fs, id);
        sync_more(&fs, id, 0, 128 << 10);
        assert_eq!((devices_of_file(&fs, id), waiting(&fs)), (before, 0));
    }
    pool.close(fs);
}

#[test]
fn preallocated_space_that_a_snapshot_shares_is_left_to_it() {
    let pool = pool(WriteBackMode::Sync);
    let fs = pool.open();
    let file = preallocated(&fs, "file", FileFlags::empty(), 1 << 20);
    let number = fs.snapshot(RootId::FS_TREE, fs.root(), b"snapshot", false).expect("room");
    sync_more(&fs, file, 0, 256 << 10);
    destage(&fs);
    assert!(read(&fs, file)[..256 << 10] == contents(256 << 10));
    let of_snapshot = InodeId { tree: number, number: file.number };
    assert!(read(&fs, of_snapshot).iter().all(|byte| *byte == 0));
    pool.close(fs);
}

/// The promise of preallocated space holds when everything else is full, wherever data that was written before has gone.
#[test]
fn preallocated_space_can_be_written_when_there_is_no_other() {
    let devices = &[(Solid, 256), (Rotating, 256)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Single, Profile::Dup));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let fs = pool.open();
    let file = preallocated(&fs, "file", FileFlags::empty(), 32 << 20);
    sync_more(&fs, file, 0, 4 * MIB);
    assert_eq!(waiting(&fs), 4 << 20);
    fill(&fs, MIB, "more");
    fill(&fs, 64 << 10, "and more");
    fs.sync().expect("what was accepted can be written");
    let waits = waiting(&fs);
    for part in 1..8 {
        sync_more(&fs, file, part << 22, 4 * MIB);
    }
    assert_eq!(waiting(&fs), waits, "in place: there was no space to promise");
    destage(&fs);
    assert_eq!(waiting(&fs), 0, "what waited had its place");
    let expected: Vec<u8> = (0..8).flat_map(|_| contents(4 * MIB)).collect();
    assert!(read(&fs, file) == expected);
    pool.close(fs);
}

#[test]
fn a_full_tier_leaves_writes_into_preallocated_space_where_they_are() {
    let devices = &[(Solid, 256), (Rotating, 1024)];
    let mut pool = MixedPool::new(devices, Making::of(Profile::Single, Profile::Dup));
    pool.write.write_back = WriteBackWish::Told(WriteBackMode::All);
    let fs = pool.open();
    let file = preallocated(&fs, "file", FileFlags::empty(), 8 << 20);
    let mut number = 0;
    while fs.pool().has_write_back_room(4 << 20) {
        put(&fs, fs.root(), &format!("file{number}"), 4 * MIB).expect("room");
        number += 1;
    }
    let before = waiting(&fs);
    append(&fs, file, 0, 4 * MIB).expect("room");
    fs.sync().expect("commits");
    assert_eq!((devices_of_file(&fs, file), waiting(&fs)), (names(&["memory2"]), before));
    pool.close(fs);
}
