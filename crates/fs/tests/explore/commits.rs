//! Commits beside each other, writers, snapshots, and an operation that fails half way.

use crate::world::{NEW_FILE, SCHEDULES, World, after_crash, assert_all, make};
use brindle_fs::{AllocateMode, InodeId};
use brindle_ondisk::item::InodeItem;
use brindle_ondisk::{Key, KeyType, RootId};
use brindle_sync::{explore, thread};
use brindle_tree::Need;
use zerocopy::FromBytes;

/// Changes that an operation makes until it fails.
const HALF: u32 = 5;

#[test]
fn commits_a_writer_and_a_snapshot_come_in_some_order() {
    let image = World::image(|fs| make(fs, b"f", &[1; 9000]));
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let crash = thread::scope(|scope| {
            scope.spawn(move || world.fs.commit().expect("durable"));
            let writer = scope.spawn(move || {
                make(&world.fs, b"first", &[2; 5000]);
                make(&world.fs, b"second", &[3; 5000]);
                world.fs.commit().expect("durable");
                world.crash()
            });
            scope.spawn(move || {
                let source = world.fs.root().tree;
                let made = world.fs.snapshot(source, world.fs.root(), b"s", false).expect("room");
                let top = InodeId::root_of(made);
                let file = world.open_in(top, b"f").expect("it was there before");
                world.fs.write(&file, 0, &[4; 100]).expect("room");
                world.fs.close_file(file).expect("closes");
            });
            writer.join().expect("no panic")
        });
        after_crash(&crash, |world| {
            assert_all(&world.contents(b"first").expect("committed"), 0..5000, &[2], "committed");
            assert_all(&world.contents(b"second").expect("committed"), 0..5000, &[3], "committed");
        });
        let snapshot = world.fs.lookup(world.fs.root(), b"s").expect("reads").expect("it was made").inode;
        let has = |name| world.fs.lookup(snapshot, name).expect("reads").is_some();
        assert!(has(b"first") || !has(b"second"), "the second was made after the first");
        assert_all(&world.contents(b"f").expect("there"), 0..9000, &[1], "the source of the snapshot");
    });
}

#[test]
fn an_operation_of_several_transactions_is_in_a_snapshot_as_a_whole_or_not_at_all() {
    const LENGTH: usize = 20_000;
    const ZEROS: std::ops::Range<usize> = 2000..22_000;
    let image = World::image(|fs| make(fs, b"f", &[1; LENGTH]));
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let made = thread::scope(|scope| {
            scope.spawn(move || {
                let file = world.open_in(world.fs.root(), b"f").expect("there");
                let (offset, length) = (ZEROS.start as u64, ZEROS.len() as u64);
                world.fs.allocate(&file, AllocateMode::ZeroRange, offset, length).expect("room");
                world.fs.close_file(file).expect("closes");
            });
            let snapshot = scope.spawn(move || {
                let source = world.fs.root().tree;
                world.fs.snapshot(source, world.fs.root(), b"s", false).expect("room")
            });
            snapshot.join().expect("no panic")
        });
        let file = world.open_in(InodeId::root_of(made), b"f").expect("it was there before");
        let mut found = vec![0; ZEROS.end];
        let length = world.fs.read(&file, 0, &mut found).expect("reads");
        world.fs.close_file(file).expect("closes");
        let zeroed = |at| if ZEROS.contains(&at) { 0 } else { 1 };
        let is_before = length == LENGTH && found[..length].iter().all(|byte| *byte == 1);
        let is_after = length == ZEROS.end && found.iter().enumerate().all(|(at, byte)| *byte == zeroed(at));
        assert!(
            is_before || is_after,
            "{length} bytes, {} of them zeros",
            found.iter().filter(|byte| **byte == 0).count()
        );
    });
}

#[test]
fn an_operation_that_fails_half_way_is_never_published() {
    let image = World::image(|fs| make(fs, b"f", &[1; 100]));
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let id = world.fs.lookup(world.fs.root(), b"f").expect("reads").expect("made").inode;
        let item = Key::new(id.number, KeyType::INODE_ITEM, 0);
        // There is something to commit from the beginning.
        world.fs.create(world.fs.root(), b"before", &NEW_FILE).expect("room");
        let crashes = thread::scope(|scope| {
            scope.spawn(move || {
                let pool = world.fs.pool();
                let Ok(transaction) = pool.join(Need::items(1)) else { return };
                let tree = pool.tree(RootId::FS_TREE).expect("a tree");
                for uid in 1..=HALF {
                    let change = |data: &mut [u8]| {
                        let (item, _) = InodeItem::mut_from_prefix(data).expect("an inode item");
                        item.uid.set(uid);
                    };
                    transaction.update(&tree, &item, change).expect("it is there");
                }
                pool.abort(&"the other half failed");
                drop(transaction);
            });
            // Each of them is durable, or told that nothing is written any more.
            let committed = scope.spawn(move || world.fs.commit().is_ok().then(|| world.crash()));
            let made = scope.spawn(move || {
                let made = world.fs.create(world.fs.root(), b"meanwhile", &NEW_FILE);
                (made.is_ok() && world.fs.commit().is_ok()).then(|| world.crash())
            });
            [(&b"before"[..], committed), (b"meanwhile", made)]
                .map(|(name, thread)| (name, thread.join().expect("no panic")))
        });
        assert!(world.fs.pool().read_only_reason().is_some());
        assert!(world.fs.commit().is_err());
        for (name, crash) in crashes {
            if let Some(crash) = crash {
                after_crash(&crash, |world| assert!(world.open(name).is_some(), "its commit had returned"));
            }
        }
        after_crash(&world.crash(), |world| {
            let attributes = world.fs.attributes(id).expect("it was made");
            assert_eq!(attributes.uid, 0, "half of an operation is durable");
        });
    });
}
