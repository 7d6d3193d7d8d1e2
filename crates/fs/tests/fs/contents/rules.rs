//! Rules that random lives would seldom meet.

use super::bench::{Bench, Setup, create};
use brindle_fs::{AllocateMode, Filesystem, FsError, InodeFlags, InodeId, NewInode, WriteOptions};
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{Item, Key, KeyType};
use brindle_sim::Fault;
use brindle_tree::{Readahead, TreeError};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_small_file_is_in_its_item_and_leaves_it_as_it_grows() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    filesystem.write(&file, 0, b"little").expect("writes");
    filesystem.sync_file(&file).expect("syncs");
    assert_eq!(filesystem.attributes(id).expect("there").disk_bytes, 6);
    filesystem.write(&file, 100_000, b"far away").expect("writes");
    filesystem.sync_file(&file).expect("syncs");
    assert_eq!(filesystem.attributes(id).expect("there").disk_bytes, 8192);
    bench.assert_clean("grown");
    filesystem.truncate(&file, 3).expect("truncates");
    filesystem.sync_file(&file).expect("syncs");
    let mut buffer = [0; 10];
    assert_eq!(filesystem.read(&file, 0, &mut buffer).expect("reads"), 3);
    assert_eq!(&buffer[..3], b"lit");
    bench.assert_clean("cut off");
    bench.assert_btrfs_check("cut off");
}

/// The sizes are those that the kernel's `stat` tells after the same steps, whether data waits in memory or not.
#[test]
fn a_byte_counts_once_as_used_while_it_waits_and_after() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    let used = |when: &str, kib: u64| {
        let found = filesystem.attributes(id).expect("there").disk_bytes.next_multiple_of(4096);
        assert_eq!(found, kib << 10, "{when}");
    };
    let write = |at: u64, length: usize| {
        filesystem.write(&file, at, &vec![7; length]).expect("room");
    };
    let synced = || filesystem.sync_file(&file).expect("syncs");
    for (when, at, length, kib) in [
        ("a few bytes", 0, 100, 4),
        ("a few bytes over them", 0, 100, 4),
        ("a MiB over them", 0, 1 << 20, 1024),
        ("the same again", 0, 1 << 20, 1024),
        ("half over the end", (1 << 20) - 4096, 1 << 20, 2044),
        ("behind a hole", 8 << 20, 1 << 20, 3068),
        ("in the hole", 4 << 20, 8192, 3076),
        ("between sectors", (5 << 20) + 100, 8192, 3088),
    ] {
        write(at, length);
        used(when, kib);
        write(at, length);
        used(when, kib);
        synced();
        used(when, kib);
        write(at, length);
        used(when, kib);
    }
    filesystem.truncate(&file, 4 << 20).expect("shorter");
    used("cut off", 2044);
    filesystem.allocate(&file, AllocateMode::Allocate, 4 << 20, 1 << 20).expect("room");
    used("space in advance", 3068);
    write(4 << 20, 1 << 20);
    used("written there", 3068);
    synced();
    used("and synced", 3068);
    write(16 << 20, 8 << 20);
    filesystem.allocate(&file, AllocateMode::PunchHole, 18 << 20, 2 << 20).expect("a hole");
    used("a hole in what waits", 3068 + (6 << 10));
    filesystem.truncate(&file, 20 << 20).expect("shorter");
    used("cut off while it waits", 3068 + (2 << 10));
    synced();
    used("and synced", 3068 + (2 << 10));
}

#[test]
fn failed_writes_do_not_count_as_used() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, device) = bench.open_faulty();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    filesystem.write(&file, 0, &[7; 65536]).expect("room");
    device.inject(Fault::Write { number: device.counts().writes });
    filesystem.sync_file(&file).expect_err("refused");
    assert_eq!(filesystem.attributes(id).expect("there").disk_bytes, 0);
}

#[test]
fn reads_return_the_last_write_before_and_after_writeback() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let file = filesystem.open_file(create(&filesystem, 0, InodeFlags::empty())).expect("opens");
    let read = |at: u64| {
        let mut byte = [0];
        filesystem.read(&file, at, &mut byte).expect("reads");
        byte[0]
    };
    filesystem.write(&file, 0, &vec![1; 3 << 20]).expect("writes");
    filesystem.write_back(&file).expect("writes");
    filesystem.write(&file, 5000, &[2; 10]).expect("writes");
    assert_eq!((read(4999), read(5000), read(5009), read(5010)), (1, 2, 2, 1));
    filesystem.write_back(&file).expect("writes");
    assert_eq!((read(4999), read(5000), read(5009), read(5010)), (1, 2, 2, 1));
    let other = filesystem.open_file(file.id()).expect("opens");
    filesystem.write(&other, 5001, &[3]).expect("writes");
    assert_eq!(read(5001), 3, "one opener sees what another one writes");
}

#[test]
fn a_full_pool_refuses_new_data_and_takes_what_has_space() {
    let bench = Bench::new(&Setup { size_mib: 128, ..Setup::default() });
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let full = filesystem.open_file(create(&filesystem, 1, InodeFlags::empty())).expect("opens");
    let file = filesystem.open_file(id).expect("opens");
    filesystem.allocate(&file, AllocateMode::Allocate, 0, 1 << 20).expect("allocates");
    let piece = vec![7; 1 << 20];
    let mut at = 0;
    let error = loop {
        match filesystem.write(&full, at, &piece) {
            Ok(written) => at += written as u64,
            Err(error) => break error,
        }
        assert!(at < 256 << 20, "the pool is smaller");
    };
    assert!(matches!(error, FsError::Tree(TreeError::NoSpace(_))), "{error}");
    filesystem.write_back_all(None).expect("what was taken is written");
    filesystem.pool().commit().expect("commits");
    bench.assert_clean("full");
    filesystem.write(&file, 4096, &[5; 65536]).expect("there is space in advance");
    filesystem.sync_file(&file).expect("syncs");
    bench.assert_clean("written in advance space");
    filesystem.truncate(&full, 0).expect("frees");
    filesystem.pool().commit().expect("commits");
    filesystem.write(&full, 0, &piece).expect("there is room again");
    filesystem.sync_file(&full).expect("syncs");
    bench.assert_clean("emptied");
    bench.assert_btrfs_check("emptied");
}

#[test]
fn overwriting_in_place_changes_no_extent() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let flags = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
    let file = filesystem.open_file(create(&filesystem, 0, flags)).expect("opens");
    filesystem.write(&file, 0, &vec![1; 1 << 20]).expect("writes");
    filesystem.sync_file(&file).expect("syncs");
    let used = || filesystem.space().expect("known");
    let before = format!("{:?}", used());
    for round in 0..5u8 {
        filesystem.write(&file, 8192, &[round; 4096]).expect("writes");
        filesystem.sync_file(&file).expect("syncs");
    }
    assert_eq!(format!("{:?}", used()), before);
    bench.assert_clean("overwritten");
}

#[test]
fn many_small_extents_give_way_to_one() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let file = filesystem.open_file(create(&filesystem, 0, InodeFlags::empty())).expect("opens");
    for number in (0..2000u64).rev() {
        filesystem.write(&file, number * 8192, &[number.to_le_bytes()[0]; 4096]).expect("writes");
    }
    filesystem.sync_file(&file).expect("syncs");
    bench.assert_clean("scattered");
    filesystem.write(&file, 0, &vec![9; 2000 * 8192]).expect("writes");
    filesystem.sync_file(&file).expect("syncs");
    bench.assert_clean("together");
    assert_eq!(filesystem.attributes(file.id()).expect("there").disk_bytes, 2000 * 8192);
    filesystem.drop_file_contents(file.id()).expect("drops");
    filesystem.pool().commit().expect("commits");
    bench.assert_clean("dropped");
    assert_eq!(filesystem.attributes(file.id()).expect("there").disk_bytes, 0);
}

#[test]
fn threads_write_read_and_truncate_one_file() {
    let write = WriteOptions { dirty_bytes_max: 2 << 20, ..WriteOptions::default() };
    let bench = Bench::new(&Setup { write, ..Setup::default() });
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    const BLOCK: u64 = 64 << 10;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Behind what the others write, the file shrinks and grows and gets holes.
            let file = filesystem.open_file(id).expect("opens");
            for round in 0..60u64 {
                filesystem.write(&file, 70 * BLOCK + round, &[7; 70_000]).expect("writes");
                filesystem.truncate(&file, 66 * BLOCK + round).expect("truncates");
                filesystem.allocate(&file, AllocateMode::PunchHole, 64 * BLOCK, BLOCK).expect("punches");
                let mut buffer = vec![1; 65536];
                assert_eq!(filesystem.read(&file, 64 * BLOCK, &mut buffer).expect("reads"), 65536);
                assert!(buffer.iter().all(|byte| *byte == 0), "round {round}");
            }
        });
        for thread in 0..4u64 {
            let filesystem = &filesystem;
            scope.spawn(move || {
                let file = filesystem.open_file(id).expect("opens");
                for round in 0..60u64 {
                    let block = thread + 4 * (round % 16);
                    let byte = (1 + round + thread * 60).to_le_bytes()[0];
                    filesystem.write(&file, block * BLOCK, &vec![byte; 65536]).expect("writes");
                    let mut buffer = vec![0; 65536];
                    let length = filesystem.read(&file, block * BLOCK, &mut buffer).expect("reads");
                    assert_eq!(length, 65536);
                    assert!(buffer.iter().all(|found| *found == byte), "thread {thread}, round {round}");
                    if round % 20 == 7 {
                        filesystem.sync_file(&file).expect("syncs");
                    }
                }
            });
        }
    });
    filesystem.write_back_all(None).expect("writes");
    filesystem.pool().commit().expect("commits");
    bench.assert_clean("written by threads");
}

#[test]
fn a_failed_writeback_is_reported_once_to_each_handle_and_ends_all_writing() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, device) = bench.open_faulty();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let [first, second] = [(); 2].map(|()| filesystem.open_file(id).expect("opens"));
    filesystem.write(&first, 0, &vec![1; 100_000]).expect("into memory");
    filesystem.sync_file(&first).expect("syncs");
    // What a log takes is not free.
    filesystem.commit().expect("commits");
    let free = filesystem.space().expect("known");
    filesystem.write(&first, 50_000, &vec![2; 1 << 20]).expect("into memory");
    device.inject(Fault::WritesFrom { number: 0 });
    let error = filesystem.sync_file(&first).expect_err("the device fails");
    assert!(matches!(error, FsError::WriteBack { .. }), "{error}");
    device.heal();
    filesystem.take_error(&first).expect("told already");
    filesystem.take_error(&second).expect_err("not told yet");
    filesystem.take_error(&second).expect("told already");
    // Nothing is written any more, also where it could be: later writes would build on lost contents.
    let refused = filesystem.write(&first, 200_000, &[3; 5000]).expect_err("all writing has ended");
    assert!(matches!(refused, FsError::Tree(TreeError::ReadOnly(_))), "{refused}");
    let reason = filesystem.pool().read_only_reason().expect("a reason");
    assert!(reason.contains("contents were lost"), "{reason}");
    drop((first, second, filesystem));
    let filesystem = bench.open();
    let file = filesystem.open_file(id).expect("opens");
    let mut found = vec![9; 100_001];
    assert_eq!(filesystem.read(&file, 0, &mut found).expect("reads"), 100_000);
    assert!(found[..100_000].iter().all(|byte| *byte == 1), "what was durable is there");
    assert_eq!(filesystem.space().expect("known"), free, "the space is free again");
    drop((file, filesystem));
    bench.assert_clean("after a failure");
}

#[test]
fn a_failure_that_no_handle_has_reported_is_reported_by_one_that_is_opened_later() {
    let bench = Bench::new(&Setup::default());
    let id = {
        let filesystem = bench.open();
        let id = create(&filesystem, 0, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
        let file = filesystem.open_file(id).expect("opens");
        // Extents of several leaves.
        for extent in 0..1000 {
            filesystem.write(&file, extent << 16, &[1; 4096]).expect("room");
        }
        filesystem.close_file(file).expect("closes");
        filesystem.shutdown().expect("durable");
        id
    };
    let (filesystem, device) = bench.open_faulty();
    let file = filesystem.open_file(id).expect("opens");
    filesystem.write(&file, 500 << 16, &[2; 4096]).expect("into memory");
    filesystem.close_file(file).expect("closes");
    // The leaf that tells of the extent is not in memory yet.
    device.inject(Fault::ReadsFrom { number: device.counts().reads });
    filesystem.write_back_all(None).expect_err("the device fails");
    device.heal();
    assert!(filesystem.is_writable(), "{:?}", filesystem.pool().read_only_reason());
    filesystem.sync_attributes(id).expect("that is not for it to report");
    let [first, second] = [(); 2].map(|()| filesystem.open_file(id).expect("opens"));
    for handle in [&first, &second] {
        let error = filesystem.sync_file(handle).expect_err("contents were lost");
        assert!(matches!(error, FsError::WriteBack { .. }), "{error}");
        filesystem.sync_file(handle).expect("reported already");
    }
    let late = filesystem.open_file(id).expect("opens");
    filesystem.sync_file(&late).expect("reported before it was opened");
    drop((first, second, late));
    filesystem.shutdown().expect_err("a sync of everything reports it as well");
    drop(filesystem);
    bench.assert_clean("after a failure");
}

#[test]
fn space_behind_the_end_goes_with_a_truncation_to_the_size_that_the_file_has() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    filesystem.write(&file, 0, &[7; 5000]).expect("room");
    filesystem.sync_file(&file).expect("durable");
    let used = || filesystem.attributes(id).expect("there").disk_bytes;
    filesystem.allocate(&file, AllocateMode::AllocateKeepSize, 0, 1 << 20).expect("room");
    assert_eq!(used(), 1 << 20);
    filesystem.truncate(&file, 6000).expect("longer");
    assert_eq!(used(), 1 << 20, "it stays where the file grows");
    filesystem.truncate(&file, 6000).expect("as it is");
    assert_eq!(used(), 8192);
    let mut found = vec![9; 8192];
    assert_eq!(filesystem.read(&file, 0, &mut found).expect("reads"), 6000);
    assert!(found[..5000] == [7; 5000] && found[5000..6000] == [0; 1000]);
    drop(file);
    filesystem.shutdown().expect("durable");
    drop(filesystem);
    bench.assert_clean("after truncations");
}

#[test]
fn nothing_is_written_back_for_a_snapshot_whose_name_is_taken() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, device) = bench.open_faulty();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    filesystem
        .create(filesystem.root(), b"taken", &NewInode { mode: 0o100_644, ..NewInode::default() })
        .expect("made");
    filesystem.sync().expect("durable");
    filesystem.write(&file, 0, &[7; 1 << 20]).expect("room");
    let writes = device.counts().writes;
    let root = filesystem.root();
    let refused = filesystem.snapshot(root.tree, root, b"taken", false);
    assert!(matches!(refused, Err(FsError::Exists(_))), "{refused:?}");
    assert_eq!(device.counts().writes, writes);
}

/// Start and length of an extent of a file, in units of 64 KiB, and whether it is preallocated.
type ExtentAt = (u64, u64, bool);

fn extents(filesystem: &Filesystem, file: InodeId) -> Vec<ExtentAt> {
    let tree = filesystem.pool().tree(file.tree).expect("the top level");
    let mut cursor = filesystem.pool().cursor(&tree, Readahead::None);
    cursor.seek(&Key::new(file.number, KeyType::EXTENT_DATA, 0)).expect("reads");
    let mut found = Vec::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == file.number) {
        if let Ok(Item::FileExtent(FileExtent::OnDisk { is_prealloc, extent, .. })) = Item::parse(&key, data)
        {
            assert_eq!(extent.offset.get(), key.offset(), "it is one extent");
            found.push((key.offset() >> 16, extent.num_bytes.get() >> 16, is_prealloc));
        }
        cursor.next().expect("reads");
    }
    found
}

/// The kernel's items after the same writes were looked at with `btrfs inspect-internal dump-tree` (Linux 6.18).
#[test]
fn preallocated_space_that_is_written_in_pieces_is_one_extent_as_the_kernels_is() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let cases: [(&[u64], &[ExtentAt]); 4] = [
        (&[0, 1, 2, 3, 4, 5], &[(0, 6, false), (6, 10, true)]),
        (&[8, 7, 6, 5], &[(0, 5, true), (5, 4, false), (9, 7, true)]),
        (&[1, 3, 5, 2, 4], &[(0, 1, true), (1, 5, false), (6, 10, true)]),
        (&[15, 0, 14, 2, 1, 3, 13, 4, 5, 6, 7, 8, 9, 10, 11, 12], &[(0, 16, false)]),
    ];
    for (number, (order, expected)) in (0..).zip(cases) {
        let id = create(&filesystem, number, InodeFlags::empty());
        let file = filesystem.open_file(id).expect("opens");
        filesystem.allocate(&file, AllocateMode::Allocate, 0, 16 << 16).expect("room");
        for at in order {
            let byte = u8::try_from(at + 1).expect("small");
            filesystem.write(&file, at << 16, &[byte; 1 << 16]).expect("room");
            filesystem.write_back(&file).expect("writes");
        }
        assert_eq!(extents(&filesystem, id), expected, "written as {order:?}");
        let mut contents = vec![1; 16 << 16];
        assert_eq!(filesystem.read(&file, 0, &mut contents).expect("reads"), contents.len());
        for (at, piece) in (0..).zip(contents.chunks(1 << 16)) {
            let byte = if order.contains(&at) { u8::try_from(at + 1).expect("small") } else { 0 };
            assert!(piece.iter().all(|found| *found == byte), "written as {order:?}: {at}");
        }
        filesystem.commit().expect("commits");
    }
    bench.assert_clean("written in pieces");
    bench.assert_btrfs_check("written in pieces");
}

#[test]
fn reads_while_extents_are_joined_find_what_was_written() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    let (size, piece) = (4 << 20, 4096_u64);
    filesystem.allocate(&file, AllocateMode::Allocate, 0, size).expect("room");
    let pieces: Vec<u64> = (0..size / piece).collect();
    // Every second one first, then what lies between them.
    for at in pieces.iter().filter(|at| *at % 2 == 1) {
        filesystem.write(&file, at * piece, &[7; 4096]).expect("room");
    }
    filesystem.write_back(&file).expect("writes");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in [1, 3] {
            let (filesystem, is_over, pieces) = (&filesystem, &is_over, &pieces);
            scope.spawn(move || {
                let reader = filesystem.open_file(id).expect("opens");
                let mut found = [0; 4096];
                while !is_over.load(Ordering::Relaxed) {
                    for at in pieces.iter().skip(first).step_by(4) {
                        assert_eq!(filesystem.read(&reader, at * piece, &mut found).expect("reads"), 4096);
                        assert!(found == [7; 4096], "at {at}");
                    }
                }
            });
        }
        for at in pieces.iter().filter(|at| *at % 2 == 0).rev() {
            filesystem.write(&file, at * piece, &[7; 4096]).expect("room");
            filesystem.write_back(&file).expect("writes");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(extents(&filesystem, file.id()), [(0, size >> 16, false)]);
    filesystem.commit().expect("commits");
    bench.assert_clean("read meanwhile");
}

/// Writeback cuts an extent in two steps: between them its rest is nowhere, and a write to a part of a sector there must
/// not take the sector for a hole.
#[test]
fn a_sector_that_is_written_in_part_beside_writeback_keeps_its_rest() {
    const SECTOR: u64 = 4096;
    const SECTORS: u64 = 48;
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let file = filesystem.open_file(create(&filesystem, 0, InodeFlags::empty())).expect("opens");
    for round in 0..60 {
        filesystem
            .write(&file, 0, &vec![1; usize::try_from(SECTORS * SECTOR).expect("small")])
            .expect("room");
        filesystem.write_back(&file).expect("room");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for sector in 0..SECTORS / 2 {
                    filesystem.write(&file, sector * 2 * SECTOR, &[2; 4096]).expect("room");
                    filesystem.write_back(&file).expect("room");
                }
            });
            for pair in (0..SECTORS / 2).rev() {
                let sector = pair * 2 + 1;
                filesystem.write(&file, sector * SECTOR + 100, &[3; 10]).expect("room");
            }
        });
        let mut found = vec![0; usize::try_from(SECTORS * SECTOR).expect("small")];
        filesystem.read(&file, 0, &mut found).expect("reads");
        for (number, sector) in (0u64..).zip(found.chunks(4096)) {
            let expected = if number % 2 == 0 { 2 } else { 1 };
            let rest = sector[..100].iter().chain(&sector[110..]);
            assert!(rest.clone().all(|byte| *byte == expected), "round {round}, sector {number}");
        }
    }
}
