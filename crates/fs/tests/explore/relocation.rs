//! Block groups that are emptied beside writers, fsyncs, readers and snapshots.

use crate::world::{SCHEDULES, World, after_crash, assert_all, make};
use brindle_fs::Filesystem;
use brindle_ondisk::{BlockGroupType, Logical};
use brindle_sync::{explore, thread};
use std::ops::ControlFlow;

/// Start of the block group of data, or of that of metadata.
fn group(fs: &Filesystem, kind: BlockGroupType) -> Logical {
    let groups = fs.pool().block_groups().expect("they are in memory");
    let found = groups.iter().find(|group| group.kind.contains(kind) && group.used_bytes > 0);
    found.expect("something is stored").start
}

fn relocate(fs: &Filesystem, start: Logical) {
    let alone = fs.pool().begin_exclusive("a test").expect("nothing else runs");
    fs.pool().relocate(&alone, start, &mut |_| ControlFlow::Continue(())).expect("room");
}

#[test]
fn data_moves_beside_a_writer_that_syncs_and_a_reader() {
    let image = World::image(|fs| make(fs, b"f", &[1; 40_000]));
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let file = &world.open(b"f").expect("made");
        let crash = thread::scope(|scope| {
            scope.spawn(move || relocate(&world.fs, group(&world.fs, BlockGroupType::DATA)));
            let writer = scope.spawn(move || {
                world.fs.write(file, 8192, &[2; 10_000]).expect("room");
                world.fs.sync_file(file).expect("durable");
                world.crash()
            });
            scope.spawn(move || {
                for _ in 0..2 {
                    let bytes = world.read(file);
                    assert_all(&bytes, 0..8192, &[1], "never written");
                    assert_all(&bytes, 8192..18_192, &[1, 2], "written meanwhile");
                    assert_all(&bytes, 18_192..40_000, &[1], "never written");
                }
            });
            writer.join().expect("no panic")
        });
        let bytes = world.read(file);
        assert_all(&bytes, 0..8192, &[1], "in memory");
        assert_all(&bytes, 8192..18_192, &[2], "in memory");
        after_crash(&crash, |world| {
            let bytes = world.contents(b"f").expect("durable");
            assert_all(&bytes, 0..8192, &[1], "after a crash");
            assert_all(&bytes, 8192..18_192, &[2], "synced");
            assert_all(&bytes, 18_192..40_000, &[1], "after a crash");
        });
        world.assert_no_errors();
    });
}

#[test]
fn a_snapshot_is_made_and_changed_while_its_blocks_move() {
    let image = World::image(|fs| make(fs, b"f", &[1; 20_000]));
    for kind in [BlockGroupType::DATA, BlockGroupType::METADATA] {
        let image = image.clone();
        explore(SCHEDULES / 2, move || {
            let world = World::mount_slow(&image);
            thread::scope(|scope| {
                let fs = &world.fs;
                scope.spawn(move || relocate(fs, group(fs, kind)));
                scope.spawn(|| {
                    let source = world.fs.root().tree;
                    world.fs.snapshot(source, world.fs.root(), b"s", false).expect("room");
                    let file = world.open(b"f").expect("made");
                    world.fs.write(&file, 0, &[2; 5000]).expect("room");
                    world.fs.close_file(file).expect("closes");
                });
            });
            let world = world.remount();
            assert_all(&world.contents(b"f").expect("there"), 0..5000, &[2], "written since");
            let snapshot = world.fs.lookup(world.fs.root(), b"s").expect("reads").expect("made").inode;
            let file = world.open_in(snapshot, b"f").expect("it was there");
            assert_all(&world.read(&file), 0..20_000, &[1], "of the snapshot");
            world.fs.close_file(file).expect("closes");
        });
    }
}
