//! Fsyncs that are logged: what they write, and what a crash leaves of it.

use super::bench::{Bench, Setup, create};
use brindle_fs::{
    Filesystem, FixedHost, FsError, InodeFlags, LogStatistics, OpenFile, SyncMeasure, Timestamp, Unlogged,
    WriteOptions,
};
use brindle_ondisk::item::DevReplaceItem;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_tree::{Need, TreeError};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

const SECTOR: u64 = 4096;

fn statistics(filesystem: &Filesystem) -> LogStatistics {
    filesystem.pool().commit_statistics().log
}

fn file(filesystem: &Filesystem, number: u64) -> OpenFile {
    filesystem.open_file(create(filesystem, number, InodeFlags::empty())).expect("opens")
}

fn read(filesystem: &Filesystem, file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![9; usize::try_from(file.size()).expect("small")];
    assert_eq!(filesystem.read(file, 0, &mut bytes).expect("reads"), bytes.len());
    bytes
}

#[test]
fn a_file_that_was_cut_off_and_grows_again_has_a_hole() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let cut = file(&filesystem, 0);
    filesystem.write(&cut, 0, &vec![1; 1 << 20]).expect("writes");
    filesystem.write_back(&cut).expect("writes");
    filesystem.commit().expect("commits");
    filesystem.truncate(&cut, 5000).expect("truncates");
    filesystem.sync_file(&cut).expect("syncs");
    filesystem.write(&cut, 900_000, &[2; 1000]).expect("writes");
    filesystem.sync_file(&cut).expect("syncs");
    assert_eq!(
        (statistics(&filesystem).syncs, statistics(&filesystem).commits),
        (2, [0; Unlogged::ALL.len()])
    );
    let id = cut.id();
    // The file stays unclosed, and nothing more is written.
    drop((cut, filesystem));
    let filesystem = bench.open();
    let found = read(&filesystem, &filesystem.open_file(id).expect("opens"));
    assert_eq!(found.len(), 901_000);
    assert!(found[..5000].iter().all(|byte| *byte == 1));
    assert!(found[5000..900_000].iter().all(|byte| *byte == 0), "what was cut off is back");
    assert!(found[900_000..].iter().all(|byte| *byte == 2));
    drop(filesystem);
    bench.assert_clean("replayed");
}

/// The kernel ends a replacement that was interrupted; what was fsynced is shown all the same.
#[test]
fn the_log_of_a_pool_with_an_interrupted_replacement_is_replayed_in_memory() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let synced = file(&filesystem, 0);
    filesystem.write(&synced, 0, &[1; 3000]).expect("writes");
    filesystem.write_back(&synced).expect("writes");
    let tree = filesystem.pool().tree(RootId::DEV_TREE).expect("a tree");
    let mut item = DevReplaceItem::new_zeroed();
    item.replace_state = 1.into();
    let key = Key::new(ObjectId::new(0), KeyType::DEV_REPLACE, 0);
    let transaction = filesystem.pool().join(Need::items(1)).expect("room");
    transaction.insert(&tree, &key, item.as_bytes()).expect("a new item");
    drop(transaction);
    filesystem.commit().expect("commits");
    filesystem.write(&synced, 0, &[2; 70_000]).expect("writes");
    filesystem.sync_file(&synced).expect("syncs");
    assert_eq!(statistics(&filesystem).syncs, 1);
    let id = synced.id();
    drop((synced, filesystem));
    let before = bench.written();
    let refused = bench.try_open().expect_err("the kernel has to end the replacement");
    assert!(matches!(refused, FsError::Tree(TreeError::ReplacementInterrupted { .. })), "{refused}");
    let filesystem = bench.open_replayed();
    let found = read(&filesystem, &filesystem.open_file(id).expect("opens"));
    assert!(found == [2; 70_000], "what was synced is not there, but {} bytes", found.len());
    assert!(filesystem.warnings().is_empty() && !filesystem.is_writable());
    drop(filesystem);
    assert!(bench.written() == before, "nothing is written to the device");
}

/// No kernel writes such a tree: blocks of a relocation refer to their children in their own name.
#[test]
fn a_relocation_that_can_not_be_ended_is_refused_by_name_and_what_was_synced_is_kept() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let synced = file(&filesystem, 0);
    let root_tree = filesystem.pool().tree(RootId::ROOT_TREE).expect("a tree");
    let (_, item) = filesystem.pool().root_item(RootId::FS_TREE).expect("reads").expect("an item");
    let key = Key::new(ObjectId::TREE_RELOC, KeyType::ROOT_ITEM, RootId::FS_TREE.get());
    let transaction = filesystem.pool().join(Need::items(1)).expect("room");
    transaction.insert(&root_tree, &key, item.as_bytes()).expect("a new item");
    drop(transaction);
    filesystem.commit().expect("commits");
    filesystem.write(&synced, 0, &[2; 70_000]).expect("writes");
    filesystem.sync_file(&synced).expect("syncs");
    let id = synced.id();
    drop((synced, filesystem));
    let refused = bench.try_open().expect_err("the tree is of another kind");
    assert!(matches!(refused, FsError::Relocation(_)), "{refused}");
    let filesystem = bench.open_replayed();
    let found = read(&filesystem, &filesystem.open_file(id).expect("opens"));
    assert!(found == [2; 70_000], "what was synced is not there, but {} bytes", found.len());
}

#[test]
fn s3_18_and_s3_20_a_small_write_is_logged_as_such_however_large_the_file() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    for (number, extents) in [(0, 10), (1, 4000)] {
        let file = file(&filesystem, number);
        for extent in 0..extents {
            filesystem.write(&file, extent * 2 * SECTOR, &[1; 4096]).expect("writes");
        }
        filesystem.write_back(&file).expect("writes");
        filesystem.commit().expect("commits");
        for round in 0..5 {
            let before = statistics(&filesystem);
            filesystem.write(&file, (round + 1) * 2 * SECTOR, &[2; 4096]).expect("writes");
            filesystem.sync_file(&file).expect("syncs");
            let after = statistics(&filesystem);
            // The inode, its name, the extent, and its checksum.
            assert_eq!(after.items - before.items, 4, "{extents} extents");
            assert_eq!(
                (after.syncs, after.blocks),
                (before.syncs + 1, before.blocks + 2),
                "{extents} extents"
            );
            filesystem.sync_file(&file).expect("syncs");
            assert_eq!(statistics(&filesystem), after, "nothing is new");
        }
    }
    assert_eq!(statistics(&filesystem).commits, [0; Unlogged::ALL.len()]);
}

#[test]
fn s2_09_what_eight_threads_sync_is_there_after_a_crash() {
    eight_threads_sync(&WriteOptions::default());
}

#[test]
fn s2_10_what_is_logged_is_the_same_if_it_is_prepared_under_the_lock() {
    eight_threads_sync(&WriteOptions { log_prepare_locked: true, ..WriteOptions::default() });
}

fn eight_threads_sync(write: &WriteOptions) {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 30;
    let bench = Bench::new(&Setup { write: write.clone(), ..Setup::default() });
    let filesystem = bench.open();
    let files: Vec<OpenFile> = (0..THREADS).map(|number| file(&filesystem, number)).collect();
    for file in &files {
        filesystem.write(file, 0, &vec![0xff; 256 << 10]).expect("writes");
    }
    filesystem.sync().expect("commits");
    std::thread::scope(|scope| {
        for (file, seed) in files.iter().zip(0u64..) {
            let filesystem = &filesystem;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let at = (round * 7 + seed) % 60;
                    filesystem.write(file, at * SECTOR, &[round.to_le_bytes()[0]; 5000]).expect("writes");
                    filesystem.sync_file(file).expect("syncs");
                    if (round, seed) == (ROUNDS / 2, 0) {
                        filesystem.commit().expect("commits");
                    }
                }
            });
        }
    });
    let done = statistics(&filesystem);
    assert!(done.syncs > 0 && done.syncs <= done.fsyncs, "{done:?}");
    let entries = filesystem.pool().sync_histograms()[SyncMeasure::EntryHeld as usize].count();
    assert!(entries >= done.fsyncs, "{entries} entries, {done:?}");
    let expected: Vec<Vec<u8>> = files.iter().map(|file| read(&filesystem, file)).collect();
    let ids: Vec<_> = files.iter().map(OpenFile::id).collect();
    drop((files, filesystem));
    let filesystem = bench.open();
    for (id, expected) in ids.iter().zip(&expected) {
        assert!(read(&filesystem, &filesystem.open_file(*id).expect("opens")) == *expected);
    }
    drop(filesystem);
    bench.assert_clean("replayed");
    bench.assert_btrfs_check("replayed");
}

/// Nothing of the file's items changes but the count of its changes, for no time passes.
#[test]
fn contents_that_are_overwritten_in_place_at_the_same_moment_are_synced_each_time() {
    let host = Arc::new(FixedHost::new(Timestamp { seconds: 1_800_000_000, nanoseconds: 5 }));
    let write = WriteOptions { host, ..WriteOptions::default() };
    let bench = Bench::new(&Setup { write, ..Setup::default() });
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let file = filesystem.open_file(id).expect("opens");
    filesystem.write(&file, 0, &[1; 8192]).expect("writes");
    filesystem.write_back(&file).expect("writes");
    filesystem.commit().expect("commits");
    for round in 1..5 {
        filesystem.write(&file, 4096, &[2; 4096]).expect("writes");
        filesystem.sync_file(&file).expect("syncs");
        assert_eq!(
            (statistics(&filesystem).syncs, statistics(&filesystem).commits),
            (round, [0; Unlogged::ALL.len()])
        );
        filesystem.sync_file(&file).expect("syncs");
        assert_eq!(statistics(&filesystem).syncs, round, "nothing is new");
    }
}
