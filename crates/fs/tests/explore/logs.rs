//! Fsyncs beside each other, writes, renames and commits: each returned one survives a crash.

use crate::world::{SCHEDULES, World, after_crash, assert_all, make};
use brindle_fs::RenameMode;
use brindle_sync::{explore, thread};

#[test]
fn fsyncs_beside_other_syncs_writes_and_commits_survive_a_crash() {
    let image = World::image(|fs| {
        make(fs, b"a", &[1; 9000]);
        make(fs, b"b", &[1; 9000]);
    });
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let (a, b) = (&world.open(b"a").expect("made"), &world.open(b"b").expect("made"));
        let crashes = thread::scope(|scope| {
            let first = scope.spawn(move || {
                world.fs.write(a, 0, &[2; 5000]).expect("room");
                world.fs.sync_file(a).expect("durable");
                world.crash()
            });
            let second = scope.spawn(move || {
                world.fs.write(b, 4096, &[3; 8192]).expect("room");
                world.fs.sync_file(b).expect("durable");
                world.crash()
            });
            scope.spawn(move || {
                world.fs.write(a, 8192, &[4; 4096]).expect("room");
                world.fs.commit().expect("durable");
            });
            [first, second].map(|thread| thread.join().expect("no panic"))
        });
        after_crash(&crashes[0], |world| {
            let bytes = world.contents(b"a").expect("it is durable");
            assert_all(&bytes, 0..5000, &[2], "synced");
            assert_all(&bytes, 5000..8192, &[1], "as it was");
        });
        after_crash(&crashes[1], |world| {
            let bytes = world.contents(b"b").expect("it is durable");
            assert_all(&bytes, 0..4096, &[1], "as it was");
            assert_all(&bytes, 4096..12_288, &[3], "synced");
        });
    });
}

#[test]
fn a_file_that_is_synced_while_it_gets_another_name_survives_a_crash_under_one() {
    let image = World::image(|fs| make(fs, b"f", &[1; 5000]));
    explore(SCHEDULES, move || {
        let world = &World::mount(&image);
        let (file, root) = (&world.open(b"f").expect("made"), world.fs.root());
        let crash = thread::scope(|scope| {
            let sync = scope.spawn(move || {
                world.fs.write(file, 1000, &[2; 5000]).expect("room");
                world.fs.sync_file(file).expect("durable");
                world.crash()
            });
            scope.spawn(move || {
                world.fs.rename(root, b"f", root, b"g", RenameMode::Replace).expect("it is there");
            });
            scope.spawn(move || world.fs.commit().expect("durable"));
            sync.join().expect("no panic")
        });
        after_crash(&crash, |world| {
            let (old, new) = (world.contents(b"f"), world.contents(b"g"));
            assert!(old.is_some() != new.is_some(), "it has one name");
            let bytes = old.or(new).unwrap_or_default();
            assert_all(&bytes, 0..1000, &[1], "as it was");
            assert_all(&bytes, 1000..6000, &[2], "synced");
        });
    });
}
