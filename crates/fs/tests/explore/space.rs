//! Readers of extents that are freed under them, and writers that want the space.

use crate::world::{SCHEDULES, World, after_crash, assert_all, make};
use brindle_fs::Remaining;
use brindle_sync::{explore, thread};

#[test]
fn a_reader_finds_its_extents_or_their_successors_while_others_want_the_space() {
    let image = World::image(|fs| make(fs, b"f", &[1; 16_384]));
    explore(SCHEDULES, move || {
        let world = &World::mount_discarding(&image);
        let file = &world.open(b"f").expect("made");
        let crash = thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..2 {
                    assert_all(&world.read(file), 0..16_384, &[1, 2], "read meanwhile");
                }
            });
            let writers = scope.spawn(move || {
                world.fs.write(file, 0, &[2; 16_384]).expect("room");
                world.fs.sync_file(file).expect("durable");
                world.fs.commit().expect("durable");
                // What the file had is free by now, but for a reader: it goes back to the device, or to the next file.
                while world.fs.background_step().expect("upkeep") == Remaining::More {}
                make(&world.fs, b"g", &[9; 16_384]);
                world.crash()
            });
            scope.spawn(move || {
                make(&world.fs, b"h", &[9; 16_384]);
            });
            writers.join().expect("no panic")
        });
        world.assert_no_errors();
        assert_all(&world.read(file), 0..16_384, &[2], "written");
        after_crash(&crash, |world| {
            assert_all(&world.contents(b"f").expect("durable"), 0..16_384, &[2], "synced");
            assert_all(&world.contents(b"g").expect("durable"), 0..16_384, &[9], "synced");
        });
    });
}
