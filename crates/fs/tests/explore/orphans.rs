//! Inodes that lose their last name while they are open.

use crate::world::{NEW_FILE, SCHEDULES, World, after_crash, assert_all, came_in_time, make};
use brindle_fs::{AttributeChange, FsError, InodeId, RenameMode};
use brindle_sync::{explore, thread};

/// The inode is gone, with all that it had.
fn assert_gone(world: &World, id: InodeId) {
    let found = world.fs.attributes(id);
    assert!(matches!(found, Err(FsError::NoInode(_))), "{id} has neither name nor user: {found:?}");
}

#[test]
fn an_open_file_loses_its_name_while_it_is_written_and_closed() {
    let image = World::image(|fs| make(fs, b"f", &[1; 9000]));
    explore(SCHEDULES, move || {
        let world = World::mount(&image);
        let file = world.open(b"f").expect("it was made");
        let id = file.id();
        thread::scope(|scope| {
            scope.spawn(|| world.fs.unlink(world.fs.root(), b"f").expect("it has a name"));
            let fs = &world.fs;
            scope.spawn(move || {
                fs.write(&file, 5000, &[2; 9000]).expect("room");
                let mut bytes = vec![0; 20_000];
                let length = fs.read(&file, 0, &mut bytes).expect("reads");
                bytes.truncate(length);
                assert_all(&bytes, 0..5000, &[1], "an open file");
                assert_all(&bytes, 5000..14_000, &[2], "an open file");
                fs.close_file(file).expect("closes");
            });
            scope.spawn(|| world.fs.commit().expect("durable"));
        });
        assert_gone(&world, id);
        after_crash(&world.crash(), |world| {
            if let Some(bytes) = world.contents(b"f") {
                assert_all(&bytes, 0..5000, &[1], "after a crash");
            }
        });
        let world = world.remount();
        assert!(world.open(b"f").is_none());
        assert_gone(&world, id);
    });
}

#[test]
fn attributes_change_while_the_last_name_and_the_last_user_go() {
    let image = World::image(|fs| make(fs, b"f", &[1; 9000]));
    explore(SCHEDULES, move || {
        let world = World::mount(&image);
        let file = world.open(b"f").expect("it was made");
        let id = file.id();
        thread::scope(|scope| {
            scope.spawn(|| world.fs.unlink(world.fs.root(), b"f").expect("it has a name"));
            let fs = &world.fs;
            scope.spawn(move || fs.close_file(file).expect("closes"));
            scope.spawn(|| {
                let change = AttributeChange { size: Some(100), ..AttributeChange::default() };
                came_in_time(world.fs.set_attributes(id, &change).map(|_| ()));
                world.fs.commit().expect("durable");
            });
        });
        assert_gone(&world, id);
        assert_gone(&world.remount(), id);
    });
}

/// A name that is made, taken away, and taken by another file: the last two, if they come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Unlink,
    Rename,
}

/// A name's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    None,
    New,
    Renamed,
}

/// The outcome of the steps in this order: success of creating and of unlinking, and the name's file.
fn outcome(order: [Step; 3]) -> (bool, bool, Owner) {
    let (mut created, mut unlinked, mut owner) = (false, false, Owner::None);
    for step in order {
        match step {
            Step::Create if owner == Owner::None => (created, owner) = (true, Owner::New),
            Step::Create => {}
            Step::Unlink => (unlinked, owner) = (owner != Owner::None, Owner::None),
            Step::Rename => owner = Owner::Renamed,
        }
    }
    (created, unlinked, owner)
}

#[test]
fn a_new_open_file_a_rename_over_it_and_an_unlink_come_in_some_order() {
    use Step::{Create, Rename, Unlink};
    let image = World::image(|fs| make(fs, b"f", &[1; 3000]));
    let orders = [
        [Create, Unlink, Rename],
        [Create, Rename, Unlink],
        [Unlink, Create, Rename],
        [Unlink, Rename, Create],
        [Rename, Create, Unlink],
        [Rename, Unlink, Create],
    ];
    explore(SCHEDULES, move || {
        let world = World::mount(&image);
        let (fs, root) = (&world.fs, world.fs.root());
        let (created, unlinked) = thread::scope(|scope| {
            let create = scope.spawn(move || match fs.create_open(root, b"n", &NEW_FILE) {
                Ok((made, file)) => {
                    fs.write(&file, 0, &[2; 6000]).expect("room");
                    fs.close_file(file).expect("closes");
                    Some(made.id)
                }
                Err(FsError::Exists(_)) => None,
                Err(error) => panic!("{error}"),
            });
            let unlink = scope.spawn(move || came_in_time(fs.unlink(root, b"n")));
            scope.spawn(move || {
                fs.rename(root, b"f", root, b"n", RenameMode::Replace).expect("the file is there");
                fs.commit().expect("durable");
            });
            (create.join().expect("no panic"), unlink.join().expect("no panic"))
        });
        let owner = match world.contents(b"n").as_deref() {
            None => Owner::None,
            Some([1, ..]) => Owner::Renamed,
            Some(_) => Owner::New,
        };
        let found = (created.is_some(), unlinked, owner);
        assert!(orders.iter().any(|order| outcome(*order) == found), "no order gives {found:?}");
        if let Some(id) = created.filter(|_| owner != Owner::New) {
            assert_gone(&world, id);
        }
        let world = world.remount();
        assert!(world.open(b"f").is_none());
        assert_eq!(
            world.contents(b"n").map_or(0, |bytes| bytes.len()),
            match owner {
                Owner::None => 0,
                Owner::New => 6000,
                Owner::Renamed => 3000,
            }
        );
    });
}
