//! Commits beside each other, writers, snapshots, and an operation that fails half way.

use crate::world::{SCHEDULES, World, after_crash, assert_all, make};
use brindle_fs::InodeId;
use brindle_ondisk::{Key, KeyType, RootId};
use brindle_sync::{explore, thread};
use brindle_tree::Need;

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
fn an_operation_that_fails_half_way_is_never_published() {
    let image = World::image(|fs| make(fs, b"f", &[1; 100]));
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let id = world.fs.lookup(world.fs.root(), b"f").expect("reads").expect("made").inode;
        let half = Key::new(id.number, KeyType::XATTR_ITEM, 7);
        thread::scope(|scope| {
            scope.spawn(move || {
                let pool = world.fs.pool();
                let Ok(transaction) = pool.join(Need::items(1)) else { return };
                let tree = pool.tree(RootId::FS_TREE).expect("a tree");
                transaction.insert(&tree, &half, b"half of an operation").expect("inserted");
                pool.abort(&"the other half failed");
                drop(transaction);
            });
            // Each of them is durable, or told that nothing is written any more.
            for name in [b"x", b"y"] {
                scope.spawn(move || {
                    let made = world.fs.create(world.fs.root(), name, &crate::world::NEW_FILE);
                    let is_durable = made.is_ok() && world.fs.commit().is_ok();
                    if is_durable {
                        after_crash(&world.crash(), |world| assert!(world.open(name).is_some()));
                    }
                });
            }
        });
        assert!(world.fs.pool().read_only_reason().is_some());
        assert!(world.fs.commit().is_err());
        after_crash(&world.crash(), |world| {
            let tree = world.fs.pool().tree(RootId::FS_TREE).expect("a tree");
            let found = world.fs.pool().with_item(&tree, &half, <[u8]>::len).expect("reads");
            assert!(found.is_none(), "half of an operation is durable");
        });
    });
}
